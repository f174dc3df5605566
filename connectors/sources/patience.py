"""Asks again, under the same key, while the other side is away; gives up after a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from streams.errors import Retriable

T = TypeVar("T")

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0


async def patiently(call: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """What `call` gives, once it gives something. Raises what it raised last where that took longer than `patience_s`."""
    deadline, delay_s = time.monotonic() + patience_s, _FIRST_DELAY_S
    while True:
        try:
            return await call()
        except Retriable as error:
            wait_s = max(delay_s, error.retry_after_s)
            if time.monotonic() + wait_s > deadline:
                raise
            await asyncio.sleep(wait_s)
            delay_s = min(delay_s * 2, _LONGEST_DELAY_S)
