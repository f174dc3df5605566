"""Days that are over: noted in the log first, then destroyed and told.

A keyring names no day that it has destroyed. Wherever a process dies, the next one finds what was noted, destroys it once more, which
changes nothing, and tells of it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import structlog

from streams.clock import boottime_s
from streams.custody.days import day_end_us
from streams.custody.keyring import Keyring, SecretRef
from streams.errors import Retriable
from streams.retention.believed import BelievedClock
from streams.session.days import day_of, written
from streams.settings import Settings

_AT_ONCE: Final = 500
_EVERY_S: Final = 5.0
"""Between two looks, where the last one found nothing."""
_AGAIN_S: Final = 1.0
"""Where it could not be looked, or the clock is not believed."""
_log = structlog.get_logger(__name__)


class OverDays:
    """What is due of them. Nothing is over before its grace is, nor while the clock is not believed."""

    def __init__(self, settings: Settings, keyring: Keyring, clock: BelievedClock, elapsed: Callable[[], float] = boottime_s) -> None:
        self._keyring, self._clock, self._elapsed = keyring, clock, elapsed
        self._grace_us, self._per_s = int(settings.destruction_grace_s * 1_000_000), settings.expiries_per_s
        self._limit = max(1, min(_AT_ONCE, int(self._per_s)))
        self._noted: dict[SecretRef, None] = {}
        self._found: list[SecretRef] = []
        self._due: list[SecretRef] = []
        self._next_s = self._paced_s = 0.0
        self._oldest: str | None = None

    def load(self, noted: Iterable[SecretRef]) -> None:
        """What stands in the log as noted; what was about to be is forgotten."""
        self._noted, self._found, self._due = dict.fromkeys(noted), [], []

    def look(self, now: int) -> bool:
        """Whether there is something to take. `now` in microseconds since the epoch."""
        if self._found or self._due:
            return True
        now_s = self._elapsed()
        if now_s < self._next_s:
            return False
        over = written(day_of(now - self._grace_us))
        believed = self._clock.agrees(now)
        self._next_s = now_s + _AGAIN_S
        if self._noted:
            self._oldest = min(ref.id for ref in self._noted)
            self._due = list(islice((ref for ref in self._noted if ref.id < over), self._limit)) if believed else []
        else:
            self._find(over, now_s, believed)
        return bool(self._found or self._due)

    def taken(self) -> tuple[list[SecretRef], list[SecretRef]]:
        """What is to be destroyed and told, and what is to be noted, by the caller, in one transaction."""
        due, self._due = self._due, []
        found, self._found = self._found, []
        for ref in due:
            del self._noted[ref]
        self._noted.update(dict.fromkeys(found))
        if found:
            self._next_s = self._elapsed()
        elif due:
            self._next_s = max(self._elapsed(), self._paced_s)
        return due, found

    def wait(self, until_s: float) -> None:
        self._next_s = max(self._next_s, until_s)

    def late_us(self, now: int) -> int:
        """For how long the oldest of those that are there could have been gone; 0 where none could."""
        return 0 if self._oldest is None else max(0, now - self._grace_us - day_end_us(self._oldest))

    def _find(self, over: str, now_s: float, believed: bool) -> None:
        try:
            found = self._keyring.days_before(over, self._limit)
        except Retriable as error:
            _log.warning("days_unseen", reason=error.detail)
            return
        self._oldest = found[0].id if found else None
        if not found:
            self._next_s = now_s + _EVERY_S
        elif believed:
            self._found, self._paced_s = found, now_s + len(found) / self._per_s
