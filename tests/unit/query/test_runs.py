"""Questions about Runs, checkpoints and single events to tables in memory, and what waiting for a Run comes to."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from streams.errors import Invalid, NotFound, NotOwner, Overloaded, ProjectionBehind, StoreUnusable
from streams.log.record import decode_event
from streams.projections.fold import Fold
from streams.projections.runs import LEAVING_AT_ONCE
from streams.projections.tables import Tables
from streams.query import queries
from streams.query.freshness import Freshness
from streams.query.queries import ReadModel
from streams.query.reads import Reads
from streams.session.events import AttemptAttributes, CheckpointAttributes, RunAttributes
from streams.settings import Settings
from streams.store.memory import MemoryStore
from streams.store.table import Pair
from tests.support.event_log import WORKSPACE, EventLog, in_partition
from tests.support.examples import made_up_id

EVENTS, COMMANDS = "p.sessions.events", "p.sessions.commands"
SETTINGS = Settings(topic_prefix="p.", partitions=2)
BOTH = (0, 1)
SUBJECT, OTHER_SUBJECT, OTHER_WORKSPACE = made_up_id("subj", 1), made_up_id("subj", 2), made_up_id("ws", "other")
DIGEST = "sha256:" + "d" * 64


class Counting(MemoryStore):
    """Counts the rows that readers take."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    @contextmanager
    def scan(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Iterator[Pair]]:
        with super().scan(prefix, start=start, reverse=reverse) as pairs:
            yield self._counted(pairs)

    def _counted(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            self.taken += 1
            yield pair


class Rig:
    """Two partitions, what the broker says of their ends, and the reads of their owner."""

    def __init__(self) -> None:
        self.tables = Tables(60)
        self.logs = [EventLog(partition) for partition in BOTH]
        self.asked: list[tuple[str, int]] = []
        self.freshness = Freshness(SETTINGS, self.tables, self)
        self.model = ReadModel(self.tables, len(BOTH))
        self.reads = Reads(self.model, self.freshness)
        self.stores = [Counting() for _ in BOTH]
        self._label = 0
        for partition, store in zip(BOTH, self.stores, strict=True):
            table = self.tables.add(partition, store)
            table.answered(self.tables._clock(), 0)
            table.reached(0)

    def query(self, places: list[tuple[str, int]], *, committed: bool, timeout_s: float = 5) -> dict[tuple[str, int], int]:
        if not committed:
            self.asked += places
        return {place: self.logs[place[1]].end if place[0] == EVENTS else self.logs[place[1]].commands for place in places}

    def create(self, partition: int = 0, subject_id: str | None = None) -> str:
        self._label = in_partition(partition, len(BOTH), self._label + 1)
        return self.logs[partition].create(self._label, subject_id=subject_id)

    def accept(self, session: str, label: object, lane: str = "l", subject_id: str | None = None) -> str:
        run_id = made_up_id("run", label)
        log = self.logs[self.model.partition(session)]
        log.command(session, [("run.accepted", RunAttributes(lane=lane))], run_id=run_id, subject_id=subject_id)
        return run_id

    def claim(self, session: str, run_id: str, digest: str = DIGEST) -> None:
        attributes = AttemptAttributes(claim_digest=digest, principal_id=made_up_id("key"))
        log = self.logs[self.model.partition(session)]
        log.command(session, [("attempt.started", attributes), ("run.started", None)], run_id=run_id, attempt_generation=1)

    def checkpoint(self, session: str, label: object) -> str:
        checkpoint_id = made_up_id("ckpt", label)
        attributes = CheckpointAttributes(checkpoint_id=checkpoint_id, through_sequence=1, expires_at=1)
        self.logs[self.model.partition(session)].command(session, [("checkpoint.created", attributes)])
        return checkpoint_id

    def apply(self) -> None:
        for log in self.logs:
            if log.records:
                table = self.tables.owned[log.partition]
                applied = Fold().apply(table, log.records)
                log.records.clear()
                table.reached(log.end)
                self.freshness.advanced(table, applied.awaited)

    def apply_in(self, seconds: float) -> None:
        threading.Timer(seconds, self.apply).start()


def run(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def told() -> None:
        rig = Rig()
        rig.freshness.bind(asyncio.get_running_loop())
        await story(rig)
        assert rig.freshness._count == 0
        assert all((waiters.count, waiters.names) == (0, {}) for waiters in rig.freshness._waiting)

    asyncio.run(told())


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoints_are_paged_from_the_newest_on_and_a_cursor_stays_good() -> None:
    rig = Rig()
    session = rig.create()
    made = [rig.checkpoint(session, label) for label in range(7)]
    rig.apply()
    first = rig.model.checkpoints(WORKSPACE, session, cursor=None, limit=3)
    made.append(rig.checkpoint(session, "later"))
    rig.apply()
    seen = [row.checkpoint_id for row in first.checkpoints]
    cursor = first.cursor
    while cursor is not None:
        page = rig.model.checkpoints(WORKSPACE, session, cursor=cursor, limit=3)
        seen += [row.checkpoint_id for row in page.checkpoints]
        cursor = page.cursor
    assert seen == made[6::-1]
    assert rig.model.checkpoints(WORKSPACE, session, cursor=None, limit=8).cursor is None
    assert rig.model.checkpoint(WORKSPACE, session, made[3]).checkpoint_id == made[3]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.0", "٣", "9" * 30])
def test_a_cursor_that_is_none_of_ours_is_refused(cursor: str) -> None:
    rig = Rig()
    session = rig.create()
    rig.apply()
    with pytest.raises(Invalid):
        rig.model.checkpoints(WORKSPACE, session, cursor=cursor, limit=3)


def test_a_page_of_checkpoints_reads_as_many_rows_whatever_other_sessions_have() -> None:
    rig = Rig()
    session = rig.create()
    for label in range(10):
        rig.checkpoint(session, label)
    taken = []
    for more in (10, 1000):
        other = rig.create()
        for label in range(more):
            rig.checkpoint(other, f"other {more} {label}")
        rig.apply()
        rig.stores[0].taken = 0
        rig.model.checkpoints(WORKSPACE, session, cursor=None, limit=5)
        rig.model.checkpoint(WORKSPACE, session, made_up_id("ckpt", 3))
        taken.append(rig.stores[0].taken)
    assert taken == [6, 6]


def test_what_belongs_to_others_is_not_found_in_the_words_for_what_is_not_there() -> None:
    rig = Rig()
    session = rig.create(subject_id=SUBJECT)
    known, checkpoint = rig.accept(session, "a"), rig.checkpoint(session, "a")
    rig.apply()
    label = in_partition(0, 2, 10_000)
    absent = made_up_id("sess", label)
    ask = [
        partial(rig.model.checkpoints, cursor=None, limit=3),
        lambda *named: rig.model.checkpoint(named[0], named[1], checkpoint, *named[2:]),
        lambda *named: rig.model.run(named[0], named[1], known, *named[2:]),
        lambda *named: rig.model.named_event(named[0], named[1], made_up_id("evt"), *named[2:]),
    ]
    texts = set()
    for named in ((OTHER_WORKSPACE, session), (WORKSPACE, absent), (WORKSPACE, session, OTHER_SUBJECT)):
        for question in ask:
            with pytest.raises(NotFound) as raised:
                question(*named)
            texts.add((raised.value.code, raised.value.detail.replace(named[1], "")))
    assert len(texts) == 1
    assert rig.model.run(WORKSPACE, session, known, SUBJECT).run_id == known
    with pytest.raises(NotFound, match="has no run"):
        rig.model.run(WORKSPACE, session, made_up_id("run", "none"))
    with pytest.raises(NotFound, match="has no checkpoint"):
        rig.model.checkpoint(WORKSPACE, session, made_up_id("ckpt", "none"))


@pytest.mark.parametrize("torn", BOTH)
def test_a_table_that_cannot_be_read_is_rebuilt_and_not_another(torn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*arguments: object, **more: object) -> Any:
        raise StoreUnusable("torn: a row")

    rig = Rig()
    for partition in BOTH:
        rig.accept(rig.create(partition), partition)
    rig.apply()
    listing = partial(rig.model.sessions, WORKSPACE, None, partitions=BOTH, cursor=None, limit=5)
    lane = partial(rig.model.claimable, WORKSPACE, ["l"], None, partitions=BOTH, limit=5)
    for question, method in ((listing, "get"), (listing, "scan"), (lane, "get_many"), (lane, "scan")):
        with monkeypatch.context() as patch:
            patch.setattr(rig.stores[torn], method, damaged)
            with pytest.raises(ProjectionBehind):
                question()
        assert [rig.tables.owned[partition].damaged for partition in BOTH] == [partition == torn for partition in BOTH]
        rig.tables.owned[torn].damaged = False


def test_of_a_lane_no_more_rows_are_read_than_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, keys = Rig(), []
    for number in range(40):
        rig.accept(rig.create(number % 2), number)
    rig.apply()
    for store in rig.stores:
        get_many = store.get_many

        def counted(asked: Iterable[bytes], get_many: Callable[[Iterable[bytes]], list[bytes | None]] = get_many) -> list[bytes | None]:
            asked = list(asked)
            keys.extend(asked)
            return get_many(asked)

        monkeypatch.setattr(store, "get_many", counted)
    found = rig.model.claimable(WORKSPACE, ["l"], None, partitions=BOTH, limit=6)
    assert {row.run_id for row in found} == {made_up_id("run", number) for number in range(6)}
    assert len(keys) == 2 * 6, "a row and its session each"
    assert sum(store.taken for store in rig.stores) <= 6 + 2


# -- lanes and claims -------------------------------------------------------------------------------------------------


def test_runs_of_all_partitions_and_lanes_come_oldest_first() -> None:
    rig = Rig()
    made = []
    for number in range(12):
        session = rig.create(number % 2)
        for log in rig.logs:
            log._now = max(each._now for each in rig.logs)
        made.append(rig.accept(session, number, lane="ab"[number % 3 == 0]))
    rig.apply()
    ask = partial(rig.model.claimable, WORKSPACE, subject_id=None, partitions=BOTH)
    assert [row.run_id for row in ask(["a", "b"], limit=20)] == made
    assert [row.run_id for row in ask(["b"], limit=2)] == made[:4:3]
    assert ask(["c"], limit=2) == ()
    assert rig.model.claimable(OTHER_WORKSPACE, ["a", "b"], None, partitions=BOTH, limit=9) == ()
    assert {row.run_id for row in rig.model.claimable(WORKSPACE, ["a", "b"], None, partitions=(1,), limit=20)} == set(made[1::2])


def test_a_worker_of_one_subject_is_offered_the_runs_of_that_subject_only() -> None:
    rig = Rig()
    hers, his = rig.create(subject_id=SUBJECT), rig.create(subject_id=OTHER_SUBJECT)
    for number in range(3):
        rig.accept(his, f"his {number}", subject_id=OTHER_SUBJECT)
    known = rig.accept(hers, "hers", subject_id=SUBJECT)
    rig.claim(his, made_up_id("run", "his 1"))
    rig.apply()
    assert [row.run_id for row in rig.model.claimable(WORKSPACE, ["l"], SUBJECT, partitions=BOTH, limit=9)] == [known]
    assert rig.model.claimed(WORKSPACE, DIGEST, SUBJECT, partitions=BOTH) == ()
    assert len(rig.model.claimed(WORKSPACE, DIGEST, OTHER_SUBJECT, partitions=BOTH)) == 1


def test_runs_of_a_closed_session_are_offered_to_nobody_while_they_still_leave() -> None:
    rig = Rig()
    closed, other = rig.create(), rig.create()
    for number in range(3 * LEAVING_AT_ONCE):
        rig.accept(closed, number)
    known = rig.accept(other, "other")
    rig.logs[0].close(closed)
    rig.apply()
    assert [row.run_id for row in rig.model.claimable(WORKSPACE, ["l"], None, partitions=BOTH, limit=2)] == [known]


def test_a_claim_is_found_again_while_its_attempt_lives() -> None:
    rig = Rig()
    session = rig.create(1)
    run_id = rig.accept(session, "a")
    rig.claim(session, run_id)
    rig.apply()
    assert [row.run_id for row in rig.model.claimed(WORKSPACE, DIGEST, None, partitions=BOTH)] == [run_id]
    assert rig.model.claimed(OTHER_WORKSPACE, DIGEST, None, partitions=BOTH) == ()
    assert rig.model.claimed(WORKSPACE, DIGEST[:-1], None, partitions=BOTH) == ()
    rig.logs[1].close(session)
    rig.apply()
    assert rig.model.claimed(WORKSPACE, DIGEST, None, partitions=BOTH) == ()


def test_a_claim_that_is_in_the_log_already_is_found_and_a_table_behind_it_does_not_say_that_there_is_none() -> None:
    async def story(rig: Rig) -> None:
        session = rig.create(1)
        run_id = rig.accept(session, "a")
        rig.apply()
        rig.claim(session, run_id)
        with pytest.raises(ProjectionBehind):
            await rig.reads.claimed(WORKSPACE, DIGEST, None, partitions=BOTH, wait_s=0.05)
        rig.asked.clear()
        rig.apply_in(0.05)
        assert [row.run_id for row in await rig.reads.claimed(WORKSPACE, DIGEST, None, partitions=BOTH, wait_s=5)] == [run_id]
        assert rig.asked[:2] == [(EVENTS, 0), (EVENTS, 1)]

    run(story)


def test_who_waits_for_a_lane_gets_its_next_run_at_once_and_nothing_when_none_comes() -> None:
    async def story(rig: Rig) -> None:
        sessions = [rig.create(partition) for partition in BOTH]
        rig.apply()

        async def follow(seconds: float) -> list[str]:
            rows = await rig.reads.claimable(WORKSPACE, ("l", "m"), None, partitions=BOTH, limit=5, follow_s=seconds, wait_s=5)
            return [row.run_id for row in rows]

        assert await follow(0.05) == []
        for partition, lane in zip(BOTH, ("l", "m"), strict=True):
            waiting = asyncio.create_task(follow(30))
            await asyncio.sleep(0.02)
            rig.accept(sessions[partition], "elsewhere", lane="n")
            rig.logs[1 - partition].say(sessions[1 - partition])
            rig.apply()
            await asyncio.sleep(0.02)
            assert not waiting.done()
            run_id = rig.accept(sessions[partition], lane, lane=lane)
            rig.apply_in(0.02)
            assert await asyncio.wait_for(waiting, 20) == [run_id]
            rig.claim(sessions[partition], run_id)
            rig.apply()

    run(story)


def test_who_waits_for_a_lane_hears_when_one_of_the_partitions_goes() -> None:
    async def story(rig: Rig) -> None:
        waiting = asyncio.create_task(rig.reads.claimable(WORKSPACE, ("l",), None, partitions=BOTH, limit=1, follow_s=30, wait_s=5))
        await asyncio.sleep(0.02)
        rig.tables.drop(1)
        rig.freshness.gone([1])
        with pytest.raises(NotOwner):
            await waiting

    run(story)


def test_partitions_that_are_none_are_refused() -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(Invalid):
            await rig.reads.claimed(WORKSPACE, DIGEST, None, partitions=(7,), wait_s=1)
        with pytest.raises(Invalid):
            await rig.reads.claimable(WORKSPACE, ("l",), None, partitions=(-1,), limit=1, wait_s=1)

    run(story)


# -- events by name ---------------------------------------------------------------------------------------------------


def test_an_event_is_found_by_its_name_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_SLICE_EVENTS", 10)

    async def story(rig: Rig) -> None:
        session = rig.create()
        rig.logs[0].say(session, 99)
        names = [decode_event(record.value or b"").event_id for record in rig.logs[0].records]
        rig.apply()
        for sequence in (1, 2, 50, 91, 99, 100):
            assert await rig.reads.event_named(WORKSPACE, session, names[sequence - 1], wait_s=5) == sequence
        rig.stores[0].taken = 0
        await rig.reads.event_named(WORKSPACE, session, names[99], wait_s=5)
        assert rig.stores[0].taken == 1
        with pytest.raises(NotFound, match="has no event"):
            await rig.reads.event_named(WORKSPACE, session, made_up_id("evt", "none"), wait_s=5)

    run(story)


def test_an_event_that_is_in_the_log_already_is_not_missing() -> None:
    async def story(rig: Rig) -> None:
        session = rig.create()
        rig.apply()
        name = decode_event(rig.logs[0].say(session)[0].value or b"").event_id
        rig.apply_in(0.05)
        assert await rig.reads.event_named(WORKSPACE, session, name, wait_s=5) == 2

    run(story)


def test_others_are_answered_while_a_long_session_is_looked_through_and_the_looking_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_SLICE_BYTES", 1)

    async def story(rig: Rig) -> None:
        session = rig.create()
        rig.logs[0].say(session, 300)
        rig.apply()
        answered = 0

        async def others() -> None:
            nonlocal answered
            while True:
                await rig.reads.session(WORKSPACE, session, wait_s=1)
                answered += 1
                await asyncio.sleep(0)

        asking = asyncio.create_task(others())
        with pytest.raises(NotFound):
            await rig.reads.event_named(WORKSPACE, session, made_up_id("evt", "none"), wait_s=60)
        asking.cancel()
        assert answered >= 250
        with pytest.raises(Overloaded):
            await rig.reads.event_named(WORKSPACE, session, made_up_id("evt", "none"), wait_s=0)

    run(story)
