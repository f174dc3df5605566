"""Uploads of recovery material: taken in piece by piece, kept once, and refused with nothing kept."""

import base64
import dataclasses
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.gateway.limits import GatewayLimits
from streams.errors import BlobStoreUnavailable
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World, key, new_session, post, world
from tests.support.waiting import eventually
from tests.support.workers import Worker, claimed, worker_of

OCTETS = "application/octet-stream"
LIMIT = 300_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = GatewayLimits(threads=4, upload_bytes_max=LIMIT, body_timeout_s=0.5, transfers_max=2, position_wait_s=0.5)
    with world(tmp_path_factory.mktemp("gateway"), limits=limits) as made:
        yield made


@pytest.fixture
def worker(client: httpx.Client) -> Worker:
    return worker_of(client, new_session(client))


def kept(shared: World) -> set[str]:
    """Names of all files below the blob store."""
    folder = shared.settings.data_dir / "blobs"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def digest_header(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def test_an_upload_is_sealed_and_comes_to_no_event(worker: Worker, shared: World) -> None:
    before = worker.client.get(worker.session).json()["sequence"]
    content = b"the secret plan " * 1000
    answer = worker.upload(content).json()
    assert answer["bytes"] == len(content)
    assert answer["session_id"] == worker.session_id
    assert answer["digest"].startswith("sha256:")
    assert answer["digest"] != f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert worker.client.get(worker.session).json()["sequence"] == before
    folder = shared.settings.data_dir / "blobs" / WORKSPACE / worker.session_id / answer["upload_id"]
    sealed = [path.read_bytes() for path in folder.iterdir()]
    assert sealed
    assert all(b"secret plan" not in each for each in sealed)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, LIMIT])
def test_any_size_up_to_the_limit_is_taken(worker: Worker, size: int) -> None:
    assert worker.upload(bytes(size)).json()["bytes"] == size


def test_what_is_larger_than_the_limit_is_refused_and_not_kept(worker: Worker, shared: World) -> None:
    before = kept(shared)
    assert code_of(worker.upload(bytes(LIMIT + 1))) == (413, "request.too_large")

    def pieces() -> Iterator[bytes]:
        for _ in range(4):
            yield bytes(100_000)

    headers = {"content-type": OCTETS, "session-streams-report": worker.report, **key()}
    response = worker.client.post(f"{worker.session}/snapshots", content=pieces(), headers=headers)
    assert code_of(response) == (413, "request.too_large")
    assert kept(shared) == before


def test_a_repeat_is_the_same_upload_and_other_bytes_are_none(worker: Worker, shared: World) -> None:
    first = worker.upload(b"one", idempotency_key=f"up-{worker.run_id}")
    again = worker.upload(b"one", idempotency_key=f"up-{worker.run_id}")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    before = kept(shared)
    assert code_of(worker.upload(b"two", idempotency_key=f"up-{worker.run_id}")) == (409, "request.idempotency_mismatch")
    assert kept(shared) == before


def test_the_same_key_in_another_session_is_another_upload(client: httpx.Client) -> None:
    one, two = (worker_of(client, new_session(client)) for _ in range(2))
    names = {each.upload(b"same", idempotency_key=f"both-{one.run_id}").json()["upload_id"] for each in (one, two)}
    assert len(names) == 2


def test_a_digest_is_checked(worker: Worker, shared: World) -> None:
    assert worker.upload(b"bytes", repr_digest=digest_header(b"bytes")).status_code == 201
    assert worker.upload(b"bytes", repr_digest=f"sha-512=:AAAA:, {digest_header(b'bytes')}").status_code == 201
    before = kept(shared)
    assert code_of(worker.upload(b"bytes", repr_digest=digest_header(b"other"))) == (422, "request.invalid")
    assert kept(shared) == before


@pytest.mark.parametrize("text", ["", "sha-256", "sha-256=:AAAA:", "sha-512=:AAAA:", "sha-256=:!!:", "sha-256=" + "0" * 64])
def test_a_digest_that_is_none_is_malformed(worker: Worker, text: str) -> None:
    assert code_of(worker.upload(b"bytes", repr_digest=text)) == (400, "request.malformed")


@pytest.mark.parametrize("media_type", ["application/json", "text/plain", "", "application/octet-stream; charset=utf-8"])
def test_other_media_types_are_refused(worker: Worker, media_type: str) -> None:
    assert code_of(worker.upload(b"bytes", content_type=media_type)) == (415, "request.unsupported_media_type")
    assert code_of(worker.upload(b"bytes", content_encoding="gzip")) == (415, "request.unsupported_media_type")


def test_a_key_and_a_report_are_required(worker: Worker) -> None:
    path = f"{worker.session}/snapshots"
    response = worker.client.post(path, content=b"x", headers={"content-type": OCTETS, **key()})
    assert code_of(response) == (400, "request.malformed")
    response = worker.client.post(path, content=b"x", headers={"content-type": OCTETS, "session-streams-report": worker.report})
    assert code_of(response) == (400, "request.malformed")


