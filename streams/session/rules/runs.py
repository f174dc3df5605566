"""Run and RunAttempt, and what belongs to a Run: pinned context, steering, child work.

`run.started`, `run.waiting`, `run.resumed` follow from other events, and an attempt of a live Run begins with a claim:
only an importer may append these, and only to an imported Run.
"""

from collections.abc import Callable
from typing import Final

from msgspec import structs

from streams.session import refusals
from streams.session.events import AttemptAttributes, ChildAttributes, ContextAttributes, Draft, RunAttributes, SteeringAttributes, read
from streams.session.ids import derive_from_command
from streams.session.items import AttemptState, RunState, attempt_of, child_of, run_of, thread_of
from streams.session.lifecycles import ACCEPTED, ATTEMPT, LIVE_ATTEMPT, READY, RUN, SETTLED, SETTLED_RUN
from streams.session.outcomes import Rejected
from streams.session.pins import pin_of
from streams.session.rules.reports import completed, standing
from streams.session.words import IMPORTED
from streams.session.work import Work

PINS_LIMIT: Final = 16
"""Kinds of context that one Run may pin."""


def run_accepted(work: Work, draft: Draft) -> Draft | Rejected:
    attributes = read(draft, RunAttributes)
    if draft.run_id is None:
        return refusals.invalid(work.index, "run_id")
    if (draft.attempt_generation, draft.native_task_id) != (None, None):
        return refusals.invalid(work.index, "attempt_generation: a Run is accepted before it has an attempt")
    run = run_of(work, draft.run_id)
    if run is not None:
        return refusals.settled(run.run_id, run.status) if run.status in SETTLED_RUN else refusals.exists(run.run_id)
    if attributes.origin == IMPORTED:
        if not work.command.importing:
            return refusals.invalid(work.index, "attributes.origin")
        return refusals.invalid(work.index, "attributes.claimable") if attributes.claimable else draft
    thread = None if draft.thread_id is None else thread_of(work, draft.thread_id)
    if thread is not None and None not in (thread.harness, attributes.harness) and thread.harness != attributes.harness:
        return Rejected(refusals.HANDOFF_UNAVAILABLE, f"{thread.thread_id} belongs to another harness")
    return draft


def _moves_run(*, by_worker: bool) -> Callable[[Work, Draft], Draft | Rejected]:
    def rule(work: Work, draft: Draft) -> Draft | Rejected:
        run = standing(work, draft, draft.run_id, by_worker=by_worker)
        if isinstance(run, Rejected):
            return run
        if run.status not in RUN[draft.type]:
            return Rejected(refusals.TRANSITION_REFUSED, f"{run.run_id} is {run.status}")
        return completed(work, draft, run, by_worker=by_worker)

    return rule


def _imported(work: Work, draft: Draft) -> RunState | Rejected:
    run = standing(work, structs.replace(draft, attempt_generation=None, native_task_id=None), draft.run_id, by_worker=False)
    if isinstance(run, RunState) and run.origin != IMPORTED:
        return refusals.invalid(work.index, "type: the authority itself appends it")
    return run


def run_imported(work: Work, draft: Draft) -> Draft | Rejected:
    """run.started, run.waiting, run.resumed of an imported Run."""
    run = _imported(work, draft)
    if isinstance(run, Rejected):
        return run
    if run.status not in RUN[draft.type] or (draft.type == "run.resumed" and run.open_waits):
        return Rejected(refusals.TRANSITION_REFUSED, f"{run.run_id} is {run.status}")
    return completed(work, draft, run, by_worker=False)


def attempt_started(work: Work, draft: Draft) -> Draft | Rejected:
    """Of an imported Run: no lease, no holder, the generation after the current one."""
    run = _imported(work, draft)
    if isinstance(run, Rejected):
        return run
    attributes = read(draft, AttemptAttributes)
    if (attributes.principal_id, attributes.lease_ms, attributes.lease_expires_at) != (None, None, None):
        return refusals.invalid(work.index, "attributes: an imported attempt has neither holder nor lease")
    attempt = attempt_of(work, run.run_id)
    if attempt is not None and attempt.status in LIVE_ATTEMPT:
        return Rejected(refusals.NOT_CLAIMABLE, f"{run.run_id} has a live attempt of generation {attempt.generation}")
    if draft.attempt_generation not in (None, run.generation + 1):
        return refusals.fenced(run.run_id, run.generation)
    placed = completed(work, draft, run, by_worker=False)
    return placed if placed.attempt_generation is not None else structs.replace(placed, attempt_generation=run.generation + 1)


def _attempt_moves(work: Work, draft: Draft, run: RunState) -> AttemptState | Rejected:
    attempt = attempt_of(work, run.run_id)
    if attempt is None:
        return Rejected(refusals.TRANSITION_REFUSED, f"{run.run_id} has no attempt")
    if attempt.status not in ATTEMPT[draft.type]:
        return refusals.fenced(run.run_id, run.generation)
    return attempt


