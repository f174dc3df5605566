"""Forks: a session made of a prefix of another, by reference (design 02, "Recovery").

The source's authority decides, tells of it in the source's log, and sends the command that begins the child; the child's own
sequence starts at 1. By checkpoint, disk and native state come along while that very checkpoint is fresh: it is never silently
taken for a fork of the log alone. By event, the conversation comes along, as far as it can be read whole.
"""

from typing import Final

from msgspec import structs

from streams.session import consequences, history, refusals
from streams.session.commands import Command, Kind
from streams.session.days import moment
from streams.session.events import CheckpointAttributes, Draft, Link, SessionAttributes, read
from streams.session.ids import derive_event_id, derive_from_command
from streams.session.items import CheckpointState, SessionState, checkpoint_of, fork_of
from streams.session.limits import ANCESTORS_MAX
from streams.session.outcomes import Rejected
from streams.session.recovery import ZERO_DATA_RETENTION, Place
from streams.session.words import LIVE, NATIVE, ZDR
from streams.session.work import AUTHORITY, Work

NEVER: Final = 1 << 61
"""The command that begins a child must not expire: its source has told of it already."""


def fork(work: Work) -> Rejected | None:
    draft = work.command.drafts[0]
    attributes = read(draft, SessionAttributes)
    for name in ("fork_id", "through_sequence", "through_event_id", "source_hash"):
        if getattr(attributes, name) is None:
            return refusals.invalid(work.index, f"attributes.{name}")
    if (draft.thread_id, draft.turn_id, draft.run_id, draft.attempt_generation, draft.native_task_id) != (None,) * 5:
        return refusals.invalid(work.index, "run_id: a fork is of the session")
    known = fork_of(work, attributes.fork_id or "")
    if known is not None:
        # Its command may come again after the authority has forgotten what it answered.
        return refusals.exists(known.fork_id)
    place = Place(work)
    checkpoint = None
    if attributes.checkpoint_id is not None:
        checkpoint = checkpoint_of(work, attributes.checkpoint_id)
        if checkpoint is None:
            return refusals.not_found(work.index, "attributes.checkpoint_id")
    refused = _boundary(place, attributes, checkpoint) or _recoverable(place, attributes, checkpoint)
    if refused is not None:
        return refused
    depth = 1 if place.lineage is None else place.lineage.depth + 1
    if depth > ANCESTORS_MAX:
        return Rejected(refusals.LIMIT_REACHED, f"{place.header.session_id} has {ANCESTORS_MAX} ancestors")
    child_id = derive_from_command("sess", work.command.command_id, 0)
    told = SessionAttributes(
        fork_id=attributes.fork_id,
        child_session_id=child_id,
        checkpoint_id=attributes.checkpoint_id,
        through_sequence=attributes.through_sequence,
        through_event_id=attributes.through_event_id,
        source_hash=attributes.source_hash,
    )
    consequences.append(work, structs.replace(draft, attributes=told))
    if checkpoint is not None:
        work.append(_consumed(work, draft, checkpoint, told), AUTHORITY)
    work.sent = (_child(work, place, attributes, told, checkpoint, depth),)
    return None


def _boundary(place: Place, attributes: SessionAttributes, checkpoint: CheckpointState | None) -> Rejected | None:
    """The position is the session's, and the checkpoint's own where one is named: its snapshot is of that very position."""
    through, last = attributes.through_sequence or 0, place.header.sequence
    if not 1 <= through <= last:
        return Rejected(refusals.CHECKPOINT_BOUNDARY, f"through_sequence {through}: from 1 to {last}", actual_sequence=last)
    if checkpoint is None:
        return None
    # One that a fork brought along stands for everything up to where the child tells of it.
    own = place.boundary(checkpoint)
    if through != (own or checkpoint.sequence):
        return Rejected(refusals.CHECKPOINT_BOUNDARY, f"{checkpoint.checkpoint_id} is at {own or checkpoint.sequence}")
    if own and (attributes.through_event_id, attributes.source_hash) != (checkpoint.through_event_id, checkpoint.through_hash):
        return Rejected(refusals.CHECKPOINT_BOUNDARY, f"{checkpoint.checkpoint_id} is at {checkpoint.through_event_id}")
    return None


