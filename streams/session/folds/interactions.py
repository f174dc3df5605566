"""Waits, approvals, child work: what a Run asks of others."""

from typing import Final

from msgspec import structs

from streams.session import lifecycles as life
from streams.session.events import ApprovalAttributes, ChildAttributes, Draft, WaitAttributes, read
from streams.session.folds.common import Fold, known, moved, the_action, the_run, with_id, without_id
from streams.session.items import (
    ApprovalState,
    Changes,
    ChildState,
    Items,
    WaitState,
    approval_of,
    child_of,
    run_of,
    wait_of,
)


def _wait_opened(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, WaitAttributes)
    wait_id = known(attributes.wait_id, draft)
    wait = WaitState(wait_id=wait_id, run_id=draft.run_id, status=life.OPENED, expires_at=attributes.expires_at, sequence=sequence)
    if draft.run_id is None:
        return ((("wait", wait_id), wait),)
    run = the_run(items, draft)
    waiting = structs.replace(run, open_waits=with_id(run.open_waits, wait_id), sequence=sequence)
    return ((("wait", wait_id), wait), (("run", run.run_id), waiting))


def _wait_closed(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    wait = known(wait_of(items, known(read(draft, WaitAttributes).wait_id, draft)), draft)
    closed = structs.replace(wait, status=moved(life.WAIT, draft, wait.status), sequence=sequence)
    changes: Changes = ((("wait", wait.wait_id), closed),)
    if wait.run_id is None:
        return changes
    run = known(run_of(items, wait.run_id), draft)
    less = structs.replace(run, open_waits=without_id(run.open_waits, wait.wait_id), sequence=sequence)
    return (*changes, (("run", run.run_id), less))


def _approval_requested(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, ApprovalAttributes)
    approval_id, digest = known(attributes.approval_id, draft), known(attributes.action_digest, draft)
    approval = ApprovalState(
        approval_id=approval_id,
        run_id=draft.run_id,
        status=life.REQUESTED,
        action_digest=digest,
        expires_at=attributes.expires_at,
        sequence=sequence,
    )
    action = the_action(items, digest)
    before = None if action.approval_id is None else approval_of(items, action.approval_id)
    if before is None or before.status == life.REQUESTED:
        action = structs.replace(action, approval_id=approval_id)
    return ((("approval", approval_id), approval), (("action", action.action_digest), action))


def _approval_decided(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    approval = known(approval_of(items, known(read(draft, ApprovalAttributes).approval_id, draft)), draft)
    decided = structs.replace(approval, status=moved(life.APPROVAL, draft, approval.status), sequence=sequence)
    action = structs.replace(the_action(items, approval.action_digest), approval_id=approval.approval_id)
    return ((("approval", approval.approval_id), decided), (("action", action.action_digest), action))


def _child_started(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    child_id = known(read(draft, ChildAttributes).child_id, draft)
    return ((("child", child_id), ChildState(child_id=child_id, run_id=draft.run_id, status=life.STARTED, sequence=sequence)),)


def _child_settled(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    child = known(child_of(items, known(read(draft, ChildAttributes).child_id, draft)), draft)
    return ((("child", child.child_id), structs.replace(child, status=moved(life.CHILD, draft, child.status), sequence=sequence)),)


FOLDS: Final[dict[str, Fold | None]] = {
    "child.started": _child_started,
    "child.settled": _child_settled,
    "wait.opened": _wait_opened,
    "wait.answered": _wait_closed,
    "wait.expired": _wait_closed,
    "approval.requested": _approval_requested,
    "approval.granted": _approval_decided,
    "approval.denied": _approval_decided,
}
