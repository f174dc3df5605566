"""An export on its way: whole lines out of pieces, over as many answers as it takes. Pure: the clients ask, wait and send.

The first header names the end; an answer that breaks off is continued behind its last whole line, and what comes then
must be of the same export. With `lineage` there is one export after the other, a session's behind its source's; the last one is
that of the session itself. Nothing is verified here: `session_streams.export` does that.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from session_streams.errors import ApiError, ExportChanged, error_of
from session_streams.requests import Request, session_path

NDJSON: Final = "application/x-ndjson"
_LINE: Final = re.compile(rb'\{"kind":"([a-z]{1,20})"(?:,"sequence":([0-9]{1,18}),)?')


class Transfer:
    """`feed` what comes, until `done`; after each break send `next_request()`. `failure` is what the service gave as its reason."""

    def __init__(self, session_id: str, *, from_sequence: int = 1, end_sequence: int | None = None, lineage: bool = False) -> None:
        self.done = False
        self.failure: ApiError | None = None
        self._session_id, self._lineage = session_id, lineage
        self._section = None if lineage else session_id
        """Whose positions come; None: the first header tells."""
        self._between = False
        """Behind an ancestor's trailer: the next session's header is due."""
        self._next, self._end = from_sequence, end_sequence
        self._header: dict[str, Any] | None = None
        self._pending = bytearray()
        self._awaits_header = True

    def next_request(self) -> Request:
        self._pending.clear()
        self._awaits_header, self.failure = True, None
        params = {"lineage": "true"} if self._lineage else {"from_sequence": str(self._next)}
        if self._lineage and self._section is not None:
            params["cursor"] = f"{self._section}:{self._next - 1}"
        if self._end is not None:
            params["end_sequence"] = str(self._end)
        return Request("GET", session_path(self._session_id) + "/export", {"accept": NDJSON}, params)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines of the export that are whole now, each with its line end. Raises `ExportChanged`."""
        start = 0
        while not self.done and self.failure is None and (end := piece.find(b"\n", start)) >= 0:
            self._pending += piece[start : end + 1]
            line = bytes(self._pending)
            self._pending.clear()
            start = end + 1
            if self._take(line):
                yield line
        self._pending += piece[start:]

    def _take(self, line: bytes) -> bool:
        """Whether the line belongs to the export, and not just to its way."""
        found = _LINE.match(line)
        kind = None if found is None else found[1]
        if self._awaits_header:
            self._awaits_header = False
            return self._take_header(kind, line)
        match kind:
            case b"event" | b"unavailable" | b"missing" if found is not None and found[2] is not None and int(found[2]) == self._next:
                self._next += 1
            case b"trailer" if self._between:
                # It was there before the break.
                return False
            case b"trailer":
                self.done = self._section == self._session_id
                self._between = not self.done
            case b"header" if self._between:
                self._section, self._next, self._header, self._between = None, 1, None, False
                return self._take_header(kind, line)
            case b"error":
                said = _object(line)
                self.failure = error_of(int(said.get("status", 500)), line)
                return False
            case _:
                raise ExportChanged(f"position {self._next} of {self._session_id} was due, and another line came")
        return True

    def _take_header(self, kind: bytes | None, line: bytes) -> bool:
        header = _object(line)
        if self._section is None:
            self._section = str(header.get("session_id"))
        if kind != b"header" or header.get("session_id") != self._section or header.get("from_sequence") != self._next:
            raise ExportChanged(f"no export of {self._section} from position {self._next} came")
        first, self._header = self._header, self._header or header
        if first is not None:
            if {**first, "from_sequence": self._next} != header:
                raise ExportChanged(f"the export of {self._session_id} goes on under another header")
            return False
        if self._section == self._session_id:
            self._end = int(header["end_sequence"])
        return True


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