def _recoverable(place: Place, attributes: SessionAttributes, checkpoint: CheckpointState | None) -> Rejected | None:
    if checkpoint is not None:
        # A child that keeps nothing cannot take the snapshot over.
        gone = ZERO_DATA_RETENTION if attributes.policy_mode == ZDR else place.gone(checkpoint)
        if gone is not None:
            detail = f"{checkpoint.checkpoint_id}: {gone}, expires_at {moment(checkpoint.expires_at)}"
            return Rejected(refusals.CHECKPOINT_EXPIRED, detail)
        if checkpoint.continuation_kind == NATIVE:
            return None
    unreadable = place.unreadable(through=attributes.through_sequence)
    return refusals.history_unavailable(history.worded(unreadable)) if unreadable else None


def _consumed(work: Work, forked: Draft, checkpoint: CheckpointState, told: SessionAttributes) -> Draft:
    attributes = CheckpointAttributes(
        checkpoint_id=checkpoint.checkpoint_id,
        origin_session_id=checkpoint.origin_session_id,
        through_sequence=checkpoint.through_sequence,
        through_event_id=checkpoint.through_event_id,
        fork_id=told.fork_id,
    )
    links = (Link("cause", forked.event_id), Link("checkpoint", checkpoint.checkpoint_id))
    return work.make("checkpoint.consumed", None, attributes, links=links)


def _child(
    work: Work, place: Place, asked: SessionAttributes, told: SessionAttributes, checkpoint: CheckpointState | None, depth: int
) -> Command:
    """`asked` holds the workspace's policy of now, where it has one: a fork is a session created after it, and keeps no longer than its
    source does."""
    command, header, child_id = work.command, place.header, told.child_session_id or ""
    command_id = derive_from_command("cmd", command.command_id, 0)
    created = SessionAttributes(
        origin=LIVE,
        policy_mode=ZDR if ZDR in (header.policy_mode, asked.policy_mode) else header.policy_mode,
        content_window_days=min(header.content_window_days, max(1, asked.content_window_days or header.content_window_days)),
        checkpoint_window_s=min(header.checkpoint_window_s, max(1, asked.checkpoint_window_s or header.checkpoint_window_s)),
        fork_id=told.fork_id,
        source_session_id=header.session_id,
        checkpoint_id=told.checkpoint_id,
        through_sequence=told.through_sequence,
        through_event_id=told.through_event_id,
        source_hash=told.source_hash,
        inherited=history.inherited_by_fork(header, place.history, place.lineage, told.through_sequence or 0),
        depth=depth,
    )
    drafts = [_begun(header, command_id, child_id, 0, "session.created", created, (Link("parent_session", header.session_id),))]
    if checkpoint is not None:
        drafts.append(_begun(header, command_id, child_id, 1, "checkpoint.created", _brought(checkpoint, told), ()))
    return Command(
        command_id=command_id,
        session_id=child_id,
        workspace_id=header.workspace_id,
        kind=Kind.CHILD,
        principal_id=command.principal_id,
        request_digest=command.request_digest,
        issued_at=work.accepted_at,
        not_after=NEVER,
        drafts=tuple(drafts),
    )


def _begun(
    header: SessionState, command_id: str, child_id: str, index: int, event_type: str,
    attributes: SessionAttributes | CheckpointAttributes, links: tuple[Link, ...],
) -> Draft:  # fmt: skip
    return Draft(
        event_id=derive_event_id(command_id, index),
        session_id=child_id,
        type=event_type,
        workspace_id=header.workspace_id,
        subject_id=header.subject_id,
        command_id=command_id,
        links=links,
        attributes=attributes,
    )


def _brought(checkpoint: CheckpointState, told: SessionAttributes) -> CheckpointAttributes:
    """The source's checkpoint as the child has it: the same bytes, the same end."""
    return CheckpointAttributes(
        checkpoint_id=checkpoint.checkpoint_id,
        origin_session_id=checkpoint.origin_session_id,
        through_sequence=checkpoint.through_sequence,
        through_event_id=checkpoint.through_event_id,
        through_hash=checkpoint.through_hash,
        harness=checkpoint.harness,
        harness_revision=checkpoint.harness_revision,
        environment_revision=checkpoint.environment_revision,
        continuation_kind=checkpoint.continuation_kind,
        snapshot_kind=checkpoint.snapshot_kind,
        expires_at=checkpoint.expires_at,
        fork_id=told.fork_id,
    )
