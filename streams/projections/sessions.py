"""One row a session, and the order in which a workspace, or one subject of it, lists its sessions.

    s/<session id>                                               the row
    l/<workspace id>/<created_at, 8 bytes><session id>           all sessions of a workspace, oldest first
    b/<workspace id>/<subject id>/<created_at><session id>       those of a subject

`created_at` is the accepted time of the first event, so a session never moves in a listing and a cursor stays good.
Rows hold identifiers, enumerations, times, counts and digests only.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from streams.errors import RecordUnreadable
from streams.log.reader import Record
from streams.projections.projection import Unreadable
from streams.session.events import Event, MessageAttributes, SessionAttributes, SourceAttributes
from streams.store.table import Put, Reads

_ROW: Final = b"s/"
_BY_WORKSPACE: Final = b"l/"
_BY_SUBJECT: Final = b"b/"
_TIME_BYTES: Final = 8

OPEN: Final = "open"
CLOSED: Final = "closed"


class SourceCursor(Struct, frozen=True, array_like=True):
    """How far a source was taken in: its record with the highest index, and that record's digest."""

    kind: str | None
    index: int
    digest: str | None


class Lineage(Struct, frozen=True, array_like=True):
    """From what a session was forked: a prefix of its source, by reference. `source_hash` is that of the event `through_sequence`
    there, 64 hex digits; `depth` counts ancestors."""

    source_session_id: str
    fork_id: str | None
    through_sequence: int
    through_event_id: str | None
    source_hash: str | None
    depth: int
    checkpoint_id: str | None


class SessionRow(Struct, array_like=True):
    """A session as its events tell it. Times in microseconds since the epoch, UTC; `counts` by event type.

    Whoever is given a row reads it; only the fold below changes one.
    """

    session_id: str
    workspace_id: str
    subject_id: str | None
    status: str
    origin: str | None
    policy_mode: str | None
    content_window_days: int | None
    created_at: int
    last_accepted_at: int
    sequence: int
    last_command_offset: int
    counts: dict[str, int]
    source: SourceCursor | None
    checkpoint_window_s: int | None = None
    lineage: Lineage | None = None


_encoder = msgspec.msgpack.Encoder()
_decode = msgspec.msgpack.Decoder(SessionRow).decode


def row_key(session_id: str) -> bytes:
    return _ROW + session_id.encode()


def decode_row(value: bytes) -> SessionRow:
    return _decode(value)


def listing_prefix(workspace_id: str, subject_id: str | None) -> bytes:
    """The prefix of the listing of a workspace, or of one subject in it."""
    if subject_id is None:
        return b"%s%s/" % (_BY_WORKSPACE, workspace_id.encode())
    return b"%s%s/%s/" % (_BY_SUBJECT, workspace_id.encode(), subject_id.encode())


def listing_key(prefix: bytes, created_at: int, session_id: str) -> bytes:
    return b"%s%s%s" % (prefix, created_at.to_bytes(_TIME_BYTES, "big"), session_id.encode())


def listed(prefix: bytes, key: bytes) -> tuple[int, str]:
    """`created_at` and session id of a row of a listing."""
    rest = key[len(prefix) :]
    return int.from_bytes(rest[:_TIME_BYTES], "big"), rest[_TIME_BYTES:].decode()


class SessionsView:
    name = "sessions"
    version = 2

    def begin(self, rows: Reads) -> "SessionsFold":
        return SessionsFold(rows)


class SessionsFold:
    """Rows of the batch's sessions, each read once and written once."""

    def __init__(self, rows: Reads) -> None:
        self._stored = rows
        self._rows: dict[str, SessionRow] = {}
        self._listed: list[bytes] = []

    def apply(self, event: Event, record: Record) -> None:
        """Raises `RecordUnreadable` for a sequence that the session has already passed: accepted events are not rewritten."""
        row = self._row(event.session_id)
        if row is None:
            row = self._begun(event)
        elif event.sequence <= row.sequence:
            raise RecordUnreadable(f"sequence.repeated: {event.sequence} after {row.sequence}", code="sequence.repeated")
        row.sequence = event.sequence
        row.last_accepted_at = event.accepted_at
        row.last_command_offset = event.command_offset
        row.counts[event.type] = row.counts.get(event.type, 0) + 1
        match event.attributes:
            case SourceAttributes() | MessageAttributes() as attributes if attributes.source_index is not None:
                if row.source is None or attributes.source_index >= row.source.index:
                    row.source = SourceCursor(attributes.source_kind, attributes.source_index, attributes.source_digest)
            case SessionAttributes() as attributes if event.type == "session.created":
                row.origin = attributes.origin
                row.policy_mode = attributes.policy_mode
                row.content_window_days = attributes.content_window_days
                row.checkpoint_window_s = attributes.checkpoint_window_s
                row.lineage = _lineage(attributes)
        if event.type == "session.closed":
            row.status = CLOSED

    def set_aside(self, unreadable: Unreadable) -> None:
        """A row tells what could be read; the transcript shows the gap."""

    def awaited(self) -> tuple[str, ...]:
        return ()

    def puts(self) -> Iterator[Put]:
        for key in self._listed:
            yield key, b""
        for session_id, row in self._rows.items():
            yield row_key(session_id), _encoder.encode(row)

    def _row(self, session_id: str) -> SessionRow | None:
        row = self._rows.get(session_id)
        if row is None:
            value = self._stored.get(row_key(session_id))
            if value is not None:
                row = self._rows[session_id] = _decode(value)
        return row

    def _begun(self, event: Event) -> SessionRow:
        row = SessionRow(
            event.session_id, event.workspace_id, event.subject_id, OPEN, None, None, None,
            event.accepted_at, event.accepted_at, 0, event.command_offset, {}, None,
        )  # fmt: skip
        self._rows[event.session_id] = row
        for subject_id in dict.fromkeys((None, event.subject_id)):
            self._listed.append(listing_key(listing_prefix(event.workspace_id, subject_id), event.accepted_at, event.session_id))
        return row


def _lineage(created: SessionAttributes) -> Lineage | None:
    """None for a session that is no fork."""
    if created.source_session_id is None:
        return None
    return Lineage(
        created.source_session_id, created.fork_id, created.through_sequence or 0, created.through_event_id, created.source_hash,
        created.depth or 1, created.checkpoint_id,
    )  # fmt: skip
