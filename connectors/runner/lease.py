"""Keeps an attempt alive while its worker works, and says at once when it is lost.

Lost is what the service says is fenced, and what could not be renewed in time: by its own clock, counted from before the last renewal
was sent, the lease may be over, and whatever this process still does may already be somebody else's.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from connectors.runner.service import Fenced, Held
from session_streams import SessionStreamsError

_SHARE: Final = 3
"""A lease is renewed this often before it is over."""


class Lease:
    """Renews on a thread of its own within the block. `lost` is called there, once, when the attempt is lost."""

    def __init__(self, held: Held, lease_ms: int, lost: Callable[[], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._held, self._lease_ms, self._lost, self._clock = held, lease_ms, lost, clock
        self._until_s = clock() + lease_ms / 1000
        self._stop = threading.Event()
        self._is_lost = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def is_lost(self) -> bool:
        return self._is_lost.is_set() or self._clock() >= self._until_s

    def require(self) -> None:
        """Before anything is touched. Raises `Fenced`."""
        if self.is_lost:
            raise Fenced("the lease is over")

    def renew(self, number: int) -> None:
        """Raises `Fenced`, and what the client raises."""
        asked_s = self._clock()
        self._held.renew(self._lease_ms, self._held.key(f"renew/{number}"))
        self._until_s = asked_s + self._lease_ms / 1000

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._lease_ms / 1000 / _SHARE):
            number += 1
            try:
                self.renew(number)
            except Fenced:
                break
            except SessionStreamsError:
                # The service is away or busy; the next try may still come in time.
                if self.is_lost:
                    break
        else:
            return
        self._is_lost.set()
        if not self._stop.is_set():
            self._lost()

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
