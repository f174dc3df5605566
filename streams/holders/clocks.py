"""Whether this clock may say that the time of something is over, where that destroys it.

"Destruction cannot be undone, so it happens … only while local time agrees with the broker's log-append time within a minute" (design 04).
"""

from typing import Final

from streams.log.confirmations import ClockOffset

OLDEST_S: Final = 180.0
"""A measurement says something of a clock for so long: holders confirm more often."""


def clocks_agree(offset: ClockOffset | None, *, now_us: int, boottime_s: float, drift_s: float) -> bool:
    """`offset` is the last measurement; since then the broker's time has gone on as `boottime_s` has, whatever this clock was set to."""
    if offset is None:
        return False
    age_s = boottime_s - offset.measured_at_s
    broker_us = offset.at_us + offset.ahead_us + age_s * 1_000_000
    return 0 <= age_s <= OLDEST_S and abs(now_us - broker_us) <= drift_s * 1_000_000
