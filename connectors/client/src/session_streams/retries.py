"""When to try again, and when to stop. Pure: the clients ask, wait and send.

Every request of this package may be sent again: reads change nothing, and changes carry an Idempotency-Key, under which
the service answers what it answered, or would have answered, before. Agent checkpoints have no such key: a save is one over
whatever is there, and one that names what it expects is sent again only where nothing can have come of it.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

AGAIN: Final = frozenset({408, 429, 503})


@dataclass(frozen=True)
class Retries:
    """`total_s` bounds all attempts of one call together; 0 tries once. Pauses double up to the longest."""

    total_s: float = 60.0
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0


class Attempts:
    """The attempts of one call. `pause_s` says how long to wait before the next one; None says that this was the last."""

    def __init__(
        self, retries: Retries, *, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self._retries, self._clock, self._chance = retries, clock, chance
        self._until_s = clock() + retries.total_s
        self._pause_s = retries.first_pause_s

    def alive(self) -> None:
        """The other side said something, so the time for retries begins anew."""
        self._until_s = self._clock() + self._retries.total_s

    def progressed(self) -> None:
        """Something came of it, so pauses are short again."""
        self.alive()
        self._pause_s = self._retries.first_pause_s

    def pause_s(self, retry_after: str | None = None) -> float | None:
        # Half of the pause is left to chance, so that those who failed together do not come back together.
        pause_s = self._pause_s * (0.5 + self._chance() / 2)
        self._pause_s = min(2 * self._pause_s, self._retries.longest_pause_s)
        asked_s = _seconds(retry_after)
        if asked_s is not None:
            pause_s = asked_s + pause_s / 2
        return pause_s if self._clock() + pause_s < self._until_s else None


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
