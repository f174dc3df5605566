"""The hash chain of a session: what was accepted cannot be changed, dropped or moved without it showing.

Each event's hash covers the hash before it and every structural field in schema order, content by its digest alone, so
that a chain still verifies after content is gone. docs/wire-format.md states the bytes; tests/vectors/chain.json fixes
them.
"""

import hashlib
import struct
from typing import Final

from streams.session.events import Draft, Event, KeyReference

GENESIS: Final = b"session-streams/chain/v1"
_ABSENT: Final = b"\xff\xff\xff\xff"
_NUMBER: Final = struct.Struct(">Iq")
_TAIL: Final = struct.Struct(">IqIqI?Iq")


def genesis(session_id: str) -> bytes:
    """What the first event of a session has as its previous hash (32 bytes)."""
    return hashlib.sha256(GENESIS + session_id.encode()).digest()


def event_hash(
    draft: Draft,
    attributes: bytes | None,
    *,
    sequence: int,
    command_offset: int,
    command_last: bool,
    accepted_at: int,
    previous_hash: bytes,
) -> bytes:
    """The hash of an event (32 bytes). `attributes` are its bytes as they stand in the event, header included."""
    content = draft.content
    reference = content.key_reference
    return hashlib.sha256(
        b"".join(
            (
                previous_hash,
                _text(draft.event_id),
                _text(draft.session_id),
                _text(draft.type),
                _text(draft.workspace_id),
                _text(draft.thread_id),
                _text(draft.turn_id),
                _text(draft.run_id),
                _number(draft.attempt_generation),
                _text(draft.native_task_id),
                _text(draft.actor_id),
                _text(draft.subject_id),
                _text(draft.command_id),
                _number(draft.occurred_at),
                _bytes(b"".join([_text(link.relation) + _text(link.id) for link in draft.links])),
                _bytes(attributes),
                _text(content.state),
                _ABSENT if reference is None else _reference(reference),
                _bytes(content.digest),
                _TAIL.pack(8, sequence, 8, command_offset, 1, command_last, 8, accepted_at),
            )
        )
    ).digest()


def verifies(event: Event, attributes: bytes | None, previous_hash: bytes) -> bool:
    """Whether the event follows an event with `previous_hash` and is itself what was accepted."""
    return event.previous_hash == previous_hash and event.hash == event_hash(
        event,
        attributes,
        sequence=event.sequence,
        command_offset=event.command_offset,
        command_last=event.command_last,
        accepted_at=event.accepted_at,
        previous_hash=previous_hash,
    )


def _bytes(value: bytes | None) -> bytes:
    return _ABSENT if value is None else len(value).to_bytes(4, "big") + value


def _text(value: str | None) -> bytes:
    if value is None:
        return _ABSENT
    encoded = value.encode()
    return len(encoded).to_bytes(4, "big") + encoded


def _number(value: int | None) -> bytes:
    return _ABSENT if value is None else _NUMBER.pack(8, value)


def _reference(reference: KeyReference) -> bytes:
    return _bytes(_text(reference.subject_id) + _text(reference.session_id) + _text(reference.expiry_day))
