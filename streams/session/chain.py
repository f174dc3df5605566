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
_SHORT: Final = 256
"""A length below it takes one byte of its four."""
_EMPTY: Final = bytes(4)
_LENGTH: Final = struct.Struct(">I").pack
_NUMBER: Final = struct.Struct(">Iq").pack
_TAIL: Final = struct.Struct(">IqIqI?Iq").pack


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
    reference, digest, links = content.key_reference, content.digest, draft.links
    thread_id, turn_id, run_id, generation = draft.thread_id, draft.turn_id, draft.run_id, draft.attempt_generation
    task_id, actor_id, subject_id, occurred_at = draft.native_task_id, draft.actor_id, draft.subject_id, draft.occurred_at
    return hashlib.sha256(
        b"".join(
            (
                previous_hash,
                _texts(draft.event_id, draft.session_id, draft.type, draft.workspace_id),
                _ABSENT if thread_id is None else _text(thread_id),
                _ABSENT if turn_id is None else _text(turn_id),
                _ABSENT if run_id is None else _text(run_id),
                _ABSENT if generation is None else _NUMBER(8, generation),
                _ABSENT if task_id is None else _text(task_id),
                _ABSENT if actor_id is None else _text(actor_id),
                _ABSENT if subject_id is None else _text(subject_id),
                _text(draft.command_id),
                _ABSENT if occurred_at is None else _NUMBER(8, occurred_at),
                _bytes(b"".join([_text(link.relation) + _text(link.id) for link in links])) if links else _EMPTY,
                _ABSENT if attributes is None else _bytes(attributes),
                _text(content.state),
                _ABSENT if reference is None else _reference(reference),
                _ABSENT if digest is None else _bytes(digest),
                _TAIL(8, sequence, 8, command_offset, 1, command_last, 8, accepted_at),
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


def _bytes(value: bytes) -> bytes:
    return _LENGTH(len(value)) + value


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


def _texts(first: str, second: str, third: str, fourth: str) -> bytes:
    if len(first) + len(second) + len(third) + len(fourth) < _SHORT:
        whole = f"\0\0\0{len(first):c}{first}\0\0\0{len(second):c}{second}\0\0\0{len(third):c}{third}\0\0\0{len(fourth):c}{fourth}"
        if whole.isascii():  # so every length is that of the bytes, and takes the last of its four
            return whole.encode()
    return b"".join([_text(first), _text(second), _text(third), _text(fourth)])


def _reference(reference: KeyReference) -> bytes:
    subject = _ABSENT if reference.subject_id is None else _text(reference.subject_id)
    return _bytes(subject + _text(reference.session_id) + _text(reference.expiry_day))
