"""Waiting, with a log and an end in hand."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from streams.errors import Invalid, NotFound, NotOwner, Overloaded, ProjectionBehind
from streams.log.position import Position
from streams.projections.fold import Fold
from streams.projections.tables import OwnedTable, Tables
from streams.query.freshness import Freshness
from streams.query.queries import ReadModel
from streams.query.reads import Reads
from streams.settings import Settings
from streams.store.memory import MemoryStore
from tests.support.event_log import WORKSPACE, EventLog, session_id

EVENTS, COMMANDS = "p.sessions.events", "p.sessions.commands"
SETTINGS = Settings(topic_prefix="p.", partitions=1)


class Ends:
    """What the broker says, and how often it was asked."""

    def __init__(self) -> None:
        self.ends = {(EVENTS, 0): 0, (COMMANDS, 0): 0}
        self.undecided: int | None = None
        """Where the first transaction begins that is neither committed nor aborted."""
        self.after_stable: int | None = None
        """The end of the events once their last stable offset was told."""
        self.asked: list[tuple[str, int]] = []

    def query(self, places: list[tuple[str, int]], *, committed: bool, timeout_s: float = 5) -> dict[tuple[str, int], int]:
        time.sleep(0.005)
        if committed:
            stable = {place: self.ends[place] if self.undecided is None else self.undecided for place in places}
            if self.after_stable is not None:
                self.ends[(EVENTS, 0)], self.undecided = self.after_stable, stable[(EVENTS, 0)]
            return stable
        self.asked += places
        return {place: self.ends[place] for place in places}


class Rig:
    def __init__(self, **bounds: int) -> None:
        self.tables = Tables(60)
        self.ends = Ends()
        self.log = EventLog()
        self.freshness = Freshness(SETTINGS, self.tables, self.ends, **bounds)
        self.reads = Reads(ReadModel(self.tables, 1), self.freshness)
        self.table: OwnedTable = self.come()

    def come(self, *, leased: bool = True) -> OwnedTable:
        table = self.tables.add(0, MemoryStore())
        if leased:
            table.answered(self.tables._clock(), 0)
            table.reached(0)
        return table

    def accept(self) -> None:
        """What was made is now in the log."""
        self.ends.ends = {(EVENTS, 0): self.log.end, (COMMANDS, 0): self.log.commands}

    def apply(self) -> None:
        """As the projector's thread does it."""
        records, self.log.records = self.log.records, []
        applied = Fold().apply(self.table, records)
        self.table.reached(self.log.end)
        self.freshness.advanced(self.table, applied.awaited)

    def apply_in(self, seconds: float) -> None:
        threading.Timer(seconds, self.apply).start()

    def position(self) -> Position:
        return Position(COMMANDS, 0, self.log.commands - 2)


def run(story: Callable[[Rig], Awaitable[None]], **bounds: int) -> None:
    async def told() -> None:
        rig = Rig(**bounds)
        rig.freshness.bind(asyncio.get_running_loop())
        await story(rig)
        assert rig.freshness._count == 0
        waiters = rig.freshness._waiting[0]
        assert (waiters.count, waiters.commands, waiters.positions, waiters.names, waiters.leases) == (0, {}, {}, {}, set())

    asyncio.run(told())


def test_a_read_with_a_position_waits_until_its_command_is_applied() -> None:
    async def story(rig: Rig) -> None:
        session = rig.log.create("a")
        rig.apply()
        rig.log.say(session, 3)
        rig.accept()
        rig.apply_in(0.05)
        row = await rig.reads.session(WORKSPACE, session, position=rig.position(), wait_s=5)
        assert row.sequence == 4
        await rig.reads.session(WORKSPACE, session, position=rig.position(), wait_s=0)

    run(story)


