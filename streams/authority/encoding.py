"""The authority's state <-> bytes: `schemas/state/`. What cannot be read here makes the store unusable.

A session's header, an outcome and a chunk of outcomes are written with every command, and so without fastavro: see
`schemas.primitives`. Everything else is, and everything is read by it.
"""

from typing import Any, Final

from schemas import codec
from schemas.primitives import long_bytes, long_text, sized, text
from streams.errors import StoreUnusable
from streams.log.shapes.outcomes import written_recorded
from streams.session.items import KINDS, Item, SessionState, from_record, to_record
from streams.session.outcomes import Grant, Outcome

_SUBJECTS: Final = {kind: f"state/{kind}" for kind in KINDS}
_GRANT: Final = "grant"
_HEADER: Final = "state/session"
_CHUNK: Final = "state/outcome-chunk"
_RECORDED: Final = "state/recorded-outcome"

Entry = tuple[bytes, bytes, bytes]
"""Command id (16 bytes), request digest, encoded outcome."""


def encode_state(kind: str, item: Item) -> bytes:
    if type(item) is SessionState:
        return codec.header(_HEADER) + _header(item)
    return codec.encode(_SUBJECTS[kind], to_record(item))


def decode_state(kind: str, value: bytes) -> Item:
    """Raises `StoreUnusable`."""
    return from_record(kind, _decoded(_SUBJECTS[kind], value))


def encode_chunk(decided_at: int, entries: list[Entry]) -> bytes:
    parts = [codec.header(_CHUNK), long_bytes(decided_at)]
    if entries:
        parts.append(long_bytes(len(entries)))
        for command_id, digest, outcome in entries:
            parts += (sized(command_id), sized(digest), sized(outcome))
    parts.append(b"\x00")
    return b"".join(parts)


def decode_chunk(value: bytes) -> tuple[int, list[Entry]]:
    """When it was decided, and its entries. Raises `StoreUnusable`."""
    record = _decoded(_CHUNK, value)
    return record["decided_at"], [(row["command_id"], row["request_digest"], row["outcome"]) for row in record["entries"]]


def encode_recorded(outcome: Outcome) -> bytes:
    return codec.header(_RECORDED) + written_recorded(outcome)


def decode_recorded(command_id: str, value: bytes) -> Outcome:
    """The outcome as recorded, not yet addressed to anyone. Raises `StoreUnusable`."""
    record = _decoded(_RECORDED, value)
    if record[_GRANT] is not None:
        record[_GRANT] = Grant(**record[_GRANT])
    return Outcome(command_id=command_id, correlation=0, **record)


def _header(session: SessionState) -> bytes:
    """Everything in it is an identifier, a word or a number."""
    subject_id = session.subject_id
    before = (
        f"{text(session.session_id)}{text(session.workspace_id)}{'' if subject_id is None else chr(2)}"
        f"{chr(0) if subject_id is None else text(subject_id)}{text(session.status)}{text(session.origin)}{text(session.policy_mode)}"
        f"{long_text(session.content_window_days)}{long_text(session.created_at)}{long_text(session.sequence)}"
    )
    after = f"{long_text(session.last_accepted_at)}{long_text(session.last_command_offset)}"
    return b"".join((before.encode("latin-1"), sized(session.last_hash), after.encode("latin-1")))


def _decoded(subject: str, value: bytes) -> dict[str, Any]:
    try:
        return codec.decode_as(subject, value)
    except codec.Undecodable as error:
        raise StoreUnusable(f"{subject}: {error}") from error
