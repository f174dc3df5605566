"""Leases, with a clock in hand."""

import threading

import pytest

from streams.errors import BrokerUnavailable, NotOwner, ProjectionBehind
from streams.projections.keeper import LeaseKeeper
from streams.projections.lease import Lease
from streams.projections.tables import Tables
from streams.store.memory import MemoryStore


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_lease_begins_when_the_answer_is_reached_and_counts_from_the_question(clock: Clock) -> None:
    lease = Lease(10, clock)
    sent = clock.now
    clock.now += 4
    lease.answered(sent, 50)
    assert not lease.held
    assert not lease.ever_held
    lease.reached(49)
    assert not lease.held
    lease.reached(50)
    assert lease.held
    clock.now = sent + 9.99
    assert lease.held
    clock.now = sent + 10
    assert not lease.held
    assert lease.ever_held


def test_a_process_that_was_stopped_wakes_without_a_lease_until_a_fresh_answer_is_reached(clock: Clock) -> None:
    lease = Lease(10, clock)
    lease.reached(7)
    lease.answered(clock.now, 7)
    assert lease.held
    asked_before_the_stop = clock.now
    clock.now += 60
    assert not lease.held
    lease.answered(asked_before_the_stop, 7)
    assert not lease.held, "an answer from before the stop proves nothing"
    lease.answered(clock.now, 9)
    assert not lease.held, "the table lacks what came meanwhile"
    lease.reached(9)
    assert lease.held


def test_a_table_that_lags_by_a_little_keeps_its_lease(clock: Clock) -> None:
    """Every answer is reached a second later, when the next one is already further."""
    lease = Lease(10, clock)
    lease.reached(0)
    for second in range(1, 100):
        clock.now += 1
        lease.answered(clock.now, second * 10)
        lease.reached((second - 1) * 10)
        assert lease.held or second < 2


def test_a_table_that_never_gets_there_has_no_lease_and_keeps_few_questions(clock: Clock) -> None:
    lease = Lease(10, clock)
    for second in range(1000):
        clock.now += 1
        lease.answered(clock.now, 1000 + second)
        lease.reached(second)
    assert not lease.ever_held
    assert len(lease._open) <= 64


def test_a_table_refuses_by_what_the_reader_does_next(clock: Clock) -> None:
    tables = Tables(10, clock)
    with pytest.raises(NotOwner):
        tables.serving(0)
    table = tables.add(0, MemoryStore())
    with pytest.raises(ProjectionBehind):
        tables.serving(0)
    table.answered(clock.now, 0)
    table.reached(0)
    assert tables.serving(0) is table
    clock.now += 11
    with pytest.raises(NotOwner):
        tables.serving(0)
    with pytest.raises(NotOwner):
        tables.still(table)


def test_a_table_that_went_and_came_back_is_not_the_one_that_was_read(clock: Clock) -> None:
    tables = Tables(10, clock)
    first = tables.add(0, MemoryStore())
    first.answered(clock.now, 0)
    first.reached(0)
    tables.drop(0)
    second = tables.add(0, MemoryStore())
    second.answered(clock.now, 0)
    second.reached(0)
    with pytest.raises(NotOwner):
        tables.still(first)
    tables.still(second)


class Ends:
    def __init__(self) -> None:
        self.end = 5
        self.fails = False
        self.asked = threading.Event()

    def query(self, places: object, *, committed: bool, timeout_s: float = 5) -> dict[tuple[str, int], int]:
        assert committed
        self.asked.set()
        if self.fails:
            raise BrokerUnavailable("none")
        return dict.fromkeys(places, self.end)  # type: ignore[attr-defined]


def test_the_keeper_asks_for_what_is_owned_and_a_silent_broker_lets_leases_lapse(clock: Clock) -> None:
    tables, ends = Tables(10, clock), Ends()
    table = tables.add(3, MemoryStore())
    table.reached(5)
    keeper = LeaseKeeper(tables, ends, "sessions.events", lease_s=10, clock=clock)
    keeper.start()
    try:
        assert ends.asked.wait(5)
        for _ in range(1000):
            if table.lease.held:
                break
            threading.Event().wait(0.005)
        assert table.lease.held
        assert table.end == 5
        ends.fails = True
        clock.now += 11
        ends.asked.clear()
        keeper.ask_now()
        assert ends.asked.wait(5)
        assert not table.lease.held
    finally:
        keeper.close()
