"""Waits and approvals: what is asked of a person or a machine, and the answer.

A wait stops a running Run until the last open one is closed. An approval authorises one exact frozen action, named by
its digest, until it expires; it stops nothing and proves nothing about what a provider did.
"""

from typing import Final

from streams.session import refusals
from streams.session.digests import same
from streams.session.events import ApprovalAttributes, Draft, WaitAttributes, read
from streams.session.items import ApprovalState, WaitState, approval_of, wait_of
from streams.session.lifecycles import OPENED, REQUESTED, RUNNING, WAITING
from streams.session.outcomes import Rejected
from streams.session.rules.reports import completed, retold, standing
from streams.session.work import Work

OPEN_WAITS_LIMIT: Final = 128
"""Of one Run at a time: they stand in its item, which every event of the Run writes again."""


def _placed(work: Work, draft: Draft, run_id: str | None, *, by_worker: bool, settled_ok: bool = False) -> Draft | Rejected:
    """The draft in its Run; or outside of all, where neither it nor what it answers names one."""
    if run_id is None and draft.run_id is None:
        if (draft.attempt_generation, draft.native_task_id) != (None, None):
            return refusals.invalid(work.index, "run_id")
        return draft
    run = standing(work, draft, run_id, by_worker=by_worker, settled_ok=settled_ok)
    return run if isinstance(run, Rejected) else completed(work, draft, run, by_worker=by_worker)


def _past(work: Work, run_id: str | None, expires_at: int | None) -> bool:
    """Whether it is too late. What is retold happened when it happened."""
    return expires_at is not None and work.accepted_at >= expires_at and not retold(work, run_id)


def wait_opened(work: Work, draft: Draft) -> Draft | Rejected:
    attributes = read(draft, WaitAttributes)
    if attributes.wait_id is None:
        return refusals.invalid(work.index, "attributes.wait_id")
    if attributes.kind is None:
        return refusals.invalid(work.index, "attributes.kind")
    if _past(work, draft.run_id, attributes.expires_at) or (attributes.kind == "timer" and attributes.expires_at is None):
        return refusals.invalid(work.index, "attributes.expires_at")
    wait = wait_of(work, attributes.wait_id)
    if wait is not None:
        return refusals.exists(wait.wait_id) if wait.status == OPENED else refusals.settled(wait.wait_id, wait.status)
    if draft.run_id is None:
        return _placed(work, draft, None, by_worker=True)
    run = standing(work, draft, draft.run_id, by_worker=True)
    if isinstance(run, Rejected):
        return run
    if run.status not in (RUNNING, WAITING):
        return Rejected(refusals.TRANSITION_REFUSED, f"{run.run_id} is {run.status}")
    if len(run.open_waits) >= OPEN_WAITS_LIMIT:
        return Rejected(refusals.LIMIT_REACHED, f"{run.run_id} has {len(run.open_waits)} open waits")
    return completed(work, draft, run, by_worker=True)


def _open_wait(work: Work, draft: Draft) -> WaitState | Rejected:
    wait_id = read(draft, WaitAttributes).wait_id
    if wait_id is None:
        return refusals.invalid(work.index, "attributes.wait_id")
    wait = wait_of(work, wait_id)
    if wait is None:
        return refusals.not_found(work.index, "attributes.wait_id")
    return wait if wait.status == OPENED else refusals.settled(wait.wait_id, wait.status)


def wait_answered(work: Work, draft: Draft) -> Draft | Rejected:
    wait = _open_wait(work, draft)
    if isinstance(wait, Rejected):
        return wait
    if _past(work, wait.run_id, wait.expires_at):
        return refusals.expired(refusals.WAIT_EXPIRED, wait.wait_id, wait.expires_at)
    return _placed(work, draft, wait.run_id, by_worker=False)


def wait_expired(work: Work, draft: Draft) -> Draft | Rejected:
    """Only once it is due; also where the Run is over, so that nothing stays open for ever."""
    wait = _open_wait(work, draft)
    if isinstance(wait, Rejected):
        return wait
    if not retold(work, wait.run_id) and not _past(work, wait.run_id, wait.expires_at):
        return Rejected(refusals.TRANSITION_REFUSED, f"{wait.wait_id} is not due")
    return _placed(work, draft, wait.run_id, by_worker=False, settled_ok=True)


def approval_requested(work: Work, draft: Draft) -> Draft | Rejected:
    attributes = read(draft, ApprovalAttributes)
    if attributes.approval_id is None:
        return refusals.invalid(work.index, "attributes.approval_id")
    if attributes.action_digest is None:
        return refusals.invalid(work.index, "attributes.action_digest")
    if _past(work, draft.run_id, attributes.expires_at):
        return refusals.invalid(work.index, "attributes.expires_at")
    approval = approval_of(work, attributes.approval_id)
    if approval is not None:
        open_ = approval.status == REQUESTED
        return refusals.exists(approval.approval_id) if open_ else refusals.settled(approval.approval_id, approval.status)
    return _placed(work, draft, draft.run_id, by_worker=True)


def approval_decided(work: Work, draft: Draft) -> Draft | Rejected:
    """Granted or denied, once; whoever decides may name the action, and then must name the one that was frozen."""
    attributes = read(draft, ApprovalAttributes)
    approval: ApprovalState | None = None if attributes.approval_id is None else approval_of(work, attributes.approval_id)
    if attributes.approval_id is None:
        return refusals.invalid(work.index, "attributes.approval_id")
    if approval is None:
        return refusals.not_found(work.index, "attributes.approval_id")
    if approval.status != REQUESTED:
        return refusals.settled(approval.approval_id, approval.status)
    if attributes.decision not in (None, draft.type.partition(".")[2]):
        return refusals.invalid(work.index, "attributes.decision")
    if attributes.action_digest is not None and not same(attributes.action_digest, approval.action_digest):
        return Rejected(refusals.APPROVAL_MISMATCH, f"{approval.approval_id} is for another action")
    if _past(work, approval.run_id, approval.expires_at):
        return refusals.expired(refusals.APPROVAL_EXPIRED, approval.approval_id, approval.expires_at)
    return _placed(work, draft, approval.run_id, by_worker=False)


RULES: Final = {
    "wait.opened": wait_opened,
    "wait.answered": wait_answered,
    "wait.expired": wait_expired,
    "approval.requested": approval_requested,
    "approval.granted": approval_decided,
    "approval.denied": approval_decided,
}
