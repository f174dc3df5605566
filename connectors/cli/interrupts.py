"""Ctrl-C stops cleanly; pressed again, it stops at once. SIGTERM and SIGHUP count as a Ctrl-C."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from connectors.cli.console import INTERRUPTED, remark

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Someone asked to stop. Not an `Exception`, so that no handler for errors takes it for one."""


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """For a role: the event is set by the first signal; the second ends the process."""
    event = threading.Event()

    def first() -> None:
        event.set()

    with _handled(first, lambda: None):
        yield event


@contextmanager
def raising(at_once: Callable[[], None]) -> Iterator[None]:
    """The first signal raises `Stopped` in the main thread, wherever it is; the second calls `at_once` and ends the process."""

    def first() -> None:
        raise Stopped

    with _handled(first, at_once):
        yield


@contextmanager
def _handled(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    seen = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            first()
        else:
            remark("stopping at once")
            second()
            # Nothing of this process is waited for any more, threads included.
            os._exit(INTERRUPTED)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
