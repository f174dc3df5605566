"""Claims, checkpoints, forks and histories by both clients, against a gateway whose log is in memory."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import httpx
import pytest

import session_streams
from session_streams import (
    AsyncClient,
    Claim,
    Client,
    Conflict,
    ConnectionFailed,
    DigestMismatch,
    Event,
    HistoryEnd,
    HistoryGap,
    KeptElsewhere,
    NotFound,
    Report,
    Retries,
)
from session_streams.recovery import Received, Source, history_line
from tests.support.gateway import World, message, world

SNAPSHOT = hashlib.shake_128(b"any").digest(2_500_000)
REBUILD = {"kind": "event_log_rebuild"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gateway")) as each:
        yield each


@pytest.fixture
def client(made: World) -> Iterator[Client]:
    with Client(made.url, made.secret(), retries=Retries(total_s=5)) as each:
        yield each


@pytest.fixture
def claim(client: Client) -> Claim:
    session = client.create_session().session_id
    return client.claim(session, opened(client, session))


def opened(client: Client, session_id: str, lane: str = "main") -> str:
    return str(client.request("POST", f"/v1/sessions/{session_id}/runs", {"lane": lane}).json()["run_id"])


def boundary(client: Client, session_id: str) -> dict[str, Any]:
    *_, last = client.events(session_id)
    return {"through_sequence": last.sequence, "through_event_id": last.event_id}


def checkpoint(client: Client, claim: Claim, content: bytes = SNAPSHOT) -> str:
    upload = client.upload_snapshot(claim.session_id, content, report=claim.report)
    snapshot = {"upload_id": upload.upload_id}
    at = boundary(client, claim.session_id)
    return client.create_checkpoint(
        claim.session_id, report=claim.report, snapshot=snapshot, continuation=REBUILD, harness_revision="h1", **at
    ).checkpoint_id


def test_the_whole_way_from_a_claim_to_a_fork(client: Client, claim: Claim) -> None:
    assert claim.report == Report(claim.run_id, 1, claim.native_task_id, claim.run_sequence)
    made = checkpoint(client, claim)
    listed = list(client.checkpoints(claim.session_id, page_size=1))
    assert [each.checkpoint_id for each in listed] == [made]
    assert [(each.harness_revision, each.environment_revision) for each in listed] == [("h1", None)]
    assert b"".join(client.checkpoint_content(claim.session_id, made)) == SNAPSHOT
    child = client.fork(claim.session_id, checkpoint_id=made)
    assert child.restores["files"] is True
    assert client.session(child.session_id).sequence == 2
    file = io.BytesIO()
    assert client.download(child.session_id, made, file, sha256=hashlib.sha256(SNAPSHOT).digest())
    assert file.getvalue() == SNAPSHOT
    with pytest.raises(DigestMismatch):
        client.download(claim.session_id, made, io.BytesIO(), sha256=bytes(32))


def test_a_lane_gives_a_run_or_nothing(client: Client) -> None:
    assert client.claim_next(["client-lane"]) is None
    session = client.create_session().session_id
    run = opened(client, session, "client-lane")
    taken = client.claim_next(["other", "client-lane"], wait_ms=5_000, lease_ms=5_000, key="client-claims")
    assert taken is not None
    assert taken.run_id == run
    assert client.claim_next(["other", "client-lane"], wait_ms=5_000, lease_ms=5_000, key="client-claims") == taken
    # What this client has claimed, it reads.
    assert client.session(session).sequence == taken.frontier_sequence


def test_an_outcome_that_was_lost_is_found_under_the_same_key(client: Client, made: World) -> None:
    session = client.create_session().session_id
    run = opened(client, session)
    made.log.withhold = 1
    with Client(made.url, made.secret(), retries=Retries(total_s=30)) as other:
        assert other.claim(session, run).generation == 1
    assert len(made.log.events[session]) == 4


def test_a_refusal_tells_all_that_is_missing(client: Client, claim: Claim) -> None:
    path = f"/v1/sessions/{claim.session_id}/runs/{claim.run_id}/attempts/1"
    report = {"session-streams-report": claim.report.header()}
    ready = client.request("POST", f"{path}/ready", {}, headers=report).json()
    report = {"session-streams-report": Report(claim.run_id, 1, claim.native_task_id, ready["run_sequence"]).header()}
    failed = client.request("POST", f"{path}/fail", {"reason": "lost"}, headers=report).json()
    evidence = dict.fromkeys(("driver", "sandbox_provider_revision", "policy", "execution_target"), "x")
    revisions = {"harness_revision": "h", "environment_revision": "e"}
    with pytest.raises(Conflict) as refused:
        client.replace(claim.session_id, claim.run_id, replaces=1, frontier_sequence=failed["run_sequence"] - 1, **evidence, **revisions)
    assert refused.value.missing == ("retained_bytes", "recovery_frontier", "verification")


def test_a_history_is_told_line_by_line_and_ends(client: Client, claim: Claim, made: World) -> None:
    client.append(claim.session_id, message("one", run_id=claim.run_id), report=claim.report)
    told = list(client.conversation(claim))
    assert [type(each) for each in told] == [Event, HistoryEnd]
    assert isinstance(told[0], Event)
    assert told[0].content == {"text": "one"}
    assert told[-1] == HistoryEnd(5, True)
    assert list(client.conversation(claim, after_sequence=5, require_complete=True)) == [HistoryEnd(5, True)]
    with Client(made.url, made.secret()) as other, pytest.raises(Conflict):
        list(other.conversation(claim))


def test_what_a_provider_keeps_is_told(client: Client, claim: Claim) -> None:
    snapshot = {"provider": "vm", "reference": "img-1"}
    at = boundary(client, claim.session_id)
    made = client.create_checkpoint(claim.session_id, report=claim.report, snapshot=snapshot, continuation=REBUILD, **at)
    with pytest.raises(KeptElsewhere) as kept:
        list(client.checkpoint_content(claim.session_id, made.checkpoint_id))
    assert (kept.value.provider, kept.value.reference) == ("vm", "img-1")


def test_what_is_not_there_is_said_at_once(client: Client, claim: Claim) -> None:
    with pytest.raises(NotFound):
        list(client.checkpoint_content(claim.session_id, "ckpt_" + "0" * 32))
    with pytest.raises(NotFound):
        client.fork(claim.session_id, at_event="evt_" + "0" * 32)


def test_capabilities_are_told(client: Client) -> None:
    assert client.capabilities()["capabilities"]
    assert {each["capability"] for each in client.capabilities(capability="checkpoints")["capabilities"]} == {"checkpoints"}


def test_the_asynchronous_client_does_the_same(made: World) -> None:
    async def whole() -> None:
        async with AsyncClient(made.url, made.secret(), retries=Retries(total_s=5)) as client:
            session = (await client.create_session()).session_id
            run = (await client.request("POST", f"/v1/sessions/{session}/runs", {"lane": "async-lane"})).json()["run_id"]
            assert await client.claim_next(["empty"]) is None
            claim = await client.claim_next(["async-lane"], wait_ms=5_000)
            assert claim is not None
            assert claim.run_id == run
            file = io.BytesIO(b"skipped" + SNAPSHOT)
            file.seek(7)
            upload = await client.upload_snapshot(session, file, report=claim.report)
            assert upload.bytes == len(SNAPSHOT)
            events = [event async for event in client.events(session)]
            at = {"through_sequence": events[-1].sequence, "through_event_id": events[-1].event_id}
            snapshot = {"upload_id": upload.upload_id}
            created = await client.create_checkpoint(session, report=claim.report, snapshot=snapshot, continuation=REBUILD, **at)
            assert [each.checkpoint_id async for each in client.checkpoints(session)] == [created.checkpoint_id]
            out = io.BytesIO()
            await client.download(session, created.checkpoint_id, out, sha256=hashlib.sha256(SNAPSHOT).digest())
            assert out.getvalue() == SNAPSHOT
            assert [each async for each in client.conversation(claim)] == [HistoryEnd(5, True)]
            child = await client.fork(session, at_event=events[-1].event_id, through_sequence=events[-1].sequence)
            assert child.source_session_id == session
            assert (await client.capabilities(capability="checkpoints"))["capabilities"]
            with pytest.raises(Conflict):
                await client.claim(session, run)
            with pytest.raises(Conflict):
                await client.replace(
                    session, run, replaces=1, frontier_sequence=1, harness_revision="h", environment_revision="e", driver="d",
                    sandbox_provider_revision="s", policy="p", execution_target="t",
                )  # fmt: skip

    asyncio.run(whole())


def test_both_clients_offer_the_same_calls() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert calls(Client) == calls(AsyncClient)


# -- what breaks off --------------------------------------------------------------------------------------------------


class Broken(httpx.SyncByteStream):
    """Bytes, and then a connection that is gone."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        raise httpx.RemoteProtocolError("peer closed connection")


