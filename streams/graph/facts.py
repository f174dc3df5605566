"""What each type of event tells of the graph: which nodes it makes or changes, and between which it draws edges.

A table by type, as `streams.session.folds` has one. Types that it does not name (messages, tool calls, records of a
source, and what a newer release may write) make nothing. A fact that names its thing by no id is a gap.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from streams.graph import recovery_facts
from streams.graph.items import (
    APPROVAL,
    ARTIFACT,
    AUTHORISED_BY,
    CHILD,
    CHILD_OF,
    CONSUMED,
    CONTAINS,
    CONTEXT_PIN,
    DISPATCHED,
    EFFECT,
    EVIDENCE,
    FORKED_FROM,
    PRODUCED,
    REPLACES,
    RUN,
    SETTLED_BY,
    THREAD,
    TURN,
    WAIT,
    WAITS_ON,
    pin_id,
)
from streams.graph.telling import ELSEWHERE, NODE_MISSING, Telling, Tells
from streams.session import lifecycles as life
from streams.session.events import (
    ApprovalAttributes,
    ArtifactAttributes,
    ChildAttributes,
    ContextAttributes,
    EffectAttributes,
    RunAttributes,
    SessionAttributes,
    ThreadAttributes,
    TurnAttributes,
    WaitAttributes,
)

RECEIPT: Final = "receipt"
"""The kind of evidence that a receipt is; a reconciliation names its own."""


# -- session, thread, turn --------------------------------------------------------------------------------------------


def _session_created(telling: Telling) -> None:
    event, attributes = telling.event, telling.read(SessionAttributes)
    node = telling.rows.node(event.session_id)
    if node is not None and node.created_event_id == event.event_id:
        telling.rows.put(structs.replace(node, state=life.OPEN, kind=attributes.origin, fork_id=attributes.fork_id))
        telling.name_causes(event.session_id)
    source = attributes.source_session_id
    if source is not None:
        telling.name_session(source)
        telling.draw(FORKED_FROM, event.session_id, source, **recovery_facts.boundary(attributes))
    for parent in telling.linked("parent_session"):
        if parent != source:
            telling.miss(ELSEWHERE, parent)


def _session_closed(telling: Telling) -> None:
    telling.change(telling.event.session_id, state=life.CLOSED, reason=telling.read(SessionAttributes).reason)


def _thread_opened(telling: Telling) -> None:
    thread_id, attributes = telling.event.thread_id, telling.read(ThreadAttributes)
    if thread_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(thread_id, THREAD, kind=attributes.kind)
    telling.draw(CONTAINS, telling.event.session_id, thread_id)
    for above in (attributes.parent_thread_id, *telling.linked("child")):
        if above is not None:
            telling.draw(CHILD_OF, thread_id, above)


def _turn_started(telling: Telling) -> None:
    turn_id = telling.event.turn_id
    if turn_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(turn_id, TURN, state=life.STARTED)
    telling.put_in_place(turn_id)


def _turn_completed(telling: Telling) -> None:
    telling.change(telling.event.turn_id, state=life.COMPLETED, outcome=telling.read(TurnAttributes).outcome)


# -- run, attempt -----------------------------------------------------------------------------------------------------


def _run_accepted(telling: Telling) -> None:
    run_id, attributes = telling.event.run_id, telling.read(RunAttributes)
    if run_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(run_id, RUN, state=life.ACCEPTED, kind=attributes.origin)
    telling.put_in_place(run_id)
    for parent in telling.linked("parent_run"):
        telling.draw(CHILD_OF, run_id, parent)
    for parent in telling.linked("parent_session"):
        telling.miss(ELSEWHERE, parent)


def _run_moved(state: str) -> Tells:
    def tell(telling: Telling) -> None:
        run_id, attributes = telling.event.run_id, telling.read(RunAttributes)
        changed = {name: value for name, value in (("outcome", attributes.outcome), ("reason", attributes.reason)) if value is not None}
        if telling.change(run_id, state=state, **changed) and run_id is not None and state == life.WAITING:
            for wait_id in telling.linked("wait"):
                telling.draw(WAITS_ON, run_id, wait_id)

    return tell


def _context_pinned(telling: Telling) -> None:
    run_id, attributes = telling.event.run_id, telling.read(ContextAttributes)
    if run_id is None or attributes.pin_kind is None:
        telling.miss(NODE_MISSING)
        return
    identifier = pin_id(run_id, attributes.pin_kind)
    telling.make(identifier, CONTEXT_PIN, kind=attributes.pin_kind, revision=attributes.revision, digest=attributes.digest)
    telling.attach(CONSUMED, telling.run, identifier)


def _steering_applied(telling: Telling) -> None:
    """It belongs to the Run that it targets."""
    telling.change(telling.event.run_id)


# -- waits, approvals, child work -------------------------------------------------------------------------------------


def _wait_opened(telling: Telling) -> None:
    attributes = telling.read(WaitAttributes)
    if attributes.wait_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(
        attributes.wait_id, WAIT, state=life.OPENED, kind=attributes.kind, reason=attributes.reason, expires_at=attributes.expires_at
    )
    telling.attach(WAITS_ON, telling.run, attributes.wait_id)


def _wait_answered(telling: Telling) -> None:
    telling.answered(telling.read(WaitAttributes).wait_id, life.ANSWERED)


def _wait_expired(telling: Telling) -> None:
    telling.change(telling.read(WaitAttributes).wait_id, state=life.EXPIRED)


def _approval_requested(telling: Telling) -> None:
    attributes = telling.read(ApprovalAttributes)
    if attributes.approval_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(
        attributes.approval_id, APPROVAL, state=life.REQUESTED, action_digest=attributes.action_digest, expires_at=attributes.expires_at
    )
    telling.put_in_place(attributes.approval_id)


def _approval_decided(state: str) -> Tells:
    return lambda telling: telling.answered(telling.read(ApprovalAttributes).approval_id, state)


def _child_started(telling: Telling) -> None:
    attributes = telling.read(ChildAttributes)
    if attributes.child_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(attributes.child_id, CHILD, state=life.STARTED, kind=attributes.kind, native=attributes.native)
    if telling.run is not None:
        telling.draw(CHILD_OF, attributes.child_id, telling.run)
    else:
        telling.put_in_place(attributes.child_id)


def _child_settled(telling: Telling) -> None:
    attributes = telling.read(ChildAttributes)
    telling.change(attributes.child_id, state=life.SETTLED, outcome=attributes.outcome)


# -- effects, artifacts -----------------------------------------------------------------------------------------------


def _effect_dispatched(telling: Telling) -> None:
    attributes = telling.read(EffectAttributes)
    if attributes.effect_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(
        attributes.effect_id,
        EFFECT,
        state=life.DISPATCHED,
        kind=attributes.provider,
        request_digest=attributes.request_digest,
        action_digest=attributes.action_digest or attributes.request_digest,
    )
    telling.attach(DISPATCHED, telling.worker, attributes.effect_id)
    if attributes.approval_id is not None:
        telling.draw(AUTHORISED_BY, attributes.effect_id, attributes.approval_id)


def _effect_indeterminate(telling: Telling) -> None:
    telling.change(telling.read(EffectAttributes).effect_id, state=life.INDETERMINATE)


def _effect_settled(telling: Telling) -> None:
    """The receipt or the reconciliation is evidence of its own: it settles the effect, whatever an approval said."""
    event, attributes = telling.event, telling.read(EffectAttributes)
    # A receipt that says nothing else is one of success.
    outcome = attributes.outcome or "succeeded"
    kind = RECEIPT if event.type == "effect.receipt_accepted" else attributes.evidence_kind
    settled = {"state": life.SETTLED, "outcome": outcome}
    if attributes.receipt_digest is not None:
        settled["receipt_digest"] = attributes.receipt_digest
    if telling.change(attributes.effect_id, **settled) and attributes.effect_id is not None:
        telling.make(event.event_id, EVIDENCE, kind=kind, outcome=outcome, receipt_digest=attributes.receipt_digest)
        telling.draw(SETTLED_BY, attributes.effect_id, event.event_id)


def _artifact_recorded(telling: Telling) -> None:
    event, attributes = telling.event, telling.read(ArtifactAttributes)
    identifier = attributes.artifact_id or event.event_id
    telling.make(identifier, ARTIFACT, digest=attributes.digest)
    telling.attach(PRODUCED, telling.worker, identifier)
    for older in telling.linked("supersedes"):
        telling.draw(REPLACES, identifier, older)


TELLS: Final[Mapping[str, Tells]] = {
    "session.created": _session_created,
    "session.closed": _session_closed,
    "session.forked": recovery_facts.session_forked,
    "thread.opened": _thread_opened,
    "turn.started": _turn_started,
    "turn.completed": _turn_completed,
    "run.accepted": _run_accepted,
    "run.started": _run_moved(life.RUNNING),
    "run.waiting": _run_moved(life.WAITING),
    "run.resumed": _run_moved(life.RUNNING),
    "run.completed": _run_moved(life.COMPLETED),
    "run.failed": _run_moved(life.FAILED),
    "run.cancelled": _run_moved(life.CANCELLED),
    "attempt.started": recovery_facts.attempt_started,
    "attempt.ready": recovery_facts.attempt_moved(life.READY),
    "attempt.failed": recovery_facts.attempt_moved(life.FAILED),
    "attempt.replaced": recovery_facts.attempt_moved(life.REPLACED),
    "attempt.fenced": recovery_facts.attempt_moved(life.FENCED),
    "context.pinned": _context_pinned,
    "steering.applied": _steering_applied,
    "checkpoint.created": recovery_facts.checkpoint_created,
    "checkpoint.consumed": recovery_facts.checkpoint_consumed,
    "wait.opened": _wait_opened,
    "wait.answered": _wait_answered,
    "wait.expired": _wait_expired,
    "approval.requested": _approval_requested,
    "approval.granted": _approval_decided(life.GRANTED),
    "approval.denied": _approval_decided(life.DENIED),
    "child.started": _child_started,
    "child.settled": _child_settled,
    "effect.dispatched": _effect_dispatched,
    "effect.indeterminate": _effect_indeterminate,
    "effect.receipt_accepted": _effect_settled,
    "effect.reconciled": _effect_settled,
    "artifact.recorded": _artifact_recorded,
}
