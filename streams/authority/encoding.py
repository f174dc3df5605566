"""The authority's state <-> bytes: `schemas/state/`. What cannot be read here makes the store unusable.

A session's header, an outcome and a chunk of outcomes pass with every command, and so without fastavro (see
`schemas.primitives`); everything else goes through the codec, and so does what of them is not as it is written here.
"""

import re
from typing import Any, Final

import msgspec

from schemas import codec
from schemas.primitives import long_at, long_bytes, long_of, long_text, sized, text
from streams.errors import StoreUnusable
from streams.log.outcomes import Told
from streams.log.shapes.patterns import A_LONG, SESSION, SUBJECT, WORKSPACE, optional
from streams.session.items import KINDS, Item, SessionState, from_record, to_record
from streams.session.outcomes import Outcome

_SUBJECTS: Final = {kind: f"state/{kind}" for kind in KINDS}
_HEADER: Final = "state/session"
_CHUNK: Final = "state/outcome-chunk"
_RECORDED: Final = "state/recorded-outcome"
_ID_SIZE, _DIGEST_SIZE = 2 * 16, 2 * 32
"""As Avro writes them."""

_WORD: Final = r"([\x02-\x7e][a-z_]+)"
"""With its length in front."""
_DAY: Final = r"\x14([0-9-]{10})"
_HEADER_SHAPE: Final = re.compile(
    f"{SESSION}{WORKSPACE}{optional(SUBJECT)}{_WORD * 3}{A_LONG * 3}@(.{{32}}){A_LONG * 3}{optional(_DAY)}{A_LONG * 4}",
    re.DOTALL,
)
"""Of a header whose events are chained."""

Entry = tuple[bytes, bytes, bytes]
"""Command id (16 bytes), request digest, encoded outcome."""


def encode_state(kind: str, item: Item) -> bytes:
    """A whole value of the kind's schema (`streams.session.items.KINDS`)."""
    if type(item) is SessionState:
        return encode_header(header_prefix(item), item)
    return codec.encode(_SUBJECTS[kind], to_record(item))


def decode_state(kind: str, value: bytes) -> Item:
    """Raises `StoreUnusable`."""
    header = _read_header(value) if kind == "session" else None
    return from_record(kind, _decoded(_SUBJECTS[kind], value)) if header is None else header


def encode_chunk(decided_at: int, entries: list[Entry]) -> bytes:
    """A whole value. `decided_at` in microseconds since the epoch."""
    parts = [codec.header(_CHUNK), long_bytes(decided_at)]
    if entries:
        parts.append(long_bytes(len(entries)))
        for command_id, digest, outcome in entries:
            parts += (sized(command_id), sized(digest), sized(outcome))
    parts.append(b"\x00")
    return b"".join(parts)


def decode_chunk(value: bytes) -> tuple[int, list[Entry]]:
    """When it was decided, and its entries. Raises `StoreUnusable`."""
    header = codec.header(_CHUNK)
    if value.startswith(header):
        try:
            return _walked(value, len(header))
        except IndexError:
            pass  # not as `encode_chunk` writes it, or damaged: the codec reads it, or says so
    record = _decoded(_CHUNK, value)
    return record["decided_at"], [(row["command_id"], row["request_digest"], row["outcome"]) for row in record["entries"]]


def _walked(value: bytes, at: int) -> tuple[int, list[Entry]]:
    """As `decode_chunk`, of one block of entries, in half of the codec's time: a restore reads as many as there are sessions.

    Raises `IndexError` where it is not that.
    """
    decided_at, at = long_at(value, at)
    count, at = long_at(value, at)
    entries: list[Entry] = []
    for _ in range(count):
        if value[at] != _ID_SIZE or value[at + 17] != _DIGEST_SIZE:
            raise IndexError("not the sizes of an id and a digest")
        size, start = long_at(value, at + 50)
        entries.append((value[at + 1 : at + 17], value[at + 18 : at + 50], value[start : start + size]))
        if size < 0:
            raise IndexError("a size below zero")
        at = start + size
    if count < 0 or value[at:] != (b"\x00" if count else b""):
        raise IndexError("more than one block, or cut off")
    return decided_at, entries


def encode_recorded(told: Told) -> bytes:
    """A whole value; `decode_recorded` reads it."""
    return codec.header(_RECORDED) + told.recorded()


def decode_recorded(command_id: str, value: bytes) -> Outcome:
    """The outcome as recorded, not yet addressed to anyone. Raises `StoreUnusable`."""
    return msgspec.convert({**_decoded(_RECORDED, value), "command_id": command_id, "correlation": 0}, Outcome)


def header_prefix(session: SessionState) -> bytes:
    """The bytes of a header up to `created_at`: of all that, only the status ever changes."""
    subject_id = session.subject_id
    prefix = (
        f"{text(session.session_id)}{text(session.workspace_id)}{chr(0) if subject_id is None else chr(2) + text(subject_id)}"
        f"{text(session.status)}{text(session.origin)}{text(session.policy_mode)}"
        f"{long_text(session.content_window_days)}{long_text(session.created_at)}"
    )
    return codec.header(_HEADER) + prefix.encode("latin-1")


def encode_header(prefix: bytes, session: SessionState) -> bytes:
    """`encode_state` of a header whose `header_prefix` is known."""
    day = session.content_day
    moved = (
        f"{long_text(session.last_accepted_at)}{long_text(session.last_command_offset)}{long_text(session.checkpoint_window_s)}"
        f"{chr(0) if day is None else chr(2) + text(day)}{long_text(session.content_first)}{long_text(session.content_last)}"
        f"{long_text(session.omitted_first)}{long_text(session.omitted_last)}"
    ).encode("latin-1")
    return b"".join((prefix, long_bytes(session.sequence), sized(session.last_hash), moved))


def _read_header(value: bytes) -> SessionState | None:
    """None: not as `encode_header` writes it; the codec says what it is."""
    before = codec.header(_HEADER)
    match = _HEADER_SHAPE.fullmatch(value.decode("latin-1"), len(before)) if value.startswith(before) else None
    if match is None:
        return None
    (
        session_id, workspace_id, subject_id, status, origin, mode, window, created_at, sequence, last_hash, accepted_at, offset,
        checkpoint_window, day, first, last, omitted_first, omitted_last,
    ) = match.groups()  # fmt: skip
    if not (_is_sized(status) and _is_sized(origin) and _is_sized(mode)):
        return None
    return SessionState(
        session_id=session_id, workspace_id=workspace_id, subject_id=subject_id, status=status[1:], origin=origin[1:], policy_mode=mode[1:],
        content_window_days=long_of(window), created_at=long_of(created_at), sequence=long_of(sequence),
        last_hash=last_hash.encode("latin-1"), last_accepted_at=long_of(accepted_at), last_command_offset=long_of(offset),
        checkpoint_window_s=long_of(checkpoint_window), content_day=day, content_first=long_of(first), content_last=long_of(last),
        omitted_first=long_of(omitted_first), omitted_last=long_of(omitted_last),
    )  # fmt: skip


def _is_sized(word: str) -> bool:
    return ord(word[0]) == 2 * (len(word) - 1)


def _decoded(subject: str, value: bytes) -> dict[str, Any]:
    try:
        return codec.decode_as(subject, value)
    except codec.Undecodable as error:
        raise StoreUnusable(f"{subject}: {error}") from error
