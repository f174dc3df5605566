"""Runs, checkpoints and events by name, asked of owners over real sockets, without a broker."""

import asyncio
import time
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from connectors.owner.projector_owners import ProjectorOwners
from streams.errors import BrokerUnavailable, Invalid, NotFound, NotOwner
from streams.log.record import decode_event
from streams.projections.runs import RunRow
from streams.session.events import AttemptAttributes, CheckpointAttributes, RunAttributes
from tests.support.event_log import WORKSPACE, EventLog, in_partition
from tests.support.examples import made_up_id
from tests.support.owners import TOKEN, Finder, Owner, finder_of, run

DIGEST = "sha256:" + "d" * 64
CHECKPOINT = CheckpointAttributes(through_sequence=1, expires_at=1)


@pytest.fixture
def owners() -> Iterator[list[Owner]]:
    owners = [Owner(), Owner()]
    yield owners
    for owner in owners:
        owner.server.stop()


@pytest.fixture
def logs() -> list[EventLog]:
    """Two partitions, in each a session."""
    logs = [EventLog(partition) for partition in range(2)]
    for log in logs:
        log.create(in_partition(log.partition, 2))
    return logs


def session_in(log: EventLog) -> str:
    return made_up_id("sess", in_partition(log.partition, 2))


def accept(log: EventLog, label: object, lane: str = "l") -> str:
    run_id = made_up_id("run", label)
    log.command(session_in(log), [("run.accepted", RunAttributes(lane=lane))], run_id=run_id)
    return run_id


def claim(log: EventLog, run_id: str) -> None:
    attributes = AttemptAttributes(claim_digest=DIGEST)
    log.command(session_in(log), [("attempt.started", attributes), ("run.started", None)], run_id=run_id, attempt_generation=1)


def more(owner: Owner, log: EventLog, known: int) -> None:
    """What the log got behind its first `known` records."""
    del log.records[:known]
    owner.apply(log)


def ids(rows: tuple[RunRow, ...]) -> list[str]:
    return [row.run_id for row in rows]


def test_runs_of_all_owners_are_merged_and_a_claim_is_found_wherever_it_is(owners: list[Owner], logs: list[EventLog]) -> None:
    made = []
    for number in range(6):
        log = logs[number % 2]
        log._now = max(each._now for each in logs)
        made.append(accept(log, number))
    claim(logs[1], made[5])
    for owner, log in zip(owners, logs, strict=True):
        owner.take(log)

    async def story(client: ProjectorOwners) -> None:
        assert ids(await client.claimable(WORKSPACE, ["l", "other"])) == made[:5]
        assert ids(await client.claimable(WORKSPACE, ["l"], limit=2)) == made[:2]
        assert await client.claimable(WORKSPACE, ["other"]) == ()
        found = await client.claimed(WORKSPACE, DIGEST)
        assert found is not None
        assert found.run_id == made[5]
        assert await client.claimed(WORKSPACE, DIGEST[:-1] + "0") is None
        assert (await client.run(WORKSPACE, session_in(logs[1]), made[5])).attempt_status == "started"
        with pytest.raises(NotFound):
            await client.run(WORKSPACE, session_in(logs[0]), made[5])
        with pytest.raises(Invalid):
            await client.claimable(WORKSPACE, [])

    run(finder_of(*owners), story)


@pytest.mark.parametrize("together", [True, False])
def test_a_worker_that_waits_gets_a_run_of_any_owner(owners: list[Owner], logs: list[EventLog], together: bool) -> None:
    holders = [owners[0], owners[0]] if together else owners
    for owner, log in zip(holders, logs, strict=True):
        owner.take(log)

    async def story(client: ProjectorOwners) -> None:
        assert await client.claimable(WORKSPACE, ["l"], wait_ms=100) == ()
        for owner, log in zip(holders, logs, strict=True):
            waiting = asyncio.create_task(client.claimable(WORKSPACE, ["l"], wait_ms=30_000))
            await asyncio.sleep(0.1)
            known = len(log.records)
            run_id = accept(log, log.partition)
            more(owner, log, known)
            assert ids(await waiting) == [run_id]
            known = len(log.records)
            claim(log, run_id)
            more(owner, log, known)
        deadline = time.monotonic() + 5
        while any(owner.freshness._count for owner in owners) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert [owner.freshness._count for owner in owners] == [0, 0], "who has a Run waits nowhere any more"

    run(finder_of(*holders), story)


def test_an_owner_that_is_away_keeps_nobody_from_the_runs_of_others(owners: list[Owner], logs: list[EventLog]) -> None:
    run_id = accept(logs[0], "a")
    owners[0].take(logs[0])
    finder = finder_of(owners[0])

    async def story(client: ProjectorOwners) -> None:
        assert ids(await asyncio.wait_for(client.claimable(WORKSPACE, ["l"], wait_s=600), 60)) == [run_id]
        with pytest.raises(NotOwner):
            await client.claimable(WORKSPACE, ["other"], wait_s=0.3)
        with pytest.raises(NotOwner):
            await client.claimed(WORKSPACE, DIGEST, wait_s=0.3)

    run(finder, story)


