"""When the day is over by which secrets end and content expires."""

from datetime import date
from functools import lru_cache

from streams.errors import Invalid
from streams.session.days import day_begin_us, day_of, written


def content_expiry_day(now_us: int, window_days: int) -> str:
    """The UTC day (YYYY-MM-DD) of (now + window) plus one: content stays readable to that day's end. `now_us` since the epoch."""
    return written(day_of(now_us) + window_days + 1)


@lru_cache(4096)
def day_end_us(day: str) -> int:
    """The first microsecond after a UTC day, since the epoch. Raises `Invalid` for what is no day."""
    try:
        ordinal = date.fromisoformat(day).toordinal()
    except ValueError:
        raise Invalid("expiry day: expected YYYY-MM-DD") from None
    return day_begin_us(ordinal + 1)
