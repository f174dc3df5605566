"""Guards at the door: what one key may ask over time, and what may be under way at once. Who does not pass is refused, not queued."""

import time
from collections.abc import Callable

from streams.errors import Overloaded, Retriable


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