def test_a_partition_that_moves_while_a_worker_waits_is_found_again(owners: list[Owner], logs: list[EventLog]) -> None:
    for log in logs:
        owners[0].take(log)
    finder = finder_of(owners[0], owners[0])

    async def story(client: ProjectorOwners) -> None:
        waiting = asyncio.create_task(client.claimable(WORKSPACE, ["l"], wait_ms=60_000))
        await asyncio.sleep(0.1)
        run_id = accept(logs[1], "moved")
        owners[1].take(logs[1])
        finder.map = {0: owners[0].address, 1: owners[1].address}
        owners[0].tables.drop(1)
        owners[0].freshness.gone([1])
        assert ids(await asyncio.wait_for(waiting, 40)) == [run_id], "whatever the other partition is still waited for"

    run(finder, story)


def test_a_claim_is_not_called_new_while_the_logs_end_is_unknown(owners: list[Owner], logs: list[EventLog]) -> None:
    for owner, log in zip(owners, logs, strict=True):
        owner.take(log)
    owners[1].ends.failure = BrokerUnavailable("silent")

    async def story(client: ProjectorOwners) -> None:
        with pytest.raises(BrokerUnavailable):
            await client.claimed(WORKSPACE, DIGEST, wait_s=0.3)

    run(finder_of(*owners), story)


def test_checkpoints_and_events_by_name_come_from_their_owner(owners: list[Owner], logs: list[EventLog]) -> None:
    session = session_in(logs[1])
    made = [made_up_id("ckpt", number) for number in range(5)]
    for checkpoint_id in made:
        logs[1].command(session, [("checkpoint.created", msgspec.structs.replace(CHECKPOINT, checkpoint_id=checkpoint_id))])
    name = decode_event(logs[1].records[3].value or b"").event_id
    for owner, log in zip(owners, logs, strict=True):
        owner.take(log)

    async def story(client: ProjectorOwners) -> None:
        page = await client.checkpoints(WORKSPACE, session, limit=3)
        rest = await client.checkpoints(WORKSPACE, session, cursor=page.cursor, limit=3)
        assert [row.checkpoint_id for row in (*page.checkpoints, *rest.checkpoints)] == made[::-1]
        assert rest.cursor is None
        assert (await client.checkpoint(WORKSPACE, session, made[2])).sequence == 4
        assert await client.event_named(WORKSPACE, session, name) == 4
        with pytest.raises(NotFound):
            await client.checkpoint(made_up_id("ws", "other"), session, made[2])
        with pytest.raises(NotFound):
            await client.event_named(made_up_id("ws", "other"), session, name)
        with pytest.raises(NotFound):
            await client.checkpoints(WORKSPACE, session, subject_id=made_up_id("subj"))
        with pytest.raises(Invalid):
            await client.checkpoints(WORKSPACE, session, cursor="nonsense")

    run(finder_of(*owners), story)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("run", b"\xc1"),
        ("checkpoints", msgspec.msgpack.encode({"workspace_id": 1})),
        ("claimable", {"lanes": ("l",) * 17, "partitions": (0,), "limit": 1, "follow_s": 0.0}),
        ("claimable", {"lanes": ("l",), "partitions": (), "limit": 1, "follow_s": 0.0}),
        ("claimable", {"lanes": ("l",), "partitions": (99,), "limit": 1, "follow_s": 0.0}),
        ("claimable", {"lanes": ("l",), "partitions": (0,), "limit": 0, "follow_s": 0.0}),
        ("claimed", {"claim_digest": DIGEST, "partitions": (-1,)}),
        ("claimed", {"claim_digest": DIGEST, "partitions": ()}),
    ],
)
def test_a_malformed_question_is_refused(owners: list[Owner], path: str, body: bytes | dict[str, object]) -> None:
    sent = (
        body if isinstance(body, bytes) else msgspec.msgpack.encode({"workspace_id": WORKSPACE, "subject_id": None, "wait_s": 1.0, **body})
    )
    answer = httpx.post(f"http://{owners[0].address}/internal/v1/{path}", content=sent, headers={"x-internal-token": TOKEN})
    assert answer.status_code == 400
    assert msgspec.msgpack.decode(answer.content)["code"].startswith("request.")


def test_who_asks_while_nobody_knows_the_owners_is_told_so_or_served_once_they_are_known(owners: list[Owner], logs: list[EventLog]) -> None:
    for owner, log in zip(owners, logs, strict=True):
        owner.take(log)

    class Silent(Finder):
        def owners(self, timeout_s: float = 5) -> dict[int, str]:
            found = super().owners(timeout_s)
            if not found:
                raise BrokerUnavailable("silent")
            return found

    finder = Silent()

    async def story(client: ProjectorOwners) -> None:
        with pytest.raises(BrokerUnavailable):
            await client.claimed(WORKSPACE, DIGEST, wait_s=0.2)
        waiting = asyncio.create_task(client.claimed(WORKSPACE, DIGEST, wait_s=30))
        await asyncio.sleep(0.1)
        finder.map = finder_of(*owners).map
        assert await waiting is None

    run(finder, story)


def test_waiting_workers_share_the_looks_for_owners_that_are_not_there() -> None:
    finder = Finder()

    async def story(client: ProjectorOwners) -> None:
        results = await asyncio.gather(*(client.claimable(WORKSPACE, ["l"], wait_s=0.3) for _ in range(50)), return_exceptions=True)
        assert {type(result) for result in results} == {NotOwner}

    run(finder, story)
    assert finder.looks < 60
