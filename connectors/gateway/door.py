"""Turns appends away before anything is made of them: while a gateway has too much to do, refusing must be the least of it."""

import asyncio
from typing import Final

from connectors.gateway.answers import Answer
from connectors.gateway.guards import Admission
from connectors.gateway.metrics import Metrics

HOT_START, HOT_END = "/v1/sessions/sess_", "/events"
"""What is around a session's number in the path of the hottest routes."""
HOT_LENGTH: Final = len(HOT_START) + 32 + len(HOT_END)
_START, _END = HOT_START.encode(), HOT_END.encode()


class Door:
    """Belongs to one event loop. Knows of a request its method and path only, and so tells nobody anything."""

    def __init__(self, changes: Admission, metrics: Metrics, route: str, refusal: Answer) -> None:
        """`route` is under which name those turned away are counted."""
        self._changes, self._metrics, self._route, self._status = changes, metrics, route, refusal.status
        self._text = _written(refusal)
        self._loop = asyncio.get_running_loop()
        self._coming = 0

    def turns_away(self, method: bytes, url: bytes) -> bool:
        """Whether it is an append, and one too many."""
        if method != b"POST" or len(url) != HOT_LENGTH or not url.startswith(_START) or not url.endswith(_END):
            return False
        if self._changes.full(self._coming):
            return True
        # Those that are read in one turn of the loop begin in the next, where the first of them is preceded by this call.
        if not self._coming:
            self._loop.call_soon(self._begun)
        self._coming += 1
        return False

    def refuse(self) -> bytes:
        """The whole answer, counted as given."""
        self._metrics.observe(self._route, self._status, None)
        return self._text

    def _begun(self) -> None:
        self._coming = 0


def _written(answer: Answer) -> bytes:
    headers = [*answer.headers, (b"content-type", (answer.content_type or "").encode()), (b"content-length", b"%d" % len(answer.body))]
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"HTTP/1.1 %d Service Unavailable\r\n%s\r\n%s" % (answer.status, lines, answer.body)
