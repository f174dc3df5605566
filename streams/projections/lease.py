"""Serve only while alive: a process answers reads of a partition while less than a lease has passed since it *sent* the
last question for the partition's end whose answer its applied position has reached.

A stopped process wakes up with its old assignment and tables, and a read from a dead broker returns nothing, without an
error: neither its membership nor silence proves that it is up to date, only this does. The clock counts suspension.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from streams.clock import boottime_s

_QUESTIONS_KEPT: Final = 64


class Lease:
    """Of one partition. One thread asks, one applies, any thread looks."""

    def __init__(self, duration_s: float, clock: Callable[[], float] = boottime_s) -> None:
        self._duration_s = duration_s
        self._clock = clock
        self._lock = threading.Lock()
        # Answers that the table has yet to reach. While it is further behind than these go back, no lease would hold.
        self._open: deque[tuple[float, int]] = deque(maxlen=_QUESTIONS_KEPT)
        self._applied = -1
        self._proven_s = float("-inf")

    def answered(self, sent_s: float, end: int) -> None:
        """The partition ended at offset `end` when it was asked at `sent_s`, or later."""
        with self._lock:
            self._open.append((sent_s, end))
            self._prove()

    def reached(self, applied: int) -> None:
        """Everything below offset `applied` is in the table."""
        with self._lock:
            self._applied = applied
            self._prove()

    @property
    def held(self) -> bool:
        return self._clock() - self._proven_s < self._duration_s

    @property
    def ever_held(self) -> bool:
        """Whether the table has been at the end at all since the lease was made."""
        return self._proven_s > float("-inf")

    def _prove(self) -> None:
        waiting = [question for question in self._open if question[1] > self._applied]
        reached = [sent_s for sent_s, end in self._open if end <= self._applied]
        if reached:
            self._proven_s = max(self._proven_s, *reached)
            self._open = deque(waiting, maxlen=_QUESTIONS_KEPT)
