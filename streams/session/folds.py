"""What each type of event means for the items of a session. A fold judges nothing; the tables of `lifecycles` bind it.

A fold gives the items that the event changes, as they are after it, but for the counters that every event moves (the
header's, its Run's): those are the caller's. An event that no legal history holds is RuntimeError.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from msgspec import structs

from streams.session import lifecycles as life
from streams.session.events import (
    ApprovalAttributes,
    AttemptAttributes,
    Attributes,
    CheckpointAttributes,
    ChildAttributes,
    ContextAttributes,
    Draft,
    EffectAttributes,
    RunAttributes,
    SessionAttributes,
    ThreadAttributes,
    WaitAttributes,
)
from streams.session.items import (
    HEADER,
    HISTORY,
    LINEAGE,
    ActionState,
    ApprovalState,
    AttemptState,
    Changes,
    CheckpointState,
    ChildState,
    EffectState,
    Items,
    LineageState,
    RunState,
    SessionState,
    ThreadState,
    TurnState,
    WaitState,
    action_of,
    approval_of,
    attempt_of,
    child_of,
    effect_of,
    history_of,
    run_of,
    session_of,
    thread_of,
    turn_of,
    wait_of,
)

LIVE: Final = "live"
IMPORTED: Final = "imported"
STANDARD: Final = "standard"
LONGEST_CHECKPOINT_WINDOW_S: Final = 30 * 24 * 3600
"""A policy may shorten it, never lengthen (seed *Checkpoints*, "They expire after 30 days")."""
ZDR: Final = "zdr"

T = TypeVar("T")
A = TypeVar("A", bound=Attributes)


def read(draft: Draft, kind: type[A]) -> A:
    """The draft's attributes; those of no attributes where it has none."""
    attributes = draft.attributes
    return attributes if isinstance(attributes, kind) else kind()


def action_digest(attributes: EffectAttributes) -> str:
    """What an effect does: its frozen action, or, where none is named, its request."""
    return attributes.action_digest or attributes.request_digest or ""


def pin(attributes: ContextAttributes) -> str:
    """One pinned context as it stands in `RunState.pins`: kind, revision, digest."""
    return f"{attributes.pin_kind} {attributes.revision or '-'} {attributes.digest or '-'}"


def _known(item: T | None, draft: Draft) -> T:
    if item is None:
        raise RuntimeError(f"{draft.event_id}: {draft.type} of something that no event has made")
    return item


def _next(table: life.Transitions, draft: Draft, status: str) -> str:
    after = table[draft.type].get(status)
    if after is None:
        raise RuntimeError(f"{draft.event_id}: {draft.type} where the status is {status}")
    return after


# -- session, thread, turn --------------------------------------------------------------------------------------------


def _session_created(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, SessionAttributes)
    header = SessionState(
        session_id=draft.session_id,
        workspace_id=draft.workspace_id,
        subject_id=draft.subject_id,
        status=life.OPEN,
        origin=attributes.origin or LIVE,
        policy_mode=attributes.policy_mode or STANDARD,
        content_window_days=attributes.content_window_days or 0,
        created_at=accepted_at,
        sequence=sequence,
        last_accepted_at=accepted_at,
        last_command_offset=-1,
        checkpoint_window_s=attributes.checkpoint_window_s or LONGEST_CHECKPOINT_WINDOW_S,
    )
    if attributes.source_session_id is None:
        return ((HEADER, header),)
    lineage = LineageState(
        source_session_id=attributes.source_session_id,
        fork_id=_known(attributes.fork_id, draft),
        through_sequence=attributes.through_sequence or 0,
        through_event_id=attributes.through_event_id or "",
        source_hash=attributes.source_hash or "",
        checkpoint_id=attributes.checkpoint_id,
        inherited=attributes.inherited or "",
        depth=attributes.depth or 1,
    )
    return ((HEADER, header), (LINEAGE, lineage))


