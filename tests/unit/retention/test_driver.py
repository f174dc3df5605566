"""The retention driver: each step once and in order, wherever it dies; destroyed only by a clock that is believed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.custody.keyring import SecretRef
from streams.errors import BrokerUnavailable, ContentUnavailable
from streams.log.retention import ACCEPTED, COMPLETE, DAY, DEAD_LETTERS, DESTROYED, ENFORCED, KNOWN, LATE, Purged
from streams.loop.crash import CrashPoint
from tests.support.examples import made_up_id
from tests.support.retention_world import SECOND, WORKSPACE, RetentionWorld

STATES = [ACCEPTED, DESTROYED, ENFORCED, COMPLETE]
POINTS = [
    CrashPoint.AFTER_CONSUME, CrashPoint.AFTER_BEGIN, CrashPoint.AFTER_DECIDE, CrashPoint.AFTER_PRODUCE, CrashPoint.AFTER_SEND_OFFSETS,
    CrashPoint.AFTER_COMMIT, CrashPoint.AFTER_STORE_WRITE,
]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RetentionWorld]:
    made = RetentionWorld(tmp_path)
    made.start()
    made.settle(3)
    yield made
    made.close()


def subject(number: int = 0) -> str:
    return made_up_id("subj", number)


def secret(subject_id: str) -> SecretRef:
    return SecretRef("subject", WORKSPACE, subject_id)


def test_an_erasure_passes_through_its_states_and_is_told_at_each(world: RetentionWorld) -> None:
    world.said.of_caches["gateway/1"] = 0
    erasure_id = world.ask(subject())
    world.settle(4)
    assert world.state(erasure_id) == DESTROYED
    world.everybody_follows()
    world.settle()
    told = world.told(erasure_id)
    assert [row.state for row in told] == STATES
    assert [len(row.erasure.receipts) for row in told if row.erasure is not None] == [1, 1, 2, 3]
    assert [order.id for order in world.orders()] == [subject()]
    assert world.keyring.destroyed_refs == [secret(subject())]


def test_the_secret_is_gone_before_anybody_is_told_and_nothing_is_destroyed_that_is_not_accepted(world: RetentionWorld) -> None:
    world.dies_at(CrashPoint.AFTER_COMMIT)
    erasure_id = world.ask(subject())
    world.settle(2)
    assert world.loop is None
    assert (world.state(erasure_id), world.keyring.destroyed_refs) == (ACCEPTED, [])
    world.start()
    world.dies_at(CrashPoint.AFTER_PRODUCE)
    world.settle(4)
    assert world.loop is None
    assert (world.keyring.destroyed_refs, world.orders()) == ([secret(subject())], [])
    world.start()
    world.settle()
    assert [order.order for order in world.orders()] == [1]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("until", STATES[:3])
def test_killed_at_any_point_it_goes_on_and_tells_each_step_once(world: RetentionWorld, point: CrashPoint, until: str) -> None:
    erasure_id = world.ask(subject())
    if until != ACCEPTED:
        world.settle(3)
    if until == ENFORCED:
        world.everybody_follows()
    world.dies_at(point)
    world.settle()
    world.crash.point = None
    world.kill()
    world.start()
    world.settle()
    world.everybody_follows()
    world.settle(30)
    assert [row.state for row in world.told(erasure_id)] == STATES
    assert [order.order for order in world.orders()] == [1]


def test_what_was_asked_before_is_known_and_what_is_found_too_late_is_not_done(world: RetentionWorld) -> None:
    erasure_id = world.ask(subject())
    world.ask(subject())
    late = world.ask(subject(1), late=True)
    world.settle()
    assert [outcome.status for outcome in world.outcomes()] == [ACCEPTED, KNOWN, LATE]
    assert [outcome.erasure_id for outcome in world.outcomes()] == [erasure_id, erasure_id, None]
    assert world.state(late) is None


def test_a_silent_cache_is_waited_for_until_a_lease_is_over_also_after_a_restart(world: RetentionWorld) -> None:
    world.said.of_caches["gateway/silent"] = 0
    erasure_id = world.ask(subject())
    world.settle(4)
    world.kill()
    world.start("another")
    world.settle(4)
    assert world.state(erasure_id) == DESTROYED
    assert world.driver.awaited(world.told(erasure_id)[-1], world.now) == ("gateway/silent",)
    world.now += 10 * SECOND
    world.settle(2)
    assert world.state(erasure_id) == ENFORCED


def test_nothing_is_enforced_before_what_holders_said_is_known(world: RetentionWorld) -> None:
    world.said.known_as_of_s = 0
    erasure_id = world.ask(subject())
    world.settle(4)
    assert world.state(erasure_id) == DESTROYED
    world.said.known_as_of_s = float("inf")
    world.settle(4)
    assert world.state(erasure_id) == ENFORCED


def test_a_sink_is_waited_for_also_where_nobody_has_heard_of_it_for_long(world: RetentionWorld) -> None:
    world.said.of_sinks["sink/lake"] = 0
    world.settle(3)
    world.said.of_sinks.clear()
    erasure_id = world.ask(subject())
    world.settle(4)
    world.everybody_follows()
    world.kill()
    world.start("another")
    world.settle()
    assert world.state(erasure_id) == ENFORCED
    assert world.driver.awaited(world.told(erasure_id)[-1], world.now) == ("sink/lake",)
    world.said.left.add("sink/lake")
    world.settle()
    assert world.state(erasure_id) == COMPLETE


def test_compaction_has_its_time_where_a_tombstone_was_written(world: RetentionWorld) -> None:
    erasure_id = world.ask(subject())
    world.settle(4)
    world.said.of_orders[1] = {"agents/0": Purged(order=1, counts={"agent_checkpoints": 2}, tombstones_at=world.now)}
    world.everybody_follows()
    world.settle()
    assert world.driver.awaited(world.told(erasure_id)[-1], world.now) == ("compaction",)
    world.now += 3600 * SECOND
    world.settle()
    assert world.state(erasure_id) == ENFORCED
    world.now += 200 * SECOND
    world.settle()
    last = world.told(erasure_id)[-1]
    assert last.state == COMPLETE
    assert last.erasure is not None
    assert last.erasure.counts == {"agent_checkpoints": 2}


def test_where_the_keyring_is_away_nothing_is_told_and_it_goes_on_afterwards(world: RetentionWorld) -> None:
    erasure_id = world.ask(subject())
    world.keyring.away = True
    world.settle(4)
    assert (world.state(erasure_id), world.orders()) == (ACCEPTED, [])
    world.keyring.away = False
    world.settle()
    assert world.state(erasure_id) == ENFORCED


def test_what_is_asked_while_the_keyring_is_away_is_accepted(world: RetentionWorld) -> None:
    first = world.ask(subject())
    world.keyring.away = True
    world.settle(4)
    second = world.ask(subject(1))
    world.settle(4)
    assert world.loop is not None
    assert (world.state(first), world.state(second)) == (ACCEPTED, ACCEPTED)


def test_nothing_is_complete_by_a_clock_that_was_put_forward(world: RetentionWorld) -> None:
    erasure_id = world.ask(subject())
    world.settle(4)
    world.said.of_orders[1] = {"agents/0": Purged(order=1, tombstones_at=world.now)}
    world.everybody_follows()
    world.settle()
    world.ahead_us = -30 * 86_400 * SECOND
    world.now += 30 * 86_400 * SECOND
    world.settle()
    assert world.state(erasure_id) == ENFORCED
    assert world.driver.clock.stopped


def test_whoever_no_longer_hears_holders_ends(world: RetentionWorld) -> None:
    world.said.failed = BrokerUnavailable("for good")
    with pytest.raises(BrokerUnavailable):
        world.settle(2)


class TestDays:
    def day_of_the_past(self, world: RetentionWorld) -> SecretRef:
        ref = SecretRef("day", WORKSPACE, "2026-12-01")
        world.keyring.keyring.secrets([ref], create=True)
        return ref

    def test_a_day_that_is_over_goes_once_and_is_told(self, world: RetentionWorld) -> None:
        ref = self.day_of_the_past(world)
        world.settle(20)
        assert [(order.kind, order.id) for order in world.orders()] == [(DAY, ref.id)]
        assert world.keyring.keyring.destroyed([ref]) == {ref}
        world.kill()
        world.start("another")
        world.settle(20)
        assert len(world.orders()) == 1

    @pytest.mark.parametrize("point", POINTS)
    @pytest.mark.parametrize("rounds", [1, 2, 3])
    def test_killed_at_any_point_each_day_is_destroyed_and_told_once(self, world: RetentionWorld, point: CrashPoint, rounds: int) -> None:
        ref = self.day_of_the_past(world)
        world.settle(10)
        other = SecretRef("dead_letters", WORKSPACE, "2026-12-02")
        world.keyring.keyring.secrets([other], create=True)
        for _ in range(rounds):
            world.dies_at(point)
            world.settle(12)
            world.kill()
            world.start()
        world.crash.point = None
        world.settle(30)
        assert [(order.order, order.kind, order.id) for order in world.orders()] == [(1, DAY, ref.id), (2, DEAD_LETTERS, other.id)]
        assert world.keyring.keyring.destroyed([ref, other]) == {ref, other}

    def test_where_the_keyring_is_away_days_wait_for_it(self, world: RetentionWorld) -> None:
        self.day_of_the_past(world)
        world.keyring.away = True
        world.settle(20)
        assert world.loop is not None
        assert world.orders() == []
        world.keyring.away = False
        world.settle(20)
        assert len(world.orders()) == 1

    def test_what_was_noted_stays_while_the_clock_is_not_believed(self, world: RetentionWorld) -> None:
        ref = self.day_of_the_past(world)
        world.dies_at(CrashPoint.AFTER_STORE_WRITE)
        world.settle(20)
        assert world.loop is None
        world.ahead_us = 600 * SECOND
        world.start()
        world.settle(20)
        assert (world.orders(), world.keyring.keyring.destroyed([ref])) == ([], frozenset())
        assert world.driver.days.late_us(world.now) > 0
        world.ahead_us = 0
        world.settle(20)
        assert [order.id for order in world.orders()] == [ref.id]
        assert world.driver.days.late_us(world.now) == 0

    def test_a_day_stays_for_its_grace(self, world: RetentionWorld) -> None:
        # 1,800,000,000 is 2027-01-15T08:00Z: the day before has been over for eight hours.
        ref = SecretRef("day", WORKSPACE, "2027-01-14")
        world.keyring.keyring.secrets([ref], create=True)
        world.settle(20)
        assert world.orders() == []
        world.now += 17 * 3600 * SECOND
        world.settle(20)
        assert [order.id for order in world.orders()] == [ref.id]

    @pytest.mark.parametrize("ahead_us", [None, 61 * SECOND, -61 * SECOND])
    def test_a_clock_that_nobody_confirms_destroys_nothing(self, world: RetentionWorld, ahead_us: int | None) -> None:
        world.ahead_us = ahead_us
        self.day_of_the_past(world)
        world.settle(20)
        assert world.orders() == []
        assert world.driver.clock.stopped == (ahead_us is not None)
        world.ahead_us = 0
        world.settle(20)
        assert len(world.orders()) == 1
        assert not world.driver.clock.stopped

    def test_a_clock_that_goes_back_brings_no_day_back(self, world: RetentionWorld) -> None:
        ref = self.day_of_the_past(world)
        world.settle(20)
        world.now -= 400 * 86_400 * SECOND
        world.settle(20)
        assert world.keyring.keyring.destroyed([ref]) == {ref}
        assert len(world.orders()) == 1

    def test_erasures_go_on_while_the_clock_is_not_believed(self, world: RetentionWorld) -> None:
        world.ahead_us = 600 * SECOND
        erasure_id = world.ask(subject())
        world.settle()
        assert world.state(erasure_id) == ENFORCED


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 4)),
    st.tuples(st.just("cache"), st.integers(0, 2)),
    st.tuples(st.just("follow"), st.just(0)),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.integers(1, 20)),
    st.tuples(st.just("crash"), st.integers(0, len(POINTS) - 1)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("keyring"), st.integers(0, 1)),
    st.tuples(st.just("day"), st.integers(0, 2)),
    st.tuples(st.just("clock"), st.sampled_from([-400, -1, 1, 400])),
)


def a_day(number: int) -> SecretRef:
    return SecretRef("day", WORKSPACE, f"2026-12-0{number + 1}")


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_whatever_happens_each_erasure_goes_forward_once_and_ends(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    world = RetentionWorld(tmp_path_factory.mktemp("world"))
    asked, over = set[str](), set[SecretRef]()
    to_come = SecretRef("day", WORKSPACE, "2027-02-01")
    world.keyring.keyring.secrets([to_come], create=True)
    try:
        world.start()
        for what, number in steps:
            if what == "ask":
                asked.add(world.ask(subject(number)))
            elif what == "cache":
                world.said.of_caches.setdefault(f"gateway/{number}", 0)
            elif what == "follow":
                world.everybody_follows()
            elif what == "step":
                world.settle(number)
            elif what == "wait":
                world.now += number * SECOND
            elif what == "crash":
                world.dies_at(POINTS[number])
            elif what == "keyring":
                world.keyring.away = bool(number)
            elif what == "day":
                over.add(a_day(number))
                with contextlib.suppress(ContentUnavailable):
                    world.keyring.keyring.secrets([a_day(number)], create=True)
            elif what == "clock":
                world.jump(number * 86_400)
            else:
                world.kill()
                world.start()
            check(world)
            assert world.keyring.keyring.destroyed([to_come]) == frozenset()
        world.crash.point, world.keyring.away = None, False
        world.put_right()
        world.kill()
        world.start()
        world.settle(16)
        world.everybody_follows()
        world.settle(30)
        check(world)
        # A clock that was put forward finds what was asked before to be late.
        late = {None} if any(outcome.status == LATE for outcome in world.outcomes()) else set()
        assert {world.state(erasure_id) for erasure_id in asked} <= {COMPLETE} | late
        assert {order.id for order in world.orders() if order.kind == DAY} == {ref.id for ref in over}
    finally:
        world.close()


def check(world: RetentionWorld) -> None:
    """What holds at every moment."""
    orders = [order.order for order in world.orders()]
    assert orders == list(range(1, len(orders) + 1))
    assert len({order.id for order in world.orders()}) == len(orders)
    destroyed = world.keyring.keyring.destroyed(
        [SecretRef("day" if order.kind == DAY else "subject", WORKSPACE, order.id) for order in world.orders()]
    )
    assert len(destroyed) == len(orders)
    by_erasure: dict[str, list[str]] = {}
    for row in world.rows():
        if row.erasure is not None:
            by_erasure.setdefault(row.id, []).append(row.state)
    for states in by_erasure.values():
        assert states == STATES[: len(states)]