class BrokenAsync(httpx.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        raise httpx.RemoteProtocolError("peer closed connection")


def answers(responses: Iterable[httpx.Response]) -> httpx.MockTransport:
    left = iter(responses)
    return httpx.MockTransport(lambda _: next(left))


OCTETS = {"content-type": "application/octet-stream"}


def client_of(*responses: httpx.Response, total_s: float = 5) -> Client:
    return Client("http://test", "key", transport=answers(responses), sleep=lambda _: None, retries=Retries(total_s=total_s))


def test_a_download_that_breaks_off_is_continued_where_it_broke_off() -> None:
    cut = httpx.Response(200, headers=OCTETS, stream=Broken(b"ab", b"c"))
    shorter = httpx.Response(200, headers=OCTETS, stream=Broken(b"a"))
    whole = httpx.Response(200, headers=OCTETS, content=b"abcdef")
    assert b"".join(client_of(cut, shorter, whole).checkpoint_content("s", "c")) == b"abcdef"


def test_an_asynchronous_download_is_continued_too() -> None:
    async def whole() -> bytes:
        cut = httpx.Response(200, headers=OCTETS, stream=BrokenAsync(b"ab", b"c"))
        rest = httpx.Response(200, headers=OCTETS, content=b"abcdef")

        async def at_once(_: float) -> None:
            return None

        async with AsyncClient("http://test", "key", transport=answers([cut, rest]), sleep=at_once) as client:
            return b"".join([piece async for piece in client.checkpoint_content("s", "c")])

    assert asyncio.run(whole()) == b"abcdef"


def test_a_download_that_stays_broken_is_given_up() -> None:
    with pytest.raises(ConnectionFailed):
        list(client_of(httpx.Response(200, headers=OCTETS, stream=Broken(b"ab")), total_s=0).checkpoint_content("s", "c"))


@pytest.mark.parametrize("stream", [Broken(b'{"kind":"gap","session_id":"s","first_sequence":1,"last_sequence":2,"reason":"x"}\n'), None])
def test_a_history_that_breaks_off_is_never_taken_for_whole(made: World, claim: Claim, stream: Broken | None) -> None:
    response = httpx.Response(200, stream=stream) if stream is not None else httpx.Response(200, content=b"")
    found: list[object] = []
    with pytest.raises(ConnectionFailed):
        found.extend(client_of(response).conversation(claim))
    assert not any(isinstance(each, HistoryEnd) for each in found)


def test_a_history_that_has_not_begun_is_asked_for_again(claim: Claim) -> None:
    away = httpx.Response(503, json={"code": "service.not_owner"})
    end = httpx.Response(200, content=b'{"kind":"end","through_sequence":3,"complete":false}\n')
    assert list(client_of(away, end).conversation(claim)) == [HistoryEnd(3, False)]


def test_a_file_that_cannot_be_read_again_is_sent_once(claim: Claim) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.read())
        assert "repr-digest" not in request.headers
        return httpx.Response(503, json={"code": "service.blob_store_unavailable"})

    with (
        Client("http://test", "key", transport=httpx.MockTransport(answer), sleep=lambda _: None) as client,
        pytest.raises(session_streams.Unavailable),
    ):
        client.upload_snapshot("s", Pipe(b"once"), report=claim.report)
    assert seen == [b"once"]


