"""Guards at the door: what one key may ask over time, and what may be under way at once. Who does not pass is refused, not queued."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from streams.errors import Overloaded, Retriable

_LOOK_S: Final = 0.2
_FIRST: Final = 512
"""Let in at once before anything is known of what comes through."""
_LEAST: Final = 256
"""Let in at once however slow all is: few callers on a slow machine are no overload."""
_TICK_S: Final = 0.02
_LATE_S: Final = 0.1
"""How late a loop may be. Whoever is let in waits for the loop about three times: to be read, to be told of the outcome, to be
answered; with this they wait less for it than for what is behind it. A garbage collection or a large body takes less."""


class RateLimit:
    """A token bucket for each key. `take` raises `Retriable` (request.rate_limited) with the time to wait."""

    def __init__(self, per_s: float, burst: int, *, clock: Callable[[], float] = time.monotonic, keys_max: int = 10_000) -> None:
        self._per_s, self._burst, self._clock, self._keys_max = per_s, float(burst), clock, keys_max
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> None:
        now = self._clock()
        tokens, since = self._buckets.get(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._per_s)
        if tokens < 1:
            raise Retriable("more requests than this key may make", code="request.rate_limited", retry_after_s=(1 - tokens) / self._per_s)
        if len(self._buckets) >= self._keys_max and key not in self._buckets:
            # A bucket that has had time to fill is as good as none.
            full_s = self._burst / self._per_s
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if now - bucket[1] < full_s}
        self._buckets[key] = (tokens - 1, now)


class Shares:
    """A bound on what each key has under way at once. `take` raises `Retriable` (request.rate_limited); whoever took gives back."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit, self.what = limit, what
        self._taken: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """By all keys."""
        return sum(self._taken.values())

    def take(self, key: str) -> None:
        taken = self._taken.get(key, 0)
        if taken >= self.limit:
            raise Retriable(f"more {self.what} than this key may have under way", code="request.rate_limited")
        self._taken[key] = taken + 1

    def give_back(self, key: str) -> None:
        left = self._taken[key] - 1
        if left:
            self._taken[key] = left
        else:
            del self._taken[key]


class Pace:
    """How fast a caller gives or takes bytes while it is waited for. The time that we need ourselves does not count."""

    def __init__(self, least_per_s: float, start_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._least_per_s, self._start_s, self._clock = least_per_s, start_s, clock
        self._waited_s, self._bytes = 0.0, 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self._waited_s += self._clock() - began

    def moved(self, size: int) -> bool:
        """Tells of bytes that came or went. False: the caller is too slow."""
        self._bytes += size
        return self._waited_s <= self._start_s or self._bytes >= self._least_per_s * self._waited_s


class Budget:
    """A bound on something that is under way at once. `take` raises `Overloaded`; whoever took gives back."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit, self.what, self.taken = limit, what, 0

    def take(self, amount: int = 1) -> None:
        if self.taken + amount > self.limit:
            raise Overloaded(f"too many {self.what} are under way")
        self.taken += amount

    def give_back(self, amount: int = 1) -> None:
        self.taken -= amount


class Loop(Protocol):
    """What of an event loop is needed to see whether it is late."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle: ...


class Lateness:
    """How far an event loop is behind, which is how long what has arrived lies in front of it before it is looked at."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = 0.0
        self._due = math.inf
        self._next: asyncio.TimerHandle | None = None

    def watch(self, loop: Loop) -> None:
        """Until `stop`; nothing is late before."""

        def tick() -> None:
            now = self._clock()
            self._last_s = max(0.0, now - self._due)
            self._due = now + _TICK_S
            self._next = loop.call_later(_TICK_S, tick)

        self._due = self._clock()
        tick()

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._last_s, self._due = 0.0, math.inf

    def seconds(self) -> float:
        """Of the last tick, or of the next where that is overdue by more: a turn of the loop in which much is read shows at once."""
        return max(self._last_s, self._clock() - self._due)


class Admission(Budget):
    """A budget that follows from what comes through: no more is let in than is done within `patience_s`.

    While commands come through, `_LOOK_S` at a time is looked at. Where even the quickest took longer than the patience, as
    many may be under way as come through in that time at the rate seen; where not, and callers were refused, a few more.
    Whoever is let in therefore waits about as long as the patience (or for `_LEAST` others), however many ask; the others are
    told at once. While the loop is late, no more than `_LEAST` are let in: what waits in front of it is not under way yet.
    """

    def __init__(self, limit: int, what: str, *, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`limit` is never exceeded."""
        super().__init__(min(limit, _FIRST), what)
        self.lateness = Lateness(clock=clock)
        self._most, self._patience_s, self._clock = limit, patience_s, clock
        self._quickest_s = math.inf
        self._begin(clock())

    def take(self, amount: int = 1) -> None:
        if self.taken + amount > self.limit:
            self._refused = True
            raise self.refusal()
        self.taken += amount

    def full(self, coming: int = 0) -> bool:
        """Whether the next one is to be refused; `coming` have been let in and have taken nothing yet."""
        under_way = self.taken + coming
        if under_way >= self.limit:
            self._refused = True
            return True
        return under_way >= _LEAST and self.lateness.seconds() > _LATE_S

    def refusal(self) -> Overloaded:
        return Overloaded(f"too many {self.what} are under way", retry_after_s=self._patience_s)

    def done(self, seconds: float) -> None:
        """A command has come through, `seconds` after it was sent."""
        now = self._clock()
        passed_s = now - self._since
        if passed_s >= _LOOK_S:
            # A pause says nothing of how fast it goes while it goes.
            if self._done and passed_s < 3 * _LOOK_S:
                self._judge(self._done / passed_s)
            self._begin(now)
        self._done += 1
        self._quickest_s = min(self._quickest_s, seconds)

    def _judge(self, per_s: float) -> None:
        within_patience = int(per_s * self._patience_s)
        if self._quickest_s > self._patience_s:
            self.limit = max(min(_LEAST, self._most), min(self.limit, within_patience))
        elif self._refused and within_patience > self.limit:
            self.limit = min(self._most, within_patience, self.limit + self.limit // 8 + 1)

    def _begin(self, now: float) -> None:
        self._since, self._done, self._quickest_s, self._refused = now, 0, math.inf, False
