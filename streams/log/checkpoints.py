"""What is told in public of a checkpoint, on the compacted `sessions.checkpoints`: secret-free, and never where its bytes lie."""

from typing import Final

import msgspec
from msgspec import Struct

from schemas import codec
from streams.errors import RecordUnreadable
from streams.session.events import CheckpointAttributes, Draft

_SUBJECT: Final = "checkpoint"


class PublicCheckpoint(Struct, frozen=True, kw_only=True):
    """As `schemas/checkpoint`. Times in microseconds since the epoch, UTC."""

    checkpoint_id: str
    session_id: str
    workspace_id: str
    run_id: str | None
    through_sequence: int
    through_event_id: str
    harness: str | None
    harness_revision: str | None
    environment_revision: str | None
    continuation_kind: str
    created_at: int
    expires_at: int


def public_checkpoint(draft: Draft, accepted_at: int) -> PublicCheckpoint | None:
    """Of an accepted `checkpoint.created`; None where a fork brought it along, so that it was told before."""
    attributes = draft.attributes
    if not isinstance(attributes, CheckpointAttributes) or attributes.fork_id is not None:
        return None
    return PublicCheckpoint(
        checkpoint_id=attributes.checkpoint_id or "",
        session_id=draft.session_id,
        workspace_id=draft.workspace_id,
        run_id=draft.run_id,
        through_sequence=attributes.through_sequence or 0,
        through_event_id=attributes.through_event_id or "",
        harness=attributes.harness,
        harness_revision=attributes.harness_revision,
        environment_revision=attributes.environment_revision,
        continuation_kind=attributes.continuation_kind or "",
        created_at=accepted_at,
        expires_at=attributes.expires_at or 0,
    )


def encode_public_checkpoint(told: PublicCheckpoint) -> bytes:
    """A whole value."""
    return codec.encode(_SUBJECT, msgspec.structs.asdict(told))


def decode_public_checkpoint(value: bytes) -> PublicCheckpoint:
    """Raises `RecordUnreadable`."""
    try:
        return msgspec.convert(codec.decode_as(_SUBJECT, value), PublicCheckpoint)
    except (codec.Undecodable, msgspec.ValidationError) as error:
        raise RecordUnreadable(f"checkpoint: {error}") from error