def test_a_wait_ends_at_its_deadline() -> None:
    async def story(rig: Rig) -> None:
        session = rig.log.create("a")
        rig.accept()
        began = time.monotonic()
        with pytest.raises(ProjectionBehind):
            await rig.reads.session(WORKSPACE, session, position=rig.position(), wait_s=0.1)
        assert 0.1 <= time.monotonic() - began < 2

    run(story)


@pytest.mark.parametrize(
    "position",
    [Position(COMMANDS, 0, 2), Position(COMMANDS, 0, 2**60), Position(COMMANDS, 1, 0), Position(EVENTS, 0, 0), Position("x", 0, 0)],
)
def test_a_position_that_was_never_given_out_is_refused_at_once(position: Position) -> None:
    async def story(rig: Rig) -> None:
        session = rig.log.create("a")
        rig.accept()
        rig.apply()
        began = time.monotonic()
        with pytest.raises(Invalid):
            await rig.reads.session(WORKSPACE, session, position=position, wait_s=30)
        assert time.monotonic() - began < 2

    run(story)


def test_a_session_that_is_in_the_log_already_is_not_missing() -> None:
    """Created through another gateway a moment ago: the table waits for the end of the log as it is now."""

    async def story(rig: Rig) -> None:
        session = rig.log.create("a")
        rig.accept()
        rig.apply_in(0.05)
        assert (await rig.reads.session(WORKSPACE, session, wait_s=5)).sequence == 1
        with pytest.raises(NotFound):
            await rig.reads.session(WORKSPACE, session_id("none"), wait_s=5)
        with pytest.raises(NotFound):
            await rig.reads.events(WORKSPACE, session_id("none"), after=0, limit=1, max_bytes=1, wait_s=5)

    run(story)


def test_a_table_that_cannot_reach_the_end_does_not_say_not_found() -> None:
    async def story(rig: Rig) -> None:
        rig.ends.ends[(EVENTS, 0)] = 7
        with pytest.raises(ProjectionBehind):
            await rig.reads.session(WORKSPACE, session_id("none"), wait_s=0.1)

    run(story)


def test_a_table_in_front_of_the_last_marker_is_at_the_end() -> None:
    """No client tells at once that it is past a marker."""

    async def story(rig: Rig) -> None:
        rig.log.create("a")
        rig.accept()
        rig.apply()
        rig.table.position = rig.log.end - 1
        with pytest.raises(NotFound):
            await rig.reads.session(WORKSPACE, session_id("none"), wait_s=5)

    run(story)


@pytest.mark.parametrize(("undecided", "after_stable"), [(0, None), (1, None), (None, 3)], ids=["from before", "begun", "begun meanwhile"])
def test_a_table_in_front_of_what_may_be_an_event_is_not_at_the_end(undecided: int | None, after_stable: int | None) -> None:
    async def story(rig: Rig) -> None:
        rig.log.create("a")
        rig.accept()
        rig.apply()
        rig.table.position = rig.log.end - 1 if after_stable is None else after_stable - 1
        rig.ends.undecided, rig.ends.after_stable = undecided, after_stable
        with pytest.raises(ProjectionBehind):
            await rig.reads.session(WORKSPACE, session_id("none"), wait_s=0.1)

    run(story)


def test_what_turns_out_to_be_a_marker_is_not_waited_for() -> None:
    async def story(rig: Rig) -> None:
        rig.log.create("a")
        rig.accept()
        rig.apply()
        rig.table.position = rig.log.end - 1
        rig.ends.undecided = 0
        miss = asyncio.create_task(rig.reads.session(WORKSPACE, session_id("none"), wait_s=5))
        while len(rig.ends.asked) < 2:
            await asyncio.sleep(0.001)
        rig.ends.undecided = None
        with pytest.raises(NotFound):
            await miss

    run(story)


def test_many_who_miss_at_once_share_questions_to_the_broker() -> None:
    async def story(rig: Rig) -> None:
        async def miss(label: int) -> None:
            with pytest.raises(NotFound):
                await rig.reads.session(WORKSPACE, session_id(label), wait_s=5)

        await asyncio.gather(*(miss(label) for label in range(200)))
        assert len(rig.ends.asked) <= 3

    run(story)


