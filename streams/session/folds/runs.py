"""Runs, their attempts, and the context that they pin."""

from typing import Final

from msgspec import structs

from streams.session import lifecycles as life
from streams.session.events import AttemptAttributes, ContextAttributes, Draft, RunAttributes, read
from streams.session.folds.common import Fold, known, moved, the_run
from streams.session.items import AttemptState, Changes, Items, RunState, attempt_of, thread_of
from streams.session.pins import pin_of
from streams.session.words import LIVE


def _run_accepted(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    run_id = known(draft.run_id, draft)
    attributes = read(draft, RunAttributes)
    origin = attributes.origin or LIVE
    run = RunState(
        run_id=run_id,
        turn_id=draft.turn_id,
        thread_id=draft.thread_id,
        status=life.ACCEPTED,
        origin=origin,
        claimable=origin == LIVE if attributes.claimable is None else attributes.claimable,
        lane=attributes.lane,
        sequence=sequence,
        harness=attributes.harness,
        harness_revision=attributes.harness_revision,
        environment_revision=attributes.environment_revision,
        accepted_sequence=sequence,
    )
    changes: Changes = ((("run", run_id), run),)
    thread = None if draft.thread_id is None else thread_of(items, draft.thread_id)
    if thread is not None and thread.harness is None and attributes.harness is not None:
        key = ("thread", thread.thread_id)
        changes = (*changes, (key, structs.replace(thread, harness=attributes.harness, sequence=sequence)))
    return changes


def _run_moved(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    run = the_run(items, draft)
    return ((("run", run.run_id), structs.replace(run, status=moved(life.RUN, draft, run.status), sequence=sequence)),)


def _attempt_started(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    run = the_run(items, draft)
    attributes = read(draft, AttemptAttributes)
    attempt = AttemptState(
        run_id=run.run_id,
        generation=known(draft.attempt_generation, draft),
        status=life.STARTED,
        native_task_id=draft.native_task_id or "",
        principal_id=attributes.principal_id,
        claim_digest=attributes.claim_digest,
        lease_ms=attributes.lease_ms or 0,
        lease_expires_at=attributes.lease_expires_at,
    )
    started = structs.replace(run, generation=attempt.generation, sequence=sequence)
    return ((("run", run.run_id), started), (("attempt", run.run_id), attempt))


def _attempt_moved(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attempt = known(attempt_of(items, known(draft.run_id, draft)), draft)
    status = moved(life.ATTEMPT, draft, attempt.status)
    changed = structs.replace(attempt, status=status, was_ready=attempt.was_ready or status == life.READY)
    if status == life.READY and draft.native_task_id is not None:
        changed = structs.replace(changed, native_task_id=draft.native_task_id)
    return ((("attempt", attempt.run_id), changed),)


def _context_pinned(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    run = the_run(items, draft)
    pinned = pin_of(read(draft, ContextAttributes))
    pins = run.pins if pinned in run.pins else (*run.pins, pinned)
    return ((("run", run.run_id), structs.replace(run, pins=pins, sequence=sequence)),)


FOLDS: Final[dict[str, Fold | None]] = {
    "run.accepted": _run_accepted,
    "run.started": _run_moved,
    "run.waiting": _run_moved,
    "run.resumed": _run_moved,
    "run.completed": _run_moved,
    "run.failed": _run_moved,
    "run.cancelled": _run_moved,
    "attempt.started": _attempt_started,
    "attempt.ready": _attempt_moved,
    "attempt.failed": _attempt_moved,
    "attempt.replaced": _attempt_moved,
    "attempt.fenced": _attempt_moved,
    "context.pinned": _context_pinned,
    "steering.applied": None,
}
