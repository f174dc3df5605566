"""Crash points: places in the loop where a test has the process killed or stopped, passed in as values (`after_produce:3`)."""

import os
import signal
from enum import StrEnum
from typing import Protocol

from streams.errors import Misconfigured


class CrashPoint(StrEnum):
    """In the order in which a batch meets them."""

    AFTER_CONSUME = "after_consume"
    AFTER_BEGIN = "after_begin"
    AFTER_DECIDE = "after_decide"
    AFTER_PRODUCE = "after_produce"
    AFTER_SEND_OFFSETS = "after_send_offsets"
    AFTER_COMMIT = "after_commit"
    """The transaction has ended; its markers may not have been written yet, and the store is behind."""
    AFTER_STORE_WRITE = "after_store_write"
    IN_RESTORE = "in_restore"


class Crash(Protocol):
    def reached(self, point: CrashPoint) -> None: ...


class NoCrash:
    def reached(self, point: CrashPoint) -> None:
        """Goes on."""


class KillAt:
    """SIGKILL (or `number`, SIGSTOP say) to this process when `point` is reached for the `count`-th time."""

    def __init__(self, point: CrashPoint, count: int, number: signal.Signals = signal.SIGKILL) -> None:
        self._point, self._left, self._number = point, count, number

    @classmethod
    def parse(cls, text: str) -> "KillAt":
        """`point[:count[:signal]]`. Raises `Misconfigured`."""
        name, count, number = [*text.split(":"), "", ""][:3]
        try:
            return cls(CrashPoint(name), int(count or "1"), signal.Signals[number or "SIGKILL"])
        except (ValueError, KeyError) as error:
            raise Misconfigured(f"crash point {text!r}: one of {', '.join(CrashPoint)}, then :count and :signal") from error

    def reached(self, point: CrashPoint) -> None:
        if point is self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._number)
