"""From what a worker may go on: the newest checkpoint, judged, or the event log (design 02, "Recovery").

The latest checkpoint alone is judged. Readable history, files, native continuation and live processes are told apart: restoring
one does not establish the others (seed *Session execution graph*, "Recovery frontier").
"""

from typing import Final

from streams.session import history
from streams.session.items import (
    CheckpointState,
    HistoryState,
    LineageState,
    RunState,
    SessionState,
    checkpoint_of,
    effect_of,
    history_of,
    lineage_of,
)
from streams.session.outcomes import Inputs, OpenEffect, Recovery, Unavailable
from streams.session.words import NATIVE, NO_SNAPSHOT, REBUILD, RESTORE, ZDR
from streams.session.work import Work

NO_CHECKPOINT: Final = "no_checkpoint"
ZERO_DATA_RETENTION: Final = "zero_data_retention"
ERASED: Final = "checkpoint_erased"
EXPIRED: Final = "checkpoint_expired"
INCOMPATIBLE: Final = "checkpoint_incompatible"


class Place:
    """What a session's authority knows of its past, at one moment."""

    def __init__(self, work: Work) -> None:
        header = work.header
        if header is None:
            raise RuntimeError("a session that is not there has no past")
        self.now = work.accepted_at
        self.header: SessionState = header
        self.history: HistoryState = history_of(work)
        self.lineage: LineageState | None = lineage_of(work)

    def boundary(self, checkpoint: CheckpointState) -> int:
        """The checkpoint's boundary among this session's own positions: 0 where a fork brought it along."""
        return checkpoint.through_sequence if checkpoint.origin_session_id == self.header.session_id else 0

    def gone(self, checkpoint: CheckpointState) -> str | None:
        """Why nothing can be recovered from the checkpoint; None: it is fresh. Read time is authoritative."""
        if self.header.policy_mode == ZDR or checkpoint.snapshot_kind == NO_SNAPSHOT:
            return ZERO_DATA_RETENTION
        # Also one that was told of later, of a position that was erased before: its snapshot has seen what is erased.
        if (self.boundary(checkpoint) or checkpoint.sequence) <= self.history.erased_through:
            return ERASED
        if checkpoint.sequence <= self.history.checkpoints_erased_through:
            return ERASED
        return EXPIRED if self.now >= checkpoint.expires_at else None

    def unreadable(self, *, after: int = 0, through: int | None = None) -> list[Unavailable]:
        """What cannot be read of the session and, from its beginning on, of its ancestors."""
        ancestors = [] if after else history.unreadable_ancestors(self.lineage, self.now)
        return ancestors + history.unreadable(self.header, self.history, self.now, after=after, through=through)

    def needed_for(self, checkpoint: CheckpointState) -> list[Unavailable]:
        """What cannot be read of what a worker that restores the checkpoint has to read: only what lies behind its boundary, or
        everything, where the harness is to be rebuilt from the log."""
        if checkpoint.continuation_kind != NATIVE:
            return self.unreadable()
        return history.unreadable(self.header, self.history, self.now, after=self.boundary(checkpoint))


def recovery_for(work: Work, run: RunState, *, harness_revision: str | None, environment_revision: str | None) -> Recovery:
    """What a worker with these revisions (None: it names none) may go on from, in this Run."""
    place = Place(work)
    checkpoint, reason = latest(work, place)
    if checkpoint is not None and reason is None and not compatible(checkpoint, run, harness_revision, environment_revision):
        reason = INCOMPATIBLE
    if checkpoint is None or reason is not None:
        unavailable = place.unreadable()
        return _recovery(work, run, place, REBUILD, reason, None, unavailable)
    return _recovery(work, run, place, RESTORE, None, checkpoint, place.needed_for(checkpoint))


def open_effects(work: Work, run: RunState) -> tuple[OpenEffect, ...]:
    effects = [effect_of(work, effect_id) for effect_id in run.open_effects]
    return tuple([OpenEffect(each.effect_id, each.status, each.action_digest, each.request_digest) for each in effects if each is not None])


def latest(work: Work, place: Place) -> tuple[CheckpointState | None, str | None]:
    """The checkpoint that is judged, and why nothing can be recovered from it."""
    checkpoint_id = place.history.checkpoint_id
    checkpoint = None if checkpoint_id is None else checkpoint_of(work, checkpoint_id)
    if place.header.policy_mode == ZDR:
        return checkpoint, ZERO_DATA_RETENTION
    return (None, NO_CHECKPOINT) if checkpoint is None else (checkpoint, place.gone(checkpoint))


def compatible(checkpoint: CheckpointState, run: RunState, harness_revision: str | None, environment_revision: str | None) -> bool:
    """Whether harness and revisions, the worker's or where it names none the Run's, are those that the snapshot was taken against.

    To a harness that is made anew from the log, what one side does not name may be anything. Its own state goes to the very same one:
    what only one side names differs.
    """
    sides = _sides(checkpoint, run, harness_revision, environment_revision)
    if checkpoint.continuation_kind == NATIVE:
        return all(asked == taken for asked, taken in sides)
    return all(asked is None or taken is None or asked == taken for asked, taken in sides)


def proven(checkpoint: CheckpointState, run: RunState, harness_revision: str | None, environment_revision: str | None) -> bool:
    """Whether all of them are known on both sides, and the same."""
    sides = _sides(checkpoint, run, harness_revision, environment_revision)
    return all(asked is not None and asked == taken for asked, taken in sides)


def _sides(
    checkpoint: CheckpointState, run: RunState, harness_revision: str | None, environment_revision: str | None
) -> tuple[tuple[str | None, str | None], ...]:
    """Each coordinate as it is asked for and as it was taken."""
    return (
        (run.harness, checkpoint.harness),
        (harness_revision or run.harness_revision, checkpoint.harness_revision),
        (environment_revision or run.environment_revision, checkpoint.environment_revision),
    )


def _recovery(
    work: Work,
    run: RunState,
    place: Place,
    mode: str,
    reason: str | None,
    checkpoint: CheckpointState | None,
    unavailable: list[Unavailable],
) -> Recovery:
    return Recovery(
        mode=mode,
        reason=reason,
        checkpoint_id=None if checkpoint is None else checkpoint.checkpoint_id,
        checkpoint_session_id=None if checkpoint is None else checkpoint.origin_session_id,
        through_sequence=0 if checkpoint is None else checkpoint.through_sequence,
        through_event_id=None if checkpoint is None else checkpoint.through_event_id,
        complete=not unavailable,
        unavailable=tuple(unavailable),
        # What lies before a boundary may be gone where nothing of it is needed.
        history=not (unavailable or place.unreadable()),
        files=checkpoint is not None,
        native_continuation=checkpoint is not None and checkpoint.continuation_kind == NATIVE,
        frontier_sequence=place.header.sequence,
        pins=run.pins,
        open_waits=run.open_waits,
        open_effects=open_effects(work, run),
        inputs=Inputs(
            run.accepted_sequence, run.turn_id, run.thread_id, run.lane, run.harness, run.harness_revision, run.environment_revision
        ),
    )
