"""An owner and a gateway's client in one process, over a real socket, without a broker."""

import asyncio
import stat
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from multiprocessing.pool import ThreadPool
from pathlib import Path

import httpx
import msgspec
import pytest

from connectors.owner.messages import SessionQuestion, refusal, refused
from connectors.owner.projector_owners import ProjectorOwners
from connectors.owner.token import internal_token
from connectors.owner.wire import Broken, Connections
from connectors.web import WebServer, serve
from streams.errors import (
    BrokerUnavailable,
    Fatal,
    Invalid,
    Misconfigured,
    NotFound,
    NotOwner,
    NotPermitted,
    Overloaded,
    ProjectionBehind,
    Retriable,
    StreamsError,
)
from streams.log.position import Position
from streams.store.memory import MemoryStore
from tests.support.event_log import WORKSPACE, EventLog, in_partition, session_id
from tests.support.examples import made_up_id
from tests.support.owners import TOKEN, Finder, Owner, finder_of, run


@pytest.fixture
def owners() -> Iterator[list[Owner]]:
    owners = [Owner(), Owner()]
    yield owners
    for owner in owners:
        owner.server.stop()


@pytest.fixture
def logs() -> list[EventLog]:
    logs = [EventLog(partition) for partition in range(2)]
    for log in logs:
        label = 0
        for _ in range(5):
            label = in_partition(log.partition, 2, label + 1)
            log.say(log.create(label), 3)
    return logs


def sessions_of(*logs: EventLog) -> list[str]:
    return sorted({record.key.decode() for log in logs for record in log.records if record.key})


def test_reads_go_to_the_owner_and_listings_are_merged(owners: list[Owner], logs: list[EventLog]) -> None:
    for owner, log in zip(owners, logs, strict=True):
        owner.take(log)
    finder = finder_of(*owners)

    async def story(client: ProjectorOwners) -> None:
        for session in sessions_of(*logs):
            assert (await client.session(WORKSPACE, session)).sequence == 4
            page = await client.events(WORKSPACE, session, after=1, limit=2, max_bytes=1 << 20)
            assert (len(page.events), page.next_after, page.end_sequence) == (2, 3, 4)
        seen: list[str] = []
        cursor = None
        while True:
            listing = await client.sessions(WORKSPACE, cursor=cursor, limit=3)
            seen += [row.session_id for row in listing.sessions]
            cursor = listing.cursor
            if cursor is None:
                break
        assert sorted(seen) == sessions_of(*logs)
        assert (await client.sessions(WORKSPACE, subject_id=made_up_id("subj"))).sessions == ()
        with pytest.raises(NotFound):
            await client.session(made_up_id("ws", "other"), seen[0])
        with pytest.raises(NotFound):
            await client.session(WORKSPACE, seen[0], subject_id=made_up_id("subj"))
        with pytest.raises(NotFound):
            await client.events(WORKSPACE, seen[0], subject_id=made_up_id("subj"), after=0, limit=1, max_bytes=1)
        with pytest.raises(Invalid):
            await client.sessions(WORKSPACE, cursor="nonsense")
        with pytest.raises(Invalid):
            await client.sessions(WORKSPACE, position=Position("sessions.commands", 7, 1))
        with pytest.raises(Invalid):
            await client.events(WORKSPACE, seen[0], after=0, limit=0, max_bytes=1)

    run(finder, story)
    assert finder.looks == 1


def test_a_partition_that_moved_is_found_again(owners: list[Owner], logs: list[EventLog]) -> None:
    """The old owner says 421; the client asks the group and goes to the new one."""
    owners[0].take(logs[0])
    finder = finder_of(owners[0], owners[0])
    session = sessions_of(logs[0])[0]

    async def story(client: ProjectorOwners) -> None:
        await client.session(WORKSPACE, session)
        owners[0].tables.drop(0)
        owners[1].take(logs[0])
        finder.map = {0: owners[1].address}
        assert (await client.session(WORKSPACE, session)).sequence == 4
        assert finder.looks == 2

    run(finder, story)