def test_an_upload_is_sent_again_from_its_start(claim: Claim) -> None:
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.read())
        if len(seen) == 1:
            return httpx.Response(503, json={"code": "service.blob_store_unavailable"})
        return httpx.Response(201, json={"upload_id": "snap_1", "bytes": 4, "digest": None})

    file = io.BytesIO(b"xxbody")
    file.seek(2)
    with Client("http://test", "key", transport=httpx.MockTransport(answer), sleep=lambda _: None) as client:
        assert client.upload_snapshot("s", file, report=claim.report).digest is None
    assert seen == [b"body", b"body"]


def test_what_is_neither_bytes_nor_a_line_is_said() -> None:
    with pytest.raises(session_streams.SessionStreamsError):
        Received().begin("text/html", "/v1")
    with pytest.raises(session_streams.SessionStreamsError):
        history_line('{"kind":"surprise"}')
    assert history_line('{"kind":"gap","session_id":"s","first_sequence":1,"last_sequence":2,"reason":"x"}') == HistoryGap("s", 1, 2, "x")


def test_a_source_tells_its_digest_and_is_read_from_where_it_stood() -> None:
    file = io.BytesIO(b"abcdef")
    file.seek(3)
    source = Source(file)
    assert source.sha256() == hashlib.sha256(b"def").digest()
    assert b"".join(source.pieces()) == b"def"