def test_who_holds_nothing_stores_nothing(worker: Worker, shared: World) -> None:
    before = kept(shared)
    run = worker.run_id
    task = worker.grant["native_task_id"]
    for report in (f"{run};1;task_{'0' * 32}", f"run_{'0' * 32};1;{task}"):
        assert worker.upload(b"x", session_streams_report=report).status_code in (404, 409)
    mine, worker.client = worker.client, shared.client("checkpoints:write", "sessions:write")
    assert code_of(worker.upload(b"x")) == (409, "runtime.attempt_fenced")
    worker.client = shared.client("sessions:write")
    assert code_of(worker.upload(b"x")) == (403, "auth.scope")
    worker.client = shared.client(workspace_id=OTHER_WORKSPACE)
    assert code_of(worker.upload(b"x")) == (404, "resource.not_found")
    worker.client = mine
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    assert code_of(worker.upload(b"x")) == (409, "runtime.attempt_fenced")
    post(mine, f"{worker.run}/cancel")
    assert code_of(worker.upload(b"x")) == (409, "runtime.already_settled")
    assert kept(shared) == before


def test_a_newer_attempt_than_the_table_knows_of_is_waited_for(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = shared.owners.run, []
    old = shared.run(run(WORKSPACE, worker.session_id, worker.run_id))
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    newer = claimed(worker.client, worker.session_id, worker.run_id)

    async def behind(*arguments: Any, **more: Any) -> Any:
        asked.append(more)
        return old if len(asked) < 3 else await run(*arguments, **more)

    monkeypatch.setattr(shared.owners, "run", behind)
    assert newer.upload(b"x").status_code == 201
    assert len(asked) == 3


def test_a_generation_that_nobody_was_granted_stores_nothing(worker: Worker, shared: World) -> None:
    before = kept(shared)
    for generation in (2, 9):
        report = f"{worker.run_id};{generation};task_{'1' * 32}"
        assert code_of(worker.upload(b"x", session_streams_report=report)) == (503, "service.projection_behind")
    assert kept(shared) == before


def test_a_closed_session_is_sent_nothing_any_more(worker: Worker, shared: World) -> None:
    before = kept(shared)
    post(worker.client, f"{worker.session}/close")
    assert code_of(worker.upload(b"x")) == (409, "runtime.session_closed")
    assert kept(shared) == before


def test_a_key_has_a_share_of_the_transfers(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = shared.gateway.transfer_shares
    made = worker.checkpoint()
    content = f"{worker.session}/checkpoints/{made['checkpoint_id']}/content"
    monkeypatch.setattr(shares, "limit", 0)
    assert code_of(worker.upload(b"x")) == (429, "request.rate_limited")
    assert code_of(worker.client.get(content)) == (429, "request.rate_limited")
    assert shared.gateway.transfers.taken == 0
    monkeypatch.setattr(shares, "limit", 1)
    assert [worker.upload(b"x").status_code, worker.client.get(content).status_code, worker.upload(b"x").status_code] == [201, 200, 201]


def test_a_sender_who_is_too_slow_on_average_is_given_up(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept(shared)
    monkeypatch.setattr(shared.gateway, "limits", dataclasses.replace(shared.limits, transfer_start_s=0.3, transfer_bytes_per_s_min=1000))

    def drops() -> Iterator[bytes]:
        for _ in range(200):
            yield b"a"
            time.sleep(0.05)

    headers = {"content-type": OCTETS, "session-streams-report": worker.report, **key()}
    response = worker.client.post(f"{worker.session}/snapshots", content=drops(), headers=headers)
    assert code_of(response) == (408, "request.timeout")
    assert "slower than 1000 bytes/s" in response.json()["detail"]
    assert kept(shared) == before
    assert shared.gateway.transfers.taken == 0


def test_a_sender_who_stops_is_given_up_and_nothing_is_kept(worker: Worker, shared: World) -> None:
    before = kept(shared)

    def slow() -> Iterator[bytes]:
        yield b"a"
        time.sleep(1)
        yield b"b"

    headers = {"content-type": OCTETS, "session-streams-report": worker.report, **key()}
    response = worker.client.post(f"{worker.session}/snapshots", content=slow(), headers=headers)
    assert code_of(response) == (408, "request.timeout")
    assert kept(shared) == before
    assert shared.gateway.transfers.taken == 0


def test_a_store_that_is_away_is_told(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> bool:
        raise BlobStoreUnavailable("away")

    monkeypatch.setattr(shared.gateway.snapshots.blobs, "create", away)
    assert code_of(worker.upload(b"x")) == (503, "service.blob_store_unavailable")


def test_so_many_are_under_way_and_no_more_and_none_of_them_is_a_change(worker: Worker, shared: World) -> None:
    going = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"a"
        while not going.wait(0.05):
            yield b"a"

    mine = worker.report
    secret = worker.client.headers["authorization"].removeprefix("Bearer ")
    clients = [shared.client_with(secret) for _ in range(2)]

    def send(client: httpx.Client, found: list[int]) -> None:
        headers = {"content-type": OCTETS, "session-streams-report": mine, **key()}
        found.append(client.post(f"{worker.session}/snapshots", content=pieces(), headers=headers).status_code)

    found: list[int] = []
    threads = [threading.Thread(target=send, args=(client, found)) for client in clients]
    for thread in threads:
        thread.start()
    eventually(lambda: shared.gateway.transfers.taken == 2)
    assert shared.gateway.changes.taken == 0
    assert code_of(worker.upload(b"x")) == (503, "service.overloaded")
    going.set()
    for thread in threads:
        thread.join()
    assert found == [201, 201]


def test_under_zero_data_retention_nothing_is_kept(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        made.policies.set(WORKSPACE, mode="zdr")
        worker = worker_of(made.client(), new_session(made.client()))
        answer = worker.upload(b"bytes", repr_digest=digest_header(b"bytes")).json()
        assert (answer["bytes"], answer["digest"]) == (5, None)
        assert code_of(worker.upload(b"bytes", repr_digest=digest_header(b"other"))) == (422, "request.invalid")
        assert not kept(made)
