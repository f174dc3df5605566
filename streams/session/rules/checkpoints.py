"""Checkpoints: retained recovery material that a Run leaves, told by the attempt that holds it (design 02, "Resource").

The authority sets when one expires, once: its window is the session's, pinned at creation, and at most 30 days. In a session
under zero data retention a checkpoint is metadata only.
"""

from typing import Final

from msgspec import structs

from streams.session import refusals
from streams.session.commands import Kind
from streams.session.events import CheckpointAttributes, Draft, read
from streams.session.items import RunState, SessionState, checkpoint_of, history_of
from streams.session.limits import NATIVE_BYTES_MAX
from streams.session.outcomes import Rejected
from streams.session.rules.reports import completed, standing
from streams.session.words import IMPORTED, NATIVE, NO_SNAPSHOT, STORED, ZDR
from streams.session.work import Work

NOTHING: Final = (None, None, None)


def checkpoint_created(work: Work, draft: Draft) -> Draft | Rejected:
    attributes, header = read(draft, CheckpointAttributes), work.header
    for name in ("checkpoint_id", "through_sequence", "through_event_id", "through_hash", "continuation_kind", "snapshot_kind"):
        if getattr(attributes, name) is None:
            return refusals.invalid(work.index, f"attributes.{name}")
    known = checkpoint_of(work, attributes.checkpoint_id or "")
    if known is not None:
        return refusals.exists(known.checkpoint_id)
    if work.command.kind is Kind.CHILD:
        return _brought(work, draft, attributes)
    if (attributes.origin_session_id, attributes.fork_id, attributes.expires_at) != (None, None, None):
        return refusals.invalid(work.index, "attributes: the authority says when a checkpoint expires, and what a fork brings along")
    run = standing(work, draft, draft.run_id, by_worker=True)
    if isinstance(run, Rejected):
        return run
    if run.origin == IMPORTED:
        return Rejected(refusals.RUN_UNAVAILABLE, f"{run.run_id} is imported: nobody holds it")
    if header is None:
        return Rejected(refusals.NOT_FOUND, work.command.session_id)
    refused = _outside(work, header, attributes) or _material(work, header, attributes)
    if refused is not None:
        return refused
    return structs.replace(completed(work, draft, run, by_worker=True), attributes=_filled(work, header, run, attributes))


def _brought(work: Work, draft: Draft, attributes: CheckpointAttributes) -> Draft | Rejected:
    """As its source's authority tells of it, outside of all Runs."""
    for name in ("origin_session_id", "fork_id", "expires_at"):
        if getattr(attributes, name) is None:
            return refusals.invalid(work.index, f"attributes.{name}")
    if (draft.run_id, draft.attempt_generation, draft.native_task_id) != (None, None, None):
        return refusals.invalid(work.index, "run_id")
    return draft


def _outside(work: Work, header: SessionState, attributes: CheckpointAttributes) -> Rejected | None:
    """The boundary is a committed position, and none before that of the latest checkpoint: the latest one is judged alone."""
    through = attributes.through_sequence or 0
    latest_id = history_of(work).checkpoint_id
    latest = None if latest_id is None else checkpoint_of(work, latest_id)
    lowest = latest.through_sequence if latest is not None and latest.origin_session_id == header.session_id else 1
    if lowest <= through <= header.sequence:
        return None
    return Rejected(
        refusals.CHECKPOINT_BOUNDARY, f"through_sequence {through}: from {lowest} to {header.sequence}", actual_sequence=header.sequence
    )


def _material(work: Work, header: SessionState, attributes: CheckpointAttributes) -> Rejected | None:
    snapshot = (attributes.snapshot_id, attributes.snapshot_bytes, attributes.snapshot_digest)
    native = (attributes.native_id, attributes.native_bytes, attributes.native_digest)
    if header.policy_mode == ZDR:
        kept = attributes.snapshot_kind != NO_SNAPSHOT or snapshot != NOTHING or native != NOTHING
        return refusals.invalid(work.index, "attributes.snapshot_kind: this session keeps none") if kept else None
    if attributes.snapshot_kind == NO_SNAPSHOT or not (None not in snapshot if attributes.snapshot_kind == STORED else snapshot == NOTHING):
        return refusals.invalid(work.index, "attributes.snapshot_id")
    if not (None not in native if attributes.continuation_kind == NATIVE else native == NOTHING):
        return refusals.invalid(work.index, "attributes.native_id")
    if (attributes.snapshot_bytes or 0) < 0:
        return refusals.invalid(work.index, "attributes.snapshot_bytes")
    if not 0 <= (attributes.native_bytes or 0) <= NATIVE_BYTES_MAX:
        return refusals.invalid(work.index, f"attributes.native_bytes: at most {NATIVE_BYTES_MAX}")
    return None


def _filled(work: Work, header: SessionState, run: RunState, attributes: CheckpointAttributes) -> CheckpointAttributes:
    return structs.replace(
        attributes,
        harness=attributes.harness or run.harness,
        harness_revision=attributes.harness_revision or run.harness_revision,
        environment_revision=attributes.environment_revision or run.environment_revision,
        expires_at=work.accepted_at + header.checkpoint_window_s * 1_000_000,
    )


def checkpoint_consumed(work: Work, draft: Draft) -> Draft | Rejected:
    return refusals.invalid(work.index, "type: the authority itself appends it")


RULES: Final = {"checkpoint.created": checkpoint_created, "checkpoint.consumed": checkpoint_consumed}
