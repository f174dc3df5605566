"""UTC days, by which content expires: as ordinals (`date.toordinal`) to count with, as YYYY-MM-DD in records; moments, for people."""

from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

US_PER_DAY: Final = 24 * 3600 * 1_000_000
FIRST_DAY: Final = 1
LAST_DAY: Final = date.max.toordinal()
"""There is no other day that can be written."""
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)


def day_of(moment_us: int) -> int:
    """The day of a moment, in microseconds since the epoch."""
    return _EPOCH_DAY + moment_us // US_PER_DAY


def day_begin_us(day: int) -> int:
    """Its first microsecond, since the epoch."""
    return (day - _EPOCH_DAY) * US_PER_DAY


@lru_cache(4096)
def written(day: int) -> str:
    """YYYY-MM-DD, so that days compare as text does. Raises ValueError outside of `FIRST_DAY` to `LAST_DAY`."""
    return date.fromordinal(day).isoformat()


def moment(moment_us: int) -> str:
    """RFC 3339 in UTC of microseconds since the epoch; the bare number where no such date can be written."""
    if not FIRST_DAY <= day_of(moment_us) <= LAST_DAY:
        return str(moment_us)
    return (_EPOCH + timedelta(microseconds=moment_us)).isoformat() + "Z"
