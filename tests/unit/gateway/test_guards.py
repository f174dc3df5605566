"""What one key may ask over time, and what may be under way at once."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast
from unittest.mock import Mock

import pytest

from connectors.gateway.guards import Admission, Budget, Pace, RateLimit, Shares
from streams.errors import Overloaded, Retriable


def test_a_bucket_refills_with_time_and_says_how_long_to_wait() -> None:
    now = 0.0
    limit = RateLimit(2.0, 2, clock=lambda: now)
    limit.take("a")
    limit.take("a")
    with pytest.raises(Retriable) as refused:
        limit.take("a")
    assert refused.value.retry_after_s == pytest.approx(0.5)
    limit.take("b")
    now = 0.5
    limit.take("a")


def test_buckets_that_are_full_again_are_forgotten() -> None:
    now = 0.0
    limit = RateLimit(1.0, 2, clock=lambda: now, keys_max=3)
    for name in "abc":
        limit.take(name)
    now = 10.0
    limit.take("d")
    assert set(limit._buckets) == {"d"}


def test_a_budget_is_never_exceeded() -> None:
    budget = Budget(2, "things")
    budget.take(2)
    with pytest.raises(Overloaded):
        budget.take()
    budget.give_back(2)
    budget.take()


class Queue:
    """A server that does `per_s` commands, oldest first, in steps of 10 ms; `ask` lets callers in as the admission allows."""

    def __init__(self, limit: int = 2048, patience_s: float = 0.5) -> None:
        self.now = 0.0
        self.admission = Admission(limit, "changes", patience_s=patience_s, clock=lambda: self.now)
        self.waiting: deque[float] = deque()
        self.took: list[float] = []
        self.refused = 0

    def run(self, seconds: float, *, asked_per_s: float, per_s: float) -> None:
        self.took, self.refused = [], 0
        owed = asked = 0.0
        for _ in range(round(seconds * 100)):
            self.now += 0.01
            asked += asked_per_s / 100
            while asked >= 1:
                asked -= 1
                try:
                    self.admission.take()
                    self.waiting.append(self.now)
                except Overloaded:
                    self.refused += 1
            owed = min(owed + per_s / 100, float(len(self.waiting)))
            while owed >= 1:
                owed -= 1
                self.took.append(self.now - self.waiting.popleft())
                self.admission.give_back()
                self.admission.done(self.took[-1])


def test_whoever_is_let_in_waits_no_longer_than_the_patience_however_many_ask() -> None:
    queue = Queue()
    queue.run(10, asked_per_s=400, per_s=500)
    assert queue.refused == 0
    queue.run(5, asked_per_s=4000, per_s=1000)
    queue.run(20, asked_per_s=4000, per_s=1000)
    assert max(queue.took) < 0.75
    assert len(queue.took) == pytest.approx(20 * 1000, rel=0.02)
    assert queue.refused == pytest.approx(20 * 3000, rel=0.05)


def test_few_callers_on_a_slow_machine_are_not_refused() -> None:
    queue = Queue()
    queue.run(20, asked_per_s=25, per_s=25)
    for _ in range(200):
        queue.admission.take()


def test_more_are_let_in_again_once_more_comes_through() -> None:
    queue = Queue()
    queue.run(20, asked_per_s=2000, per_s=600)
    assert queue.admission.limit < 400
    queue.run(20, asked_per_s=4000, per_s=4000)
    queue.run(5, asked_per_s=4000, per_s=4000)
    assert queue.refused == 0


def test_what_stood_still_and_goes_on_does_not_shut_the_door() -> None:
    queue = Queue()
    queue.run(1, asked_per_s=200, per_s=1000)
    queue.run(2, asked_per_s=200, per_s=0)
    queue.run(1, asked_per_s=200, per_s=1000)
    assert queue.refused == 0
    assert queue.admission.limit > 100


def test_a_limit_below_the_least_holds() -> None:
    admission = Admission(2, "things", patience_s=0.5)
    admission.take(2)
    with pytest.raises(Overloaded) as refused:
        admission.take()
    assert refused.value.retry_after_s == 0.5


class Turns:
    """A loop whose time a test tells: `pass_s` lets it go by, and calls what is due once the loop comes to it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle:
        self._due.append((self.now + delay, callback))
        return cast("asyncio.TimerHandle", Mock())

    def pass_s(self, seconds: float, *, busy: bool = False) -> None:
        """`busy`: the loop does nothing else meanwhile."""
        until = self.now + seconds
        while not busy and self._due and self._due[0][0] <= until:
            due, callback = self._due.pop(0)
            self.now = max(self.now, due)
            callback()
        self.now = until


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def watched(turns: Turns) -> Admission:
    admission = Admission(2048, "changes", patience_s=0.5, clock=lambda: turns.now)
    admission.lateness.watch(turns)
    return admission


def test_a_loop_in_time_refuses_nobody(turns: Turns, watched: Admission) -> None:
    watched.take(300)
    for _ in range(100):
        turns.pass_s(0.07)
        assert not watched.full()


def test_a_late_loop_refuses_at_once_and_until_it_has_been_in_time_again(turns: Turns, watched: Admission) -> None:
    watched.take(300)
    turns.pass_s(1)
    turns.pass_s(0.3, busy=True)
    assert watched.full(), "within the turn that takes so long"
    turns.pass_s(0)
    assert watched.full(), "and behind it, for what arrived meanwhile"
    turns.pass_s(0.05)
    assert not watched.full()


def test_a_late_loop_refuses_no_few_callers(turns: Turns, watched: Admission) -> None:
    turns.pass_s(0.3, busy=True)
    watched.take(200)
    assert not watched.full()
    assert not watched.full(coming=50)
    assert watched.full(coming=56)


def test_refusing_for_lateness_lets_no_more_in_later(turns: Turns, watched: Admission) -> None:
    watched.take(300)
    limit = watched.limit
    turns.pass_s(0.3, busy=True)
    for _ in range(5000):
        assert watched.full()
        watched.done(0.01)
    turns.pass_s(0.3, busy=True)
    watched.done(0.01)
    assert watched.limit == limit


def test_a_loop_that_is_watched_no_more_is_not_late(turns: Turns, watched: Admission) -> None:
    watched.take(300)
    turns.pass_s(0.3, busy=True)
    watched.lateness.stop()
    assert not watched.full()


def test_what_is_let_in_and_has_not_begun_counts() -> None:
    admission = Admission(3, "things", patience_s=0.5)
    admission.take(1)
    assert not admission.full(coming=1)
    assert admission.full(coming=2)


def test_a_key_has_its_share_and_gets_it_back() -> None:
    shares = Shares(2, "transfers")
    for _ in range(3):
        shares.take("one")
        shares.take("one")
        with pytest.raises(Retriable) as refused:
            shares.take("one")
        assert refused.value.code == "request.rate_limited"
        shares.take("other")
        for key in ("one", "one", "other"):
            shares.give_back(key)


def test_a_pace_counts_the_time_that_a_caller_is_waited_for_and_no_other() -> None:
    now = 0.0
    pace = Pace(10, 5, clock=lambda: now)

    def moved(size: int, waited_s: float) -> bool:
        nonlocal now
        with pace.waiting():
            now += waited_s
        now += 1000  # ours
        return pace.moved(size)

    assert moved(1, 5), "it has just begun"
    assert not moved(1, 1)
    assert moved(58, 0)
    assert moved(1000, 50)
    assert not moved(0, 51)