def test_an_owner_that_died_is_found_again_and_meanwhile_the_budget_holds(owners: list[Owner], logs: list[EventLog]) -> None:
    owners[0].take(logs[0])
    owners[1].take(logs[0])
    finder = finder_of(owners[0])
    session = sessions_of(logs[0])[0]

    async def story(client: ProjectorOwners) -> None:
        loop = asyncio.get_running_loop()
        await client.session(WORKSPACE, session)
        await asyncio.to_thread(owners[0].server.stop)
        began = loop.time()
        with pytest.raises(NotOwner):
            await client.session(WORKSPACE, session, wait_s=0.5)
        assert 0.2 < loop.time() - began < 3
        waiting = asyncio.create_task(client.session(WORKSPACE, session, wait_s=10))
        await asyncio.sleep(0.3)
        finder.map = {0: owners[1].address}
        assert (await waiting).sequence == 4

    run(finder, story)


def test_a_hundred_readers_of_a_partition_without_owner_share_the_looks() -> None:
    finder = Finder()

    async def story(client: ProjectorOwners) -> None:
        results = await asyncio.gather(*(client.session(WORKSPACE, session_id(0), wait_s=0.3) for _ in range(100)), return_exceptions=True)
        assert {type(result) for result in results} == {NotOwner}

    run(finder, story)
    assert finder.looks < 40


def test_many_at_once_are_served_over_kept_connections(owners: list[Owner], logs: list[EventLog]) -> None:
    owners[0].take(logs[0])
    owners[0].take(logs[1])
    sessions = sessions_of(*logs)

    async def story(client: ProjectorOwners) -> None:
        for _ in range(3):
            rows = await asyncio.gather(*(client.session(WORKSPACE, sessions[number % len(sessions)]) for number in range(200)))
            assert [row.session_id for row in rows] == [sessions[number % len(sessions)] for number in range(200)]
        assert len(client._connections._idle[owners[0].address]) <= 200

    run(finder_of(owners[0], owners[0]), story)


def test_a_reader_that_gives_up_does_not_leave_its_answer_to_the_next(owners: list[Owner], logs: list[EventLog]) -> None:
    owners[0].take(logs[0])
    first, second = sessions_of(logs[0])[:2]

    async def story(client: ProjectorOwners) -> None:
        for _ in range(20):
            following = asyncio.create_task(client.events(WORKSPACE, first, after=4, limit=1, max_bytes=1, wait_ms=10_000))
            await asyncio.sleep(0.01)
            following.cancel()
            assert (await client.session(WORKSPACE, second)).session_id == second
        deadline = time.monotonic() + 5
        while owners[0].freshness._count and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert owners[0].freshness._count == 0, "who left does not count as waiting"

    run(finder_of(owners[0]), story)


def test_nobody_reads_without_the_installations_token(owners: list[Owner], logs: list[EventLog]) -> None:
    owners[0].take(logs[0])
    session = sessions_of(logs[0])[0]

    async def story(client: ProjectorOwners) -> None:
        with pytest.raises(NotPermitted):
            await client.session(WORKSPACE, session)

    run(finder_of(owners[0]), story, token="f" * 64)
    body = msgspec.msgpack.encode(SessionQuestion(WORKSPACE, session, None, 1.0))
    assert httpx.post(f"http://{owners[0].address}/internal/v1/session", content=body).status_code == 401


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("session", b""),
        ("session", b"\xc1"),
        ("session", msgspec.msgpack.encode({"workspace_id": 1})),
        ("session", b"x" * 70_000),
        ("events", msgspec.msgpack.encode([1, 2, 3])),
        ("applied", msgspec.msgpack.encode({"position": "nowhere", "wait_s": 1.0})),
        ("applied", msgspec.msgpack.encode({"position": "sessions.commands:99:1", "wait_s": 1.0})),
        ("sessions", msgspec.msgpack.encode({"workspace_id": "w", "partitions": [99]})),
    ],
)
def test_a_malformed_question_is_refused(owners: list[Owner], path: str, body: bytes) -> None:
    answer = httpx.post(f"http://{owners[0].address}/internal/v1/{path}", content=body, headers={"x-internal-token": TOKEN})
    assert answer.status_code == 400
    assert msgspec.msgpack.decode(answer.content)["code"].startswith("request.")


