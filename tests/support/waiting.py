"""Waits for what is to become true, instead of sleeping for as long as it should take."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], *, timeout_s: float = 10, every_s: float = 0.05) -> None:
    """Raises AssertionError where `condition` is not true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not true within {timeout_s} s"
        time.sleep(every_s)
