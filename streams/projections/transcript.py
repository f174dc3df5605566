"""Every event of a session under its sequence, as the bytes of the log; and a marker where one could not be read.

    e/<session id>/<sequence, 8 bytes>                                   the event's value
    u/<session id>/<sequence before it, 8 bytes><offset, 8 bytes>        why a record was set aside
    x/<offset, 8 bytes>                                                  the same, where its key names no session

Content stays sealed here.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from streams.log.reader import Record
from streams.projections.projection import Unreadable
from streams.session.events import Event
from streams.store.table import Put, Reads

_EVENT: Final = b"e/"
_SET_ASIDE: Final = b"u/"
_NAMELESS: Final = b"x/"
_NUMBER_BYTES: Final = 8


class Marker(Struct, frozen=True, array_like=True):
    """A record of the session that is in the log at `offset` and cannot be shown. `after_sequence`: what stands before it."""

    after_sequence: int
    offset: int
    reason: str


_encode = msgspec.msgpack.Encoder().encode
_decode_marker = msgspec.msgpack.Decoder(Marker).decode


def _number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_BYTES, "big")


def events_prefix(session_id: str) -> bytes:
    return b"%s%s/" % (_EVENT, session_id.encode())


def event_key(session_id: str, sequence: int) -> bytes:
    return events_prefix(session_id) + _number(sequence)


def sequence_of(key: bytes) -> int:
    return int.from_bytes(key[-_NUMBER_BYTES:], "big")


def markers(rows: Reads, session_id: str, after: int, through: int) -> tuple[Marker, ...]:
    """Those that stand behind sequence `after` (or behind nothing newer) and not behind `through`, in order."""
    prefix = b"%s%s/" % (_SET_ASIDE, session_id.encode())
    found = []
    with rows.scan(prefix, start=prefix + _number(after)) as pairs:
        for _, value in pairs:
            marker = _decode_marker(value)
            if marker.after_sequence > through:
                break
            found.append(marker)
    return tuple(found)


def any_set_aside(rows: Reads, session_id: str | None = None) -> bool:
    """Whether there is a marker; of one session where it is given."""
    prefix = _SET_ASIDE if session_id is None else b"%s%s/" % (_SET_ASIDE, session_id.encode())
    with rows.scan(prefix) as pairs:
        return next(iter(pairs), None) is not None


class TranscriptView:
    name = "transcript"
    version = 1

    def begin(self, rows: Reads) -> "TranscriptFold":
        return TranscriptFold(rows)


class TranscriptFold:
    def __init__(self, rows: Reads) -> None:
        self._stored = rows
        self._last: dict[str, int] = {}
        self._puts: list[Put] = []

    def apply(self, event: Event, record: Record) -> None:
        self._last[event.session_id] = event.sequence
        self._puts.append((event_key(event.session_id, event.sequence), record.value))

    def set_aside(self, unreadable: Unreadable) -> None:
        if unreadable.session_id is None:
            key, after = _NAMELESS, 0
        else:
            key, after = b"%s%s/" % (_SET_ASIDE, unreadable.session_id.encode()), self._last_sequence(unreadable.session_id)
            key += _number(after)
        self._puts.append((key + _number(unreadable.offset), _encode(Marker(after, unreadable.offset, unreadable.reason))))

    def awaited(self) -> tuple[str, ...]:
        return ()

    def puts(self) -> Iterator[Put]:
        return iter(self._puts)

    def _last_sequence(self, session_id: str) -> int:
        last = self._last.get(session_id)
        if last is None:
            with self._stored.scan(events_prefix(session_id), reverse=True) as pairs:
                last = next((sequence_of(key) for key, _ in pairs), 0)
        return last
