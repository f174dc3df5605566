"""Checkpoints: the latest one is the one that is judged."""

from typing import Final

from msgspec import structs

from streams.session.events import CheckpointAttributes, Draft, read
from streams.session.folds.common import Fold, known
from streams.session.items import HISTORY, Changes, CheckpointState, Items, history_of
from streams.session.words import NO_SNAPSHOT, REBUILD


def _checkpoint_created(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, CheckpointAttributes)
    checkpoint_id = known(attributes.checkpoint_id, draft)
    checkpoint = CheckpointState(
        checkpoint_id=checkpoint_id,
        run_id=draft.run_id,
        origin_session_id=attributes.origin_session_id or draft.session_id,
        through_sequence=attributes.through_sequence or 0,
        through_event_id=attributes.through_event_id or "",
        through_hash=attributes.through_hash or "",
        harness=attributes.harness,
        harness_revision=attributes.harness_revision,
        environment_revision=attributes.environment_revision,
        continuation_kind=attributes.continuation_kind or REBUILD,
        snapshot_kind=attributes.snapshot_kind or NO_SNAPSHOT,
        expires_at=known(attributes.expires_at, draft),
        sequence=sequence,
    )
    latest = structs.replace(history_of(items), checkpoint_id=checkpoint_id)
    return ((("checkpoint", checkpoint_id), checkpoint), (HISTORY, latest))


FOLDS: Final[dict[str, Fold | None]] = {
    "checkpoint.created": _checkpoint_created,
    "checkpoint.consumed": None,
}
