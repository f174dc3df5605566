"""How much opened content a gateway has in memory at once, however many read texts that no record holds.

Two bounds: threads that have fetched such a text go on one or two at a time until they are done with it (`TextGate`), and what
they made of it waits for its caller within a budget (`Gateway.holding`). Content within records needs neither.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from streams.custody.claim_checks import ClaimCheck, FetchText
from streams.errors import Overloaded

HELD_FROM_BYTES: Final = 1024 * 1024
"""Less is not counted."""
_THREADS_AT_ONCE: Final = 2
_PATIENCE_S: Final = 2.0


class TextGate:
    """A `FetchText` of which a thread has a place from its first text on until it leaves."""

    def __init__(self, fetch: FetchText, *, at_once: int = _THREADS_AT_ONCE, patience_s: float = _PATIENCE_S) -> None:
        self._fetch, self._patience_s = fetch, patience_s
        self._places = threading.BoundedSemaphore(at_once)
        self._thread = threading.local()

    def __call__(self, claim: ClaimCheck) -> bytes:
        """Raises `Overloaded` where no place becomes free in time, and what fetching raises."""
        if not getattr(self._thread, "inside", False):
            if not self._places.acquire(timeout=self._patience_s):
                raise Overloaded("too many large texts are being read")
            self._thread.inside = True
        return self._fetch(claim)

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Gives the thread's place back, if it took one meanwhile."""
        try:
            yield
        finally:
            if getattr(self._thread, "inside", False):
                self._thread.inside = False
                self._places.release()