def test_an_answer_to_an_older_question_does_not_count() -> None:
    async def story(rig: Rig) -> None:
        first = asyncio.create_task(rig.freshness._end_now((COMMANDS, 0)))
        while not rig.ends.asked:
            await asyncio.sleep(0)
        rig.ends.ends[(COMMANDS, 0)] = 9
        assert await rig.freshness._end_now((COMMANDS, 0)) == 9
        await first
        assert len(rig.ends.asked) == 2

    run(story)


def test_a_follower_gets_the_next_event_when_it_comes_and_an_empty_page_when_none_does() -> None:
    async def story(rig: Rig) -> None:
        session, other = rig.log.create("a"), rig.log.create("b")
        rig.apply()

        def follow(seconds: float) -> Awaitable[object]:
            return rig.reads.events(WORKSPACE, session, after=1, limit=10, max_bytes=1 << 20, follow_s=seconds, wait_s=5)

        assert (await follow(0.05)).events == ()  # type: ignore[attr-defined]
        rig.log.say(session)
        rig.log.say(other)
        rig.apply_in(0.05)
        began = time.monotonic()
        assert len((await follow(20)).events) == 1  # type: ignore[attr-defined]
        assert time.monotonic() - began < 5

    run(story)


def test_everybody_who_waits_hears_when_the_partition_goes() -> None:
    async def story(rig: Rig) -> None:
        session = rig.log.create("a")
        rig.apply()
        rig.log.say(session)
        rig.accept()
        waits = [
            asyncio.create_task(rig.reads.session(WORKSPACE, session, position=rig.position(), wait_s=30)),
            asyncio.create_task(rig.reads.session(WORKSPACE, session_id("none"), wait_s=30)),
            asyncio.create_task(rig.reads.events(WORKSPACE, session, after=1, limit=1, max_bytes=1, follow_s=30, wait_s=30)),
        ]
        await asyncio.sleep(0.1)
        rig.tables.drop(0)
        rig.freshness.gone([0])
        began = time.monotonic()
        for wait in waits:
            with pytest.raises(NotOwner):
                await wait
        assert time.monotonic() - began < 2

    run(story)


def test_waiters_are_bounded_and_those_within_the_bound_are_served() -> None:
    async def story(rig: Rig) -> None:
        session = rig.log.create("a")
        rig.apply()
        rig.log.say(session)
        rig.accept()
        reads = [asyncio.create_task(rig.reads.session(WORKSPACE, session, position=rig.position(), wait_s=5)) for _ in range(30)]
        await asyncio.sleep(0.1)
        rig.apply()
        results = await asyncio.gather(*reads, return_exceptions=True)
        assert sum(isinstance(result, Overloaded) for result in results) == 20
        assert sum(getattr(result, "sequence", 0) == 2 for result in results) == 10

    run(story, waiters_per_partition=10)


def test_a_table_that_has_just_come_is_waited_for() -> None:
    async def story(rig: Rig) -> None:
        rig.tables.drop(0)
        rig.table = rig.come(leased=False)
        session = rig.log.create("a")
        rig.accept()
        with pytest.raises(ProjectionBehind):
            await rig.reads.session(WORKSPACE, session, wait_s=0.05)
        rig.table.answered(rig.tables._clock(), rig.log.end)
        rig.apply_in(0.1)
        assert (await rig.reads.session(WORKSPACE, session, wait_s=5)).sequence == 1

    run(story)


def test_a_table_whose_lease_lapsed_is_not_waited_for() -> None:
    async def story(rig: Rig) -> None:
        rig.tables._lease_s = 0.0
        rig.come()
        began = time.monotonic()
        with pytest.raises(NotOwner):
            await rig.reads.session(WORKSPACE, session_id("a"), wait_s=30)
        assert time.monotonic() - began < 2

    run(story)
