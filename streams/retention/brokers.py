"""Which brokers are there, looked at now and then: one that was away for long comes back with what the others have removed
(design 09: "a follower that was away longer than `delete.retention.ms` never gets the tombstone")."""

import threading
from collections.abc import Callable
from typing import Final

import structlog

from streams.errors import StreamsError
from streams.settings import Settings

_LONGEST_S: Final = 3_600.0
_SHARE: Final = 20
_log = structlog.get_logger(__name__)


def pace_s(settings: Settings) -> float:
    """How often the brokers are looked at, and noted: well within the horizon of tombstones."""
    return max(0.25, min(_LONGEST_S, settings.tombstone_horizon_s / _SHARE))


def absences(last_seen_us: int, now_us: int, settings: Settings) -> bool:
    """Whether a broker was away for so long that it may have missed a tombstone: for a quarter of their horizon, and for several looks,
    where the horizon is so short that each look would count as an absence."""
    # A time that is yet to come was told by a clock that was wrong: how long it was away nobody knows.
    return abs(now_us - last_seen_us) > max(settings.tombstone_horizon_s / 4, 4 * pace_s(settings)) * 1_000_000


class SeenBrokers:
    """Looks in a thread of its own, from `start` until `close`."""

    def __init__(self, settings: Settings, look: Callable[[], frozenset[int]]) -> None:
        """`look` gives the ids of the brokers that answer. Raises StreamsError."""
        self._look, self._pace_s = look, pace_s(settings)
        self._found: frozenset[int] = frozenset()
        self._noted_us = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="brokers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def is_due(self, now: int) -> bool:
        """Whether what was seen is to be noted. `now` in microseconds since the epoch."""
        # A clock that was put back makes it due as well.
        return bool(self._found) and not 0 <= now - self._noted_us < self._pace_s * 1_000_000

    def seen(self, now: int) -> list[int]:
        """Takes what was seen."""
        self._noted_us = now
        return sorted(self._found)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._found = self._look()
            except StreamsError as error:
                self._found = frozenset()
                _log.warning("brokers_unseen", reason=error.detail)
            self._closing.wait(self._pace_s)
