"""UTC days, by which secrets end and content expires."""

from datetime import date, timedelta
from functools import lru_cache
from typing import Final

from streams.errors import Invalid

_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = date(1970, 1, 1)


def content_expiry_day(now_us: int, window_days: int) -> str:
    """The UTC day (YYYY-MM-DD) of (now + window) plus one: content stays readable to that day's end. `now_us` since the epoch."""
    return _day(now_us // _DAY_US + window_days + 1)


@lru_cache(4096)
def _day(number: int) -> str:
    """The UTC day that begins so many days after the epoch."""
    return (_FIRST_DAY + timedelta(days=number)).isoformat()


@lru_cache(4096)
def day_end_us(day: str) -> int:
    """The first microsecond after a UTC day, since the epoch. Raises `Invalid` for what is no day."""
    try:
        days = (date.fromisoformat(day) - _FIRST_DAY).days + 1
    except ValueError:
        raise Invalid("expiry day: expected YYYY-MM-DD") from None
    return days * _DAY_US
