"""Both clients make capsules, import them from a file and read custody, against a gateway whose log is in memory."""

import asyncio
import base64
import io
import json
import tracemalloc
from collections.abc import Iterator

import httpx
import pytest

from session_streams import ApiError, AsyncClient, CapsuleImport, CapsuleRefused, Client, Conflict, Retries
from tests.support.capsule_world import Idle, idle_session, target
from tests.support.gateway import World, world

REFUSED = b'{"outcome":"refused","reason":"capsule_absent"}'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gateway")) as each:
        yield each


@pytest.fixture(scope="module")
def idle(made: World) -> Iterator[Idle]:
    with made.client() as http:
        yield idle_session(http, subject="mia")


@pytest.fixture
def client(made: World) -> Iterator[Client]:
    with Client(made.url, made.secret(), retries=Retries(total_s=5)) as each:
        yield each


def transport_of(seen: list[httpx.Request], statuses: Iterator[int]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(next(statuses), content=REFUSED)

    return httpx.MockTransport(answer)


def test_a_capsule_is_made_imported_from_a_file_read_and_revoked(client: Client, idle: Idle) -> None:
    given = idle.asks()
    capsule = client.create_capsule(idle.session_id, given, key="once")
    assert client.create_capsule(idle.session_id, given, key="once").transfer == capsule.transfer
    file = io.BytesIO(b"before" + json.dumps(capsule.transfer, indent=1).encode() + b"\n")
    file.seek(6)
    told = client.import_capsule(idle.session_id, file, session_thread_id=idle.thread_id, target=target(), key="import")
    assert isinstance(told, CapsuleImport)
    assert (told.capsule_id, told.checkpoint_id) == (capsule.capsule_id, idle.checkpoint_id)
    assert told.retention["byte_count"] == told.raw["byte_count"]
    assert client.capsule_import(idle.session_id, told.import_id) == told
    again = client.import_capsule(idle.session_id, capsule.transfer, session_thread_id=idle.thread_id, target=target())
    assert again == told
    client.revoke_capsule(idle.session_id, capsule.capsule_id)
    with pytest.raises(Conflict, match=r"content\.expired"):
        client.capsule_import(idle.session_id, told.import_id)
    refused = client.import_capsule(idle.session_id, capsule.transfer, session_thread_id=idle.thread_id, target=target())
    assert refused == CapsuleRefused("capsule_absent")


def test_the_asynchronous_client_does_the_same(made: World, idle: Idle) -> None:
    async def run() -> None:
        async with AsyncClient(made.url, made.secret(), retries=Retries(total_s=5)) as client:
            capsule = await client.create_capsule(idle.session_id, idle.asks())
            file = io.BytesIO(json.dumps(capsule.transfer).encode())
            told = await client.import_capsule(idle.session_id, file, session_thread_id=idle.thread_id, target=target())
            assert isinstance(told, CapsuleImport)
            assert await client.capsule_import(idle.session_id, told.import_id) == told
            await client.revoke_capsule(idle.session_id, capsule.capsule_id)
            with pytest.raises(Conflict, match=r"content\.expired"):
                await client.capsule_import(idle.session_id, told.import_id)

    asyncio.run(run())


def test_what_failed_for_a_moment_is_sent_whole_again_under_the_same_key() -> None:
    seen = list[httpx.Request]()
    with Client("http://none", "key", transport=transport_of(seen, iter((503, 200))), sleep=lambda seconds: None) as client:
        told = client.import_capsule("sess_1", io.BytesIO(b'{"a": 1}'), session_thread_id="sthr_1", target={"b": 2}, key="k")
    assert told == CapsuleRefused("capsule_absent")
    assert len(seen) == 2
    for request in seen:
        assert json.loads(request.content) == {
            "session_thread_id": "sthr_1", "target": {"b": 2}, "use_kind": "idle_handoff", "transfer": {"a": 1},
        }  # fmt: skip
        assert [request.headers[name] for name in ("checkfu-version", "idempotency-key", "content-type")] == [
            "2026-08-29", "k", "application/json",
        ]  # fmt: skip


class Once(io.BytesIO):
    def seekable(self) -> bool:
        return False


def test_a_file_that_cannot_be_read_again_is_sent_once() -> None:
    seen = list[httpx.Request]()
    with (
        Client("http://none", "key", transport=transport_of(seen, iter((503, 200))), sleep=lambda seconds: None) as client,
        pytest.raises(ApiError),
    ):
        client.import_capsule("sess_1", Once(b"{}"), session_thread_id="sthr_1", target={})
    assert len(seen) == 1


class Drain(httpx.BaseTransport):
    """Takes what is sent piece by piece, and keeps its size."""

    size = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        for piece in request.stream:
            self.size += len(piece)
        return httpx.Response(200, content=REFUSED)


class Large(io.RawIOBase):
    """A transfer with much content, made as it is read."""

    def __init__(self, size: int) -> None:
        self._left, self._piece = size, base64.b64encode(bytes(48 * 1024))

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        taken = self._piece[: min(size, self._left)]
        self._left -= len(taken)
        return taken


def test_content_is_never_whole_in_memory() -> None:
    drain = Drain()
    with Client("http://none", "key", transport=drain) as client:
        tracemalloc.start()
        client.import_capsule("sess_1", Large(16 * 1024 * 1024), session_thread_id="sthr_1", target={})  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert drain.size > 16 * 1024 * 1024
    assert peak < 4 * 1024 * 1024
