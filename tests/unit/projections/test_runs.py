"""The tables of Runs and checkpoints: what stands in them, where Runs are found, and that only events decide it."""

import random
from collections.abc import Iterable, Mapping

import pytest
from msgspec import structs

from streams.log.reader import Record
from streams.projections import checkpoints, runs
from streams.projections.fold import Fold
from streams.projections.runs import LEAVING_AT_ONCE, RunRow, decode_run, lane_name, run_key
from streams.projections.sessions import Lineage, decode_row, row_key
from streams.projections.tables import OwnedTable, Tables
from streams.session.commands import Kind
from streams.session.events import CheckpointAttributes, RunAttributes, SessionAttributes, WaitAttributes
from streams.session.outcomes import Grant
from streams.store.memory import MemoryStore
from streams.store.table import Put
from tests.support.event_log import EventLog
from tests.support.examples import made_up_id
from tests.support.graphs import records
from tests.support.story import NOON, SECOND, SESSION, SUBJECT, WORKER, WORKSPACE, Story, part

RUN = made_up_id("run")
LANE = "build/linux"


def table() -> OwnedTable:
    return Tables(10).add(0, MemoryStore())


class Watched(MemoryStore):
    """Remembers which keys were written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, puts: Iterable[Put], offsets: Mapping[str, int]) -> None:
        taken = list(puts)
        self.written += [key for key, _ in taken]
        super().write(taken, offsets)


def applied(told: Story) -> OwnedTable:
    owned = table()
    Fold().apply(owned, records(told.events))
    return owned


def row_of(owned: OwnedTable, run_id: str = RUN, session_id: str = SESSION) -> RunRow:
    return decode_run(owned.store.get(run_key(session_id, run_id)) or b"")


def found(owned: OwnedTable, lane: str = LANE, subject_id: str | None = None) -> list[bytes]:
    """Keys of rows of the Runs that wait in the lane."""
    prefix = runs.lane_prefix(WORKSPACE, subject_id, lane)
    with owned.store.scan(prefix) as rows:
        return [runs.waiting_at(prefix, key)[1] for key, _ in rows]


def held(owned: OwnedTable, digest: str) -> list[bytes]:
    prefix = runs.claim_prefix(WORKSPACE, digest)
    with owned.store.scan(prefix) as rows:
        return [runs.held_at(prefix, key) for key, _ in rows]


def entries(owned: OwnedTable) -> list[bytes]:
    """Every key beside the rows themselves."""
    keys = []
    for prefix in (b"q/", b"p/", b"g/", b"i/", b"w/"):
        with owned.store.scan(prefix) as rows:
            keys += [key for key, _ in rows]
    return keys


def with_run(**attributes: object) -> Story:
    return Story().created().with_run(lane=LANE, **attributes)


def end_attempt(told: Story, grant: Grant, event_type: str = "attempt.failed") -> None:
    told.tell(part(event_type, run_id=RUN), by=WORKER, report=told.report(grant))


def test_a_run_is_found_in_its_lane_until_it_is_claimed_and_then_under_its_claim() -> None:
    told = with_run()
    owned = applied(told)
    assert found(owned) == [run_key(SESSION, RUN)]
    assert found(owned, "build") == found(owned, "build/linux/arm") == []
    told.claim()
    owned = applied(told)
    assert found(owned) == []
    digest = row_of(owned).claim_digest or ""
    assert held(owned, digest) == [run_key(SESSION, RUN)]
    assert held(owned, digest[:-1]) == []
    told.tell(part("run.completed", RunAttributes(outcome="done"), run_id=RUN), by=WORKER, report=told.report(granted(told)))
    owned = applied(told)
    assert entries(owned) == []
    assert (row_of(owned).status, row_of(owned).outcome) == ("completed", "done")


def granted(told: Story) -> Grant:
    attempt = told.attempt()
    return Grant(RUN, attempt.generation, attempt.native_task_id, attempt.lease_expires_at or 0, told.run().sequence)


def test_a_row_tells_of_the_run_and_of_the_attempt_as_it_was_granted() -> None:
    told = with_run(harness="made-up", harness_revision="7", environment_revision="9")
    accepted = told.events[-1]
    grant = told.claim(lease_ms=60_000)
    row = row_of(applied(told))
    assert (row.run_id, row.session_id, row.workspace_id, row.lane, row.origin, row.claimable) == (
        RUN, SESSION, WORKSPACE, LANE, "live", True,
    )  # fmt: skip
    assert (row.harness, row.harness_revision, row.environment_revision) == ("made-up", "7", "9")
    assert (row.accepted_at, row.accepted_sequence) == (accepted.accepted_at, accepted.sequence)
    assert (row.status, row.generation, row.attempt_status, row.was_ready) == ("running", 1, "started", False)
    assert (row.principal_id, row.native_task_id, row.lease_ms) == (WORKER, grant.native_task_id, 60_000)
    assert row.lease_expires_at == grant.lease_expires_at
    assert row.moved_sequence == told.events[-1].sequence


def test_an_attempt_that_is_over_and_never_was_ready_gives_its_run_back() -> None:
    told = with_run()
    grant = told.claim()
    end_attempt(told, grant)
    owned = applied(told)
    assert found(owned) == [run_key(SESSION, RUN)]
    assert held(owned, row_of(owned).claim_digest or "") == []
    told.claim(label="2")
    owned = applied(told)
    assert found(owned) == []
    assert row_of(owned).generation == 2


def test_a_run_whose_attempt_was_ready_is_offered_to_nobody() -> None:
    told = with_run()
    grant = told.claim()
    told.tell(part("attempt.ready", run_id=RUN), by=WORKER, report=told.report(grant))
    assert row_of(applied(told)).was_ready
    end_attempt(told, grant)
    owned = applied(told)
    assert (row_of(owned).attempt_status, row_of(owned).was_ready) == ("failed", True)
    assert entries(owned) == []


def test_a_waiting_run_stays_with_its_attempt() -> None:
    told = with_run()
    grant = told.claim()
    wait = WaitAttributes(wait_id=made_up_id("wait"), kind="human")
    told.tell(part("wait.opened", wait, run_id=RUN), by=WORKER, report=told.report(grant))
    owned = applied(told)
    assert row_of(owned).status == "waiting"
    assert found(owned) == []
    assert held(owned, row_of(owned).claim_digest or "") == [run_key(SESSION, RUN)]


@pytest.mark.parametrize("attributes", [{"claimable": False, "lane": LANE}, {"lane": None}])
def test_a_run_that_nobody_may_claim_by_lane_is_in_no_lane(attributes: dict[str, object]) -> None:
    owned = applied(Story().created().with_run(**attributes))
    assert entries(owned) == []
    assert row_of(owned).status == "accepted"


def test_an_imported_run_has_a_row_and_is_claimed_by_nobody() -> None:
    owned = applied(Story().created(origin="imported").with_imported_run())
    assert (row_of(owned).origin, row_of(owned).claimable) == ("imported", False)
    assert entries(owned) == []


def test_the_oldest_run_of_a_lane_comes_first_and_a_subject_has_a_lane_of_its_own() -> None:
    log = EventLog()
    made = []
    for number in range(20):
        session = log.create(number, subject_id=SUBJECT if number % 4 == 0 else None)
        subject_id = SUBJECT if number % 4 == 0 else None
        log.command(session, [("run.accepted", RunAttributes(lane=LANE))], run_id=made_up_id("run", number), subject_id=subject_id)
        made.append(run_key(session, made_up_id("run", number)))
    owned = table()
    Fold().apply(owned, log.records)
    assert found(owned) == made
    assert found(owned, subject_id=SUBJECT) == made[::4]


def test_messages_of_a_run_write_nothing_but_the_transcript_and_the_session() -> None:
    log = EventLog()
    session = log.create("a")
    log.command(session, [("run.accepted", RunAttributes(lane=LANE))], run_id=RUN)
    store = Watched()
    owned = Tables(10).add(0, store)
    Fold().apply(owned, log.records)
    assert run_key(session, RUN) in store.written
    log.records.clear()
    log.say(session, 3, run_id=RUN)
    store.written.clear()
    Fold().apply(owned, log.records)
    assert {key[:2] for key in store.written} == {b"s/", b"e/"}


def test_who_waits_for_a_lane_is_told_of_its_new_runs_and_of_nothing_else() -> None:
    told = with_run()
    events = records(told.events)
    owned = table()
    assert Fold().apply(owned, events).awaited == {SESSION, lane_name(WORKSPACE, LANE)}
    grant = told.claim()
    more = records(told.events)[len(events) :]
    assert Fold().apply(owned, more).awaited == {SESSION}
    end_attempt(told, grant)
    last = records(told.events)[len(events) + len(more) :]
    assert Fold().apply(owned, last).awaited == {SESSION, lane_name(WORKSPACE, LANE)}


# -- closing ----------------------------------------------------------------------------------------------------------


def closing(runs_count: int, others: int) -> EventLog:
    """A session with open Runs closes, and another one goes on."""
    log = EventLog()
    session, other = log.create("closing"), log.create("other")
    for number in range(runs_count):
        run = made_up_id("run", number)
        log.command(session, [("run.accepted", RunAttributes(lane=LANE))], run_id=run)
    log.command(other, [("run.accepted", RunAttributes(lane=LANE))], run_id=made_up_id("run", "other"))
    log.close(session)
    for _ in range(others):
        log.say(other)
    return log


def test_a_closed_session_takes_its_runs_out_so_many_an_event_until_none_is_left() -> None:
    count = 5 * LEAVING_AT_ONCE + 3
    log, owned = closing(count, 6), table()
    until_closed = len(log.records) - 6
    Fold().apply(owned, log.records[:until_closed])
    assert len(found(owned)) == count + 1 - LEAVING_AT_ONCE
    for taken in range(2, 6):
        Fold().apply(owned, [log.records[until_closed + taken - 2]])
        assert len(found(owned)) == count + 1 - taken * LEAVING_AT_ONCE
    Fold().apply(owned, log.records[-2:])
    assert len(found(owned)) == 1
    assert [key[:2] for key in entries(owned)] == [b"q/", b"i/"]


def test_sessions_that_close_one_after_the_other_all_leave() -> None:
    log = EventLog()
    for label in range(6):
        session = log.create(label)
        for number in range(LEAVING_AT_ONCE + 5):
            log.command(session, [("run.accepted", RunAttributes(lane=LANE))], run_id=made_up_id("run", f"{label} {number}"))
    sessions = [record.key.decode() for record in log.records if record.key]
    for session in dict.fromkeys(sessions):
        log.close(session)
    other = log.create("other")
    log.say(other, 10)
    owned = table()
    Fold().apply(owned, log.records)
    assert entries(owned) == []


def test_a_claim_that_lived_when_its_session_closed_is_forgotten() -> None:
    told = with_run()
    told.claim()
    told.tell(part("session.closed"))
    assert entries(applied(told)) == []


# -- checkpoints and forks --------------------------------------------------------------------------------------------


def checkpoint(number: int, **more: object) -> CheckpointAttributes:
    attributes = CheckpointAttributes(
        checkpoint_id=made_up_id("ckpt", number), through_sequence=number + 1, through_event_id=made_up_id("evt", number),
        through_hash="ab" * 32, harness="made-up", harness_revision="7", continuation_kind="event_log_rebuild", expires_at=NOON,
        snapshot_kind="stored", snapshot_id=made_up_id("snap", number), snapshot_bytes=7, snapshot_digest="sha256:" + "1" * 64,
    )  # fmt: skip
    return structs.replace(attributes, **more)


def test_a_checkpoint_is_found_by_its_id_and_in_the_order_of_its_session() -> None:
    log, owned = EventLog(), table()
    session, other = log.create("a"), log.create("b")
    for number in range(5):
        log.command(session if number % 2 == 0 else other, [("checkpoint.created", checkpoint(number))], run_id=RUN, attempt_generation=3)
        log.command(session, [("checkpoint.consumed", checkpoint(number))], run_id=RUN)
    Fold().apply(owned, log.records)
    row = checkpoints.decode_checkpoint(owned.store.get(checkpoints.checkpoint_key(session, made_up_id("ckpt", 2))) or b"")
    created = [record for record in log.records if record.key == session.encode()]
    assert row.sequence == 5
    assert (row.checkpoint_id, row.session_id, row.origin_session_id, row.fork_id) == (made_up_id("ckpt", 2), session, session, None)
    assert (row.run_id, row.generation, row.through_sequence, row.expires_at) == (RUN, 3, 3, NOON)
    assert (row.snapshot_id, row.snapshot_bytes, row.native_id) == (made_up_id("snap", 2), 7, None)
    assert row.created_at == NOON + 1000 * log.records.index(created[4])
    assert owned.store.get(checkpoints.checkpoint_key(other, made_up_id("ckpt", 2))) is None
    with owned.store.scan(checkpoints.checkpoints_prefix(session), reverse=True) as rows:
        listed = [checkpoints.decode_checkpoint(value).checkpoint_id for _, value in rows]
    assert listed == [made_up_id("ckpt", number) for number in (4, 2, 0)]


def test_a_fork_tells_of_its_lineage_and_lists_the_checkpoint_that_came_along() -> None:
    log, owned = EventLog(), table()
    source, child = made_up_id("sess", "source"), made_up_id("sess", "child")
    fork_id = made_up_id("fork")
    created = SessionAttributes(
        origin="live", policy_mode="standard", content_window_days=30, checkpoint_window_s=86_400, fork_id=fork_id,
        source_session_id=source, checkpoint_id=made_up_id("ckpt", 0), through_sequence=9, through_event_id=made_up_id("evt"),
        source_hash="cd" * 32, depth=2,
    )  # fmt: skip
    brought = checkpoint(0, origin_session_id=source, fork_id=fork_id)
    log.command(child, [("session.created", created), ("checkpoint.created", brought)])
    plain = log.create("plain")
    Fold().apply(owned, log.records)
    row = decode_row(owned.store.get(row_key(child)) or b"")
    assert row.lineage == Lineage(source, fork_id, 9, made_up_id("evt"), "cd" * 32, 2, made_up_id("ckpt", 0))
    assert row.checkpoint_window_s == 86_400
    assert decode_row(owned.store.get(row_key(plain)) or b"").lineage is None
    known = checkpoints.decode_checkpoint(owned.store.get(checkpoints.checkpoint_key(child, made_up_id("ckpt", 0))) or b"")
    assert (known.origin_session_id, known.fork_id, known.sequence, known.run_id) == (source, fork_id, 2, None)


# -- the same rows whatever the batches -------------------------------------------------------------------------------


def lives(seed: int) -> list[Record]:
    """Sessions whose Runs are claimed, fail, wait, end, and that close at last, interleaved in one partition."""
    chance = random.Random(seed)
    stories = [Story(session_id=made_up_id("sess", f"{seed} {number}")).created() for number in range(6)]
    for told in stories:
        made = [made_up_id("run", f"{told.session_id} {number}") for number in range(30)]
        for step in range(120):
            told.now += chance.randint(0, 20) * SECOND
            run_id = chance.choice(made)
            _live(told, run_id, chance, step)
        if chance.random() < 0.7:
            told.tell(part("session.closed"))
    queues = [list(told.events) for told in stories]
    mixed = []
    while any(queues):
        mixed.append(chance.choice([queue for queue in queues if queue]).pop(0))
    last = Story(session_id=made_up_id("sess", "last")).created()
    for _ in range(12):
        last.tell(part("message.appended"))
    return records([*mixed, *last.events])


def _live(told: Story, run_id: str, chance: random.Random, step: int) -> None:
    known = told.items.get("run", run_id)
    if known is None:
        told.with_run(run_id, lane=chance.choice([LANE, "other"]))
        return
    attempt = told.items.get("attempt", run_id)
    if attempt is None or chance.random() < 0.3:
        told.decide(told.command(told.claim_parts(str(step), run_id), kind=Kind.CLAIM, by=WORKER, lease_ms=30_000))
        return
    grant = Grant(run_id, attempt.generation, attempt.native_task_id, 0, 0)  # type: ignore[union-attr]
    kind = chance.choice(["attempt.ready", "attempt.failed", "message.appended", "wait.opened", "run.completed", "run.cancelled"])
    attributes = WaitAttributes(wait_id=made_up_id("wait", f"{told.session_id} {step}"), kind="human") if kind == "wait.opened" else None
    told.decide(told.command(part(kind, attributes, run_id=run_id), by=WORKER, report=told.report(grant)))


def judged(owned: OwnedTable) -> set[bytes]:
    """Keys of the Runs that may be claimed, by every row and its session's."""
    waiting = set()
    with owned.store.scan(b"r/") as rows:
        for key, value in rows:
            row = decode_run(value)
            session = decode_row(owned.store.get(row_key(row.session_id)) or b"")
            if row.may_be_claimed and session.status == "open":
                waiting.add(key)
    return waiting


@pytest.mark.parametrize("seed", range(6))
def test_the_table_is_the_same_wherever_the_batches_are_cut(seed: int) -> None:
    log = lives(seed)
    whole = table()
    Fold().apply(whole, log)
    assert {*found(whole), *found(whole, "other")} == judged(whole)
    chance = random.Random(seed)
    for most in (1, 3, 40, 300):
        owned, rest = table(), log
        while rest:
            size = chance.randint(1, most)
            Fold().apply(owned, rest[:size])
            rest = rest[size:]
        assert owned.store.digest() == whole.store.digest()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_runs_that_leave_do_so_alike_wherever_the_batches_are_cut(cut: int) -> None:
    log = closing(3 * LEAVING_AT_ONCE + 1, 5).records
    digests = set()
    for first in (0, len(log) - cut, cut):
        owned = table()
        for batch in (log[:first], log[first : first + cut], log[first + cut :]):
            if batch:
                Fold().apply(owned, batch)
        digests.add(owned.store.digest())
    assert len(digests) == 1
