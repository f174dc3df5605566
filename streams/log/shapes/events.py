"""Events: a draft, and the authority's suffix."""

import re
from typing import Final

from schemas.primitives import long_of
from streams.log.shapes.drafts import AttributesOf, read_draft
from streams.log.shapes.patterns import A_LONG
from streams.session.events import Event
from streams.session.vocabulary import DIGEST_BYTES

_SUFFIX: Final = re.compile(rf"{A_LONG}{A_LONG}([\x00\x01]){A_LONG}@.{{32}}@.{{32}}", re.DOTALL)


def read_event(value: bytes, start: int, attributes_of: AttributesOf) -> tuple[Event, bytes | None] | None:
    """The event whose body is `value` from `start` to its end, and the bytes of its attributes, if it has this shape."""
    characters = value.decode("latin-1")
    read = read_draft(value, characters, start, attributes_of)
    match = None if read is None else _SUFFIX.fullmatch(characters, read.end)
    if read is None or match is None:
        return None
    sequence, offset, last, accepted_at = match.groups()
    draft, raw, _ = read
    hashes = len(value) - 2 * DIGEST_BYTES - 1
    event = Event(
        event_id=draft.event_id, session_id=draft.session_id, type=draft.type, workspace_id=draft.workspace_id, thread_id=draft.thread_id,
        turn_id=draft.turn_id, run_id=draft.run_id, attempt_generation=draft.attempt_generation, native_task_id=draft.native_task_id,
        actor_id=draft.actor_id, subject_id=draft.subject_id, command_id=draft.command_id, occurred_at=draft.occurred_at,
        links=draft.links, attributes=draft.attributes, content=draft.content, sequence=long_of(sequence), command_offset=long_of(offset),
        command_last=last == "\x01", accepted_at=long_of(accepted_at), previous_hash=value[hashes : hashes + DIGEST_BYTES],
        hash=value[hashes + DIGEST_BYTES + 1 :],
    )  # fmt: skip
    return event, raw