def test_operations_tell_state_without_a_token_and_nothing_of_sessions(owners: list[Owner], logs: list[EventLog]) -> None:
    owner = owners[0]
    owner.take(logs[0])
    base = f"http://{owner.address}"
    assert httpx.get(f"{base}/healthz").status_code == 200
    ready = httpx.get(f"{base}/readyz")
    assert ready.status_code == 200
    assert ready.json()["partitions"]["0"]["serving"] is True
    metrics = httpx.get(f"{base}/metrics").text
    assert 'session_streams_projector_serving{partition="0"} 1.0' in metrics
    for text in (ready.text, metrics):
        assert "sess_" not in text
    owner.tables.add(1, MemoryStore())
    assert httpx.get(f"{base}/readyz").status_code == 503
    owner.tables.drop(1)
    owner.joined = False
    assert httpx.get(f"{base}/readyz").status_code == 503
    assert httpx.get(f"{base}/other").status_code == 404
    assert httpx.get(f"{base}/internal/v1/session").status_code == 400


def test_a_broker_that_is_silent_is_not_a_session_that_is_missing(owners: list[Owner], logs: list[EventLog]) -> None:
    owners[0].take(logs[0])
    owners[0].ends.failure = BrokerUnavailable("silent")

    async def story(client: ProjectorOwners) -> None:
        with pytest.raises(BrokerUnavailable):
            await client.session(WORKSPACE, session_id(in_partition(0, 2, 1000)), wait_s=0.2)

    run(finder_of(owners[0]), story)


@pytest.mark.parametrize("kind", [NotOwner, NotFound, Invalid, NotPermitted, ProjectionBehind, Overloaded, BrokerUnavailable, Retriable])
def test_a_refusal_arrives_as_what_it_was(kind: type[StreamsError]) -> None:
    error = kind("why", retry_after_s=3.0) if issubclass(kind, Retriable) else kind("why")  # type: ignore[call-arg]
    status, said = refusal(error)
    again = refused(status, msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=type(said)))
    assert type(again) is kind
    assert (again.code, again.detail) == (error.code, "why")
    if isinstance(again, Retriable):
        assert again.retry_after_s == 3.0


@asynccontextmanager
async def listening(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """Something that is no owner, at an address."""
    done: list[asyncio.Task[None]] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done.append(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(OSError):
            await answer(reader, writer)
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await asyncio.gather(*done)


@pytest.mark.parametrize(
    "says",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", b"not http at all\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n"],
)
def test_an_owner_that_answers_nonsense_is_broken_not_believed(says: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says)

    async def story() -> None:
        async with listening(answer) as address:
            connections = Connections()
            with pytest.raises(Broken):
                await connections.post(address, "/x", b"", b"", 2)
            connections.close()

    asyncio.run(story())


def test_an_owner_that_hangs_costs_the_budget_and_no_more() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def story() -> None:
        async with listening(answer) as address:
            connections = Connections()
            began = asyncio.get_running_loop().time()
            with pytest.raises(Broken):
                await connections.post(address, "/x", b"", b"", 0.2)
            assert asyncio.get_running_loop().time() - began < 1
            connections.close()

    asyncio.run(story())


def test_the_first_of_many_processes_makes_the_token_and_all_have_it(tmp_path: Path) -> None:
    with ThreadPool(16) as pool:
        tokens = set(pool.map(lambda _: internal_token(tmp_path / "data"), range(64)))
    assert len(tokens) == 1
    path = tmp_path / "data" / "internal-token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["internal-token"]


@pytest.mark.parametrize(("content", "mode"), [("", 0o600), ("short", 0o600), ("0" * 64, 0o644)])
def test_a_token_that_cannot_be_trusted_is_refused(tmp_path: Path, content: str, mode: int) -> None:
    path = tmp_path / "internal-token"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(Misconfigured):
        internal_token(tmp_path)


def test_an_address_in_use_is_found_out_before_anything_starts(owners: list[Owner]) -> None:
    with pytest.raises(Misconfigured, match="cannot listen"):
        WebServer(owners[0].application, "127.0.0.1", owners[0].server.port, name="second")


def test_an_application_that_does_not_start_up_is_fatal() -> None:
    async def broken(scope: dict[str, str], receive: object, send: Callable[[dict[str, str]], Awaitable[None]]) -> None:
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(Fatal):
        WebServer(broken, "127.0.0.1", 0, name="broken").start()


def test_serving_ends_with_its_stop(owners: list[Owner]) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=serve, args=(owners[0].application, "127.0.0.1", 0, stop), kwargs={"name": "served"})
    thread.start()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