def _session_closed(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    header = _known(session_of(items), draft)
    return ((HEADER, structs.replace(header, status=_next(life.SESSION, draft, header.status), sequence=sequence)),)


def _thread_opened(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    thread_id = _known(draft.thread_id, draft)
    kind = read(draft, ThreadAttributes).kind or "main"
    return ((("thread", thread_id), ThreadState(thread_id=thread_id, kind=kind, sequence=sequence)),)


def _turn_started(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    turn_id = _known(draft.turn_id, draft)
    turn = TurnState(turn_id=turn_id, thread_id=draft.thread_id, status=life.STARTED, sequence=sequence)
    return ((("turn", turn_id), turn),)


def _turn_completed(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    turn = _known(turn_of(items, _known(draft.turn_id, draft)), draft)
    return ((("turn", turn.turn_id), structs.replace(turn, status=_next(life.TURN, draft, turn.status), sequence=sequence)),)


# -- run, attempt -----------------------------------------------------------------------------------------------------


def _run_of(items: Items, draft: Draft) -> RunState:
    return _known(run_of(items, _known(draft.run_id, draft)), draft)


def _run_accepted(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    run_id = _known(draft.run_id, draft)
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
    run = _run_of(items, draft)
    return ((("run", run.run_id), structs.replace(run, status=_next(life.RUN, draft, run.status), sequence=sequence)),)


def _attempt_started(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    run = _run_of(items, draft)
    attributes = read(draft, AttemptAttributes)
    attempt = AttemptState(
        run_id=run.run_id,
        generation=_known(draft.attempt_generation, draft),
        status=life.STARTED,
        native_task_id=draft.native_task_id or "",
        principal_id=attributes.principal_id,
        claim_digest=attributes.claim_digest,
        lease_ms=attributes.lease_ms or 0,
        lease_expires_at=attributes.lease_expires_at,
    )
    moved = structs.replace(run, generation=attempt.generation, sequence=sequence)
    return ((("run", run.run_id), moved), (("attempt", run.run_id), attempt))


def _attempt_moved(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attempt = _known(attempt_of(items, _known(draft.run_id, draft)), draft)
    status = _next(life.ATTEMPT, draft, attempt.status)
    moved = structs.replace(attempt, status=status, was_ready=attempt.was_ready or status == life.READY)
    if status == life.READY and draft.native_task_id is not None:
        moved = structs.replace(moved, native_task_id=draft.native_task_id)
    return ((("attempt", attempt.run_id), moved),)


def _context_pinned(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    run = _run_of(items, draft)
    pinned = pin(read(draft, ContextAttributes))
    pins = run.pins if pinned in run.pins else (*run.pins, pinned)
    return ((("run", run.run_id), structs.replace(run, pins=pins, sequence=sequence)),)


# -- waits, approvals, child work -------------------------------------------------------------------------------------


def _with(ids: tuple[str, ...], item_id: str) -> tuple[str, ...]:
    return (*ids, item_id)


def _without(ids: tuple[str, ...], item_id: str) -> tuple[str, ...]:
    return tuple([other for other in ids if other != item_id])


def _wait_opened(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, WaitAttributes)
    wait_id = _known(attributes.wait_id, draft)
    wait = WaitState(wait_id=wait_id, run_id=draft.run_id, status=life.OPENED, expires_at=attributes.expires_at, sequence=sequence)
    if draft.run_id is None:
        return ((("wait", wait_id), wait),)
    run = _run_of(items, draft)
    waiting = structs.replace(run, open_waits=_with(run.open_waits, wait_id), sequence=sequence)
    return ((("wait", wait_id), wait), (("run", run.run_id), waiting))


def _wait_closed(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    wait = _known(wait_of(items, _known(read(draft, WaitAttributes).wait_id, draft)), draft)
    closed = structs.replace(wait, status=_next(life.WAIT, draft, wait.status), sequence=sequence)
    changes: Changes = ((("wait", wait.wait_id), closed),)
    if wait.run_id is None:
        return changes
    run = _known(run_of(items, wait.run_id), draft)
    less = structs.replace(run, open_waits=_without(run.open_waits, wait.wait_id), sequence=sequence)
    return (*changes, (("run", run.run_id), less))


def _approval_requested(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, ApprovalAttributes)
    approval_id, digest = _known(attributes.approval_id, draft), _known(attributes.action_digest, draft)
    approval = ApprovalState(
        approval_id=approval_id,
        run_id=draft.run_id,
        status=life.REQUESTED,
        action_digest=digest,
        expires_at=attributes.expires_at,
        sequence=sequence,
    )
    action = action_of(items, digest) or ActionState(action_digest=digest)
    asked = structs.replace(action, approval_id=approval_id)
    return ((("approval", approval_id), approval), (("action", digest), asked))


def _approval_decided(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    approval = _known(approval_of(items, _known(read(draft, ApprovalAttributes).approval_id, draft)), draft)
    decided = structs.replace(approval, status=_next(life.APPROVAL, draft, approval.status), sequence=sequence)
    return ((("approval", approval.approval_id), decided),)


def _child_started(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    child_id = _known(read(draft, ChildAttributes).child_id, draft)
    return ((("child", child_id), ChildState(child_id=child_id, run_id=draft.run_id, status=life.STARTED, sequence=sequence)),)


def _child_settled(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    child = _known(child_of(items, _known(read(draft, ChildAttributes).child_id, draft)), draft)
    return ((("child", child.child_id), structs.replace(child, status=_next(life.CHILD, draft, child.status), sequence=sequence)),)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def _checkpoint_created(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, CheckpointAttributes)
    checkpoint_id = _known(attributes.checkpoint_id, draft)
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
        continuation_kind=attributes.continuation_kind or "event_log_rebuild",
        snapshot_kind=attributes.snapshot_kind or "none",
        expires_at=_known(attributes.expires_at, draft),
        sequence=sequence,
    )
    latest = structs.replace(history_of(items), checkpoint_id=checkpoint_id)
    return ((("checkpoint", checkpoint_id), checkpoint), (HISTORY, latest))


# -- effects ----------------------------------------------------------------------------------------------------------


def _effect_dispatched(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, EffectAttributes)
    effect_id, digest = _known(attributes.effect_id, draft), action_digest(attributes)
    run = _run_of(items, draft)
    effect = EffectState(
        effect_id=effect_id,
        run_id=run.run_id,
        attempt_generation=run.generation,
        status=life.DISPATCHED,
        action_digest=digest,
        request_digest=attributes.request_digest or "",
        sequence=sequence,
    )
    action = action_of(items, digest) or ActionState(action_digest=digest)
    changes: Changes = (
        (("effect", effect_id), effect),
        (("action", digest), structs.replace(action, effect_id=effect_id)),
        (("run", run.run_id), structs.replace(run, open_effects=_with(run.open_effects, effect_id), sequence=sequence)),
    )
    if attributes.approval_id is None:
        return changes
    approval = _known(approval_of(items, attributes.approval_id), draft)
    used = structs.replace(approval, effect_id=effect_id, sequence=sequence)
    return (*changes, (("approval", approval.approval_id), used))


def _effect_moved(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, EffectAttributes)
    effect = _known(effect_of(items, _known(attributes.effect_id, draft)), draft)
    status = _next(life.EFFECT, draft, effect.status)
    if status != life.SETTLED:
        return ((("effect", effect.effect_id), structs.replace(effect, status=status, sequence=sequence)),)
    # A receipt that says nothing else is one of success.
    settled = structs.replace(effect, status=status, outcome=attributes.outcome or "succeeded", sequence=sequence)
    run = _known(run_of(items, effect.run_id or ""), draft)
    less = structs.replace(run, open_effects=_without(run.open_effects, effect.effect_id), sequence=sequence)
    return ((("effect", effect.effect_id), settled), (("run", run.run_id), less))


Fold = Callable[[Items, Draft, int, int], Changes]

FOLDS: Final[dict[str, Fold | None]] = {
    "session.created": _session_created,
    "session.closed": _session_closed,
    "session.forked": None,
    "thread.opened": _thread_opened,
    "turn.started": _turn_started,
    "turn.completed": _turn_completed,
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
    "message.appended": None,
    "source.recorded": None,
    "tool.called": None,
    "tool.returned": None,
    "child.started": _child_started,
    "child.settled": _child_settled,
    "wait.opened": _wait_opened,
    "wait.answered": _wait_closed,
    "wait.expired": _wait_closed,
    "approval.requested": _approval_requested,
    "approval.granted": _approval_decided,
    "approval.denied": _approval_decided,
    "effect.dispatched": _effect_dispatched,
    "effect.receipt_accepted": _effect_moved,
    "effect.indeterminate": _effect_moved,
    "effect.reconciled": _effect_moved,
    "checkpoint.created": _checkpoint_created,
    "checkpoint.consumed": None,
    "artifact.recorded": None,
    "context.pinned": _context_pinned,
    "steering.applied": None,
}
"""What each type changes beside the counters; None: nothing."""
