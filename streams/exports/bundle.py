"""A Session Bundle, `checkfu.session-bundle`: the export of a session and what follows from it, in one file that somebody has signed.

- The file is lines: those of the export as they are, those of the other sections, and at last the envelope with the signed manifest. So
  it is sent while it is made, no content of it waits on a disk, and one that is cut has no signature.
- The manifest names each section with its source, number of items, length, digest, and typed gaps: that a section is empty is said, and
  why (seed "Event log vs Session Bundle").
- The same lines under the same key give the same bytes: no time stands in it, and Ed25519 has one signature for one message.

docs/bundle.md has the format; `session_streams.bundle` checks it and shares no code with this.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import rfc8785

from streams.custody.signing import Envelope
from streams.exports import lines
from streams.exports.sections import ACTORS, EVENTS, FAMILIES, NAMES, Sections

FORMAT: Final = "checkfu.session-bundle"
VERSION: Final = 1
PAYLOAD_TYPE: Final = "application/vnd.checkfu.session-bundle+json"
_NO_POSITION: Final = (b'{"kind":"header",', b'{"kind":"trailer",', b'{"kind":"error",')
_PIECE_BYTES: Final = 256 * 1024

Sign = Callable[[str, bytes], Envelope]
"""Of a payload's type and bytes: `SigningKey.sign`."""


class _Written:
    """What the manifest says of the bytes of a section."""

    def __init__(self) -> None:
        self.items = self.size = 0
        self._hashed = hashlib.sha256()

    def add(self, data: bytes, items: int) -> None:
        self.items += items
        self.size += len(data)
        self._hashed.update(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hashed.hexdigest()}"


class Bundle:
    """`add` the lines of a whole export as they are sent; then send what is `behind` them. Close it in the end.

    Held are one piece, and what `Sections` holds; the rest waits in a file in `folder`. Raises OSError and `sqlite3.Error` where
    there is no room for that. `close` waits for a step that is running in another thread; the next one raises `sqlite3.Error`.
    """

    def __init__(self, session_id: str, folder: Path) -> None:
        self._session_id = session_id
        self._sections = Sections(folder)
        self._written = {name: _Written() for name in NAMES}

    def add(self, data: bytes) -> None:
        """Whole lines of the export, from its header to its trailer."""
        self._written[EVENTS].add(data, 0)
        for line in data.splitlines(keepends=True):
            if not line.startswith(_NO_POSITION):
                self._sections.add(line)

    def behind(self, sign: Sign) -> Iterator[bytes]:
        """The sections behind the events, and the envelope, in pieces. The envelope is the last one, and `sign` is called for it."""
        self._written[EVENTS].items = self._sections.end_sequence
        for name in NAMES[1:]:
            yield from self._section(name)
        envelope = sign(PAYLOAD_TYPE, rfc8785.dumps(self._manifest()))
        yield msgspec.json.encode(envelope, order="sorted") + b"\n"

    def close(self) -> None:
        self._sections.close()

    def _section(self, name: str) -> Iterator[bytes]:
        waiting: list[bytes] = []
        size = 0
        for line in self._sections.items(name):
            waiting.append(line)
            size += len(line)
            if size >= _PIECE_BYTES:
                yield self._piece(name, waiting)
                waiting, size = [], 0
        if waiting:
            yield self._piece(name, waiting)

    def _piece(self, name: str, waiting: list[bytes]) -> bytes:
        data = b"".join(waiting)
        self._written[name].add(data, len(waiting))
        return data

    def _manifest(self) -> dict[str, Any]:
        told = self._sections
        return {
            "format": FORMAT,
            "schema_version": VERSION,
            "session_id": self._session_id,
            "workspace_id": told.workspace_id,
            "end_sequence": told.end_sequence,
            "last_hash": told.last_hash,
            "sections": [self._told(name) for name in NAMES],
        }

    def _told(self, name: str) -> dict[str, Any]:
        written = self._written[name]
        return {
            "name": name,
            "source": self._source(name),
            "items": written.items,
            "bytes": written.size,
            "digest": written.digest,
            "gaps": msgspec.to_builtins(self._sections.gaps(name)),
        }

    def _source(self, name: str) -> dict[str, Any]:
        """What it was made of."""
        through = {"from_sequence": 1, "through_sequence": self._sections.end_sequence}
        if name == EVENTS:
            return {**through, "kind": "session_log", "format": lines.FORMAT, "format_version": lines.VERSION}
        made_of = {"members": ["actor_id", "subject_id"]} if name == ACTORS else {"families": list(FAMILIES[name])}
        return {**through, "kind": "session_events", **made_of}