def attempt_reported(work: Work, draft: Draft) -> Draft | Rejected:
    """attempt.ready and attempt.failed. Ready once more says that the harness was started again: the authority mints
    the native task that serves the attempt from now on, and the one before is fenced."""
    run = standing(work, draft, draft.run_id, by_worker=True)
    if isinstance(run, Rejected):
        return run
    attempt = _attempt_moves(work, draft, run)
    if isinstance(attempt, Rejected):
        return attempt
    reported = completed(work, draft, run, by_worker=True)
    if draft.type == "attempt.ready" and attempt.status == READY and run.origin != IMPORTED:
        return structs.replace(reported, native_task_id=derive_from_command("task", work.command.command_id, work.index))
    return reported


def attempt_imported(work: Work, draft: Draft) -> Draft | Rejected:
    """attempt.replaced and attempt.fenced of an imported Run."""
    run = _imported(work, draft)
    if isinstance(run, Rejected):
        return run
    attempt = _attempt_moves(work, draft, run)
    if isinstance(attempt, Rejected):
        return attempt
    if draft.attempt_generation not in (None, attempt.generation):
        return refusals.fenced(run.run_id, run.generation)
    placed = completed(work, draft, run, by_worker=False)
    return placed if placed.attempt_generation is not None else structs.replace(placed, attempt_generation=attempt.generation)


def context_pinned(work: Work, draft: Draft) -> Draft | Rejected:
    """Before a Run starts, by whoever prepares it; afterwards by its worker. A pin never moves to another revision."""
    known = None if draft.run_id is None else run_of(work, draft.run_id)
    by_worker = known is not None and known.status != ACCEPTED
    run = standing(work, draft, draft.run_id, by_worker=by_worker)
    if isinstance(run, Rejected):
        return run
    attributes = read(draft, ContextAttributes)
    if attributes.pin_kind is None:
        return refusals.invalid(work.index, "attributes.pin_kind")
    if attributes.revision is None and attributes.digest is None:
        return refusals.invalid(work.index, "attributes.revision")
    if pin_of(attributes) not in run.pins:
        if any(pinned.partition(" ")[0] == attributes.pin_kind for pinned in run.pins):
            return Rejected(refusals.ALREADY_SETTLED, f"{run.run_id} has pinned another revision of this kind")
        if len(run.pins) >= PINS_LIMIT:
            return Rejected(refusals.LIMIT_REACHED, f"{run.run_id} has pinned {len(run.pins)} kinds of context")
    return completed(work, draft, run, by_worker=by_worker)


def steering_applied(work: Work, draft: Draft) -> Draft | Rejected:
    """Contributes to a Run that is not over; whoever may write to the session may steer."""
    attributes = read(draft, SteeringAttributes)
    run_id = attributes.target_run_id
    if run_id is None:
        return refusals.invalid(work.index, "attributes.target_run_id")
    run = standing(work, draft, run_id, by_worker=False, settled_ok=True)
    if isinstance(run, Rejected):
        return run if run.code != refusals.RUN_UNAVAILABLE else Rejected(refusals.STEERING_UNAVAILABLE, run.detail)
    if run.status in SETTLED_RUN:
        return Rejected(refusals.STEERING_UNAVAILABLE, f"{run.run_id} is {run.status}")
    return completed(work, draft, run, by_worker=False)


def child_started(work: Work, draft: Draft) -> Draft | Rejected:
    child_id = read(draft, ChildAttributes).child_id
    if child_id is None:
        return refusals.invalid(work.index, "attributes.child_id")
    child = child_of(work, child_id)
    if child is not None:
        return refusals.settled(child_id, child.status) if child.status == SETTLED else refusals.exists(child_id)
    run = standing(work, draft, draft.run_id, by_worker=True)
    return run if isinstance(run, Rejected) else completed(work, draft, run, by_worker=True)


def child_settled(work: Work, draft: Draft) -> Draft | Rejected:
    child_id = read(draft, ChildAttributes).child_id
    if child_id is None:
        return refusals.invalid(work.index, "attributes.child_id")
    child = child_of(work, child_id)
    if child is None:
        return refusals.not_found(work.index, "attributes.child_id")
    if child.status == SETTLED:
        return refusals.settled(child_id, child.status)
    run = standing(work, draft, child.run_id, by_worker=True, settled_ok=True)
    return run if isinstance(run, Rejected) else completed(work, draft, run, by_worker=run.status not in SETTLED_RUN)


RULES: Final = {
    "run.accepted": run_accepted,
    "run.started": run_imported,
    "run.waiting": run_imported,
    "run.resumed": run_imported,
    "run.completed": _moves_run(by_worker=True),
    "run.failed": _moves_run(by_worker=True),
    "run.cancelled": _moves_run(by_worker=False),
    "attempt.started": attempt_started,
    "attempt.ready": attempt_reported,
    "attempt.failed": attempt_reported,
    "attempt.replaced": attempt_imported,
    "attempt.fenced": attempt_imported,
    "context.pinned": context_pinned,
    "steering.applied": steering_applied,
    "child.started": child_started,
    "child.settled": child_settled,
}
