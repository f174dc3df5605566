"""A clock that is acted on only while the broker's agrees with it, where what is done cannot be taken back."""

from collections.abc import Callable
from typing import Final

import structlog

from streams.clock import boottime_s
from streams.holders.clocks import clocks_agree
from streams.log.confirmations import ClockOffset
from streams.settings import Settings

_log = structlog.get_logger(__name__)
_ROLE: Final = "retention"


class BelievedClock:
    """`offset`: how far the broker's clock is ahead, as measured last; what asks for it has it measured anew."""

    def __init__(self, settings: Settings, offset: Callable[[], ClockOffset | None], elapsed: Callable[[], float] = boottime_s) -> None:
        self._offset, self._elapsed, self._drift_s = offset, elapsed, settings.clock_drift_s
        self.known: ClockOffset | None = None
        """As it was when it was asked for last."""
        self.stopped = False
        """Whether what waits for a time waits on, because the two disagree."""

    def agrees(self, now: int) -> bool:
        """`now` in microseconds since the epoch. Where the two disagree, that is said once."""
        self.known = self._offset()
        agrees = clocks_agree(self.known, now_us=now, boottime_s=self._elapsed(), drift_s=self._drift_s)
        if self.known is not None and not agrees and not self.stopped:
            _log.error("clock_disagrees", role=_ROLE, broker_ahead_us=self.known.ahead_us, limit_s=self._drift_s)
        self.stopped = self.known is not None and not agrees
        return agrees
