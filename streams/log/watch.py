"""Ends the process when a call of the native client does not come back, since nothing else could.

Where the coordinator of the group dies under `send_offsets_to_transaction`, librdkafka waits without end, whatever the
call's own time-out says (confluentinc/librdkafka#5456). The process would stay alive, keep its partitions' stores open
and do nothing; gone, it is started again, and the log says what took effect.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

_log = structlog.get_logger(__name__)

EXIT_STATUS: Final = 5
"""As the command line has it: a process could not go on."""
_LOOK_S: Final = 0.5


class CallWatch:
    """One thread watches the calls of one client, of which one is under way at a time."""

    def __init__(self, name: str, limit_s: float) -> None:
        self._limit_s = limit_s
        self._under_way: tuple[float, str] | None = None
        self._closing = threading.Event()
        threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True).start()

    @contextmanager
    def over(self, doing: str) -> Iterator[None]:
        self._under_way = (time.monotonic(), doing)
        try:
            yield
        finally:
            self._under_way = None

    def close(self) -> None:
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_S):
            under_way = self._under_way
            if under_way is not None and time.monotonic() - under_way[0] > self._limit_s:
                _log.error("call_never_returns", doing=under_way[1], limit_s=self._limit_s)
                os._exit(EXIT_STATUS)
