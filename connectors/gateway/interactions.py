"""Routes of human and machine input: waits and their answers, approvals and their decisions, steering."""

from datetime import datetime

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Changed
from connectors.gateway.call import Call
from connectors.gateway.changes import append_one
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.session.events import ApprovalAttributes, SteeringAttributes, WaitAttributes

_SESSION = "/v1/sessions/{session_id}"
_ASKED = (
    "runtime.attempt_fenced", "runtime.position_conflict", "runtime.already_settled", "runtime.run_unavailable",
    "runtime.transition_refused", "runtime.limit_reached",
)  # fmt: skip


class WaitChanged(Changed, kw_only=True, forbid_unknown_fields=True):
    wait_id: f.WaitId


class ApprovalChanged(Changed, kw_only=True, forbid_unknown_fields=True):
    approval_id: f.ApprovalId


async def open_wait(gateway: Gateway, call: Call, body: bodies.OpenWait) -> Answer:
    report = call.report()

    def event(naming: Naming) -> NewEvent:
        attributes = WaitAttributes(wait_id=naming.of("wait"), kind=body.kind, expires_at=_us(body.expires_at), reason=body.reason)
        return NewEvent(
            type="wait.opened",
            run_id=None if report is None else report.run_id,
            attributes=attributes,
            content=f.content_text(body.content),
        )

    done = await append_one(gateway, call, event, report=report)
    return done.told(201, WaitChanged, wait_id=done.naming.of("wait"))


async def answer_wait(gateway: Gateway, call: Call, body: bodies.AnswerWait) -> Answer:
    wait_id = call.path["wait_id"]

    def event(_: Naming) -> NewEvent:
        return NewEvent(
            type="wait.answered", actor=body.actor, attributes=WaitAttributes(wait_id=wait_id), content=f.content_text(body.content)
        )

    done = await append_one(gateway, call, event)
    return done.told(200, WaitChanged, wait_id=wait_id)


async def request_approval(gateway: Gateway, call: Call, body: bodies.RequestApproval) -> Answer:
    report = call.report()

    def event(naming: Naming) -> NewEvent:
        attributes = ApprovalAttributes(approval_id=naming.of("appr"), action_digest=body.action_digest, expires_at=_us(body.expires_at))
        return NewEvent(
            type="approval.requested",
            run_id=None if report is None else report.run_id,
            attributes=attributes,
            content=f.content_text(body.content),
        )

    done = await append_one(gateway, call, event, report=report)
    return done.told(201, ApprovalChanged, approval_id=done.naming.of("appr"))


async def decide_approval(gateway: Gateway, call: Call, body: bodies.DecideApproval) -> Answer:
    approval_id = call.path["approval_id"]

    def event(_: Naming) -> NewEvent:
        attributes = ApprovalAttributes(approval_id=approval_id, action_digest=body.action_digest, decision=body.decision)
        return NewEvent(type=f"approval.{body.decision}", actor=body.actor, attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event)
    return done.told(200, ApprovalChanged, approval_id=approval_id)


async def steer(gateway: Gateway, call: Call, body: bodies.Steer) -> Answer:
    def event(_: Naming) -> NewEvent:
        attributes = SteeringAttributes(kind=body.kind, target_run_id=body.target_run_id)
        return NewEvent(
            type="steering.applied",
            run_id=body.target_run_id,
            actor=body.actor,
            attributes=attributes,
            content=f.content_text(body.content),
        )

    return (await append_one(gateway, call, event)).told(201, Changed)


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else f.microseconds_of(moment)


ROUTES = (
    Route(
        method="POST", path=_SESSION + "/waits", name="open_wait", summary="Wait for a person, a machine or a time",
        handler=open_wait, scope="sessions:write", body=bodies.OpenWait, answer=WaitChanged, status=201, change=True,
        report="optional", refusals=_ASKED,
    ),
    Route(
        method="POST", path=_SESSION + "/waits/{wait_id}/answer", name="answer_wait", summary="Answer a wait", handler=answer_wait,
        scope="sessions:write", body=bodies.AnswerWait, answer=WaitChanged, change=True,
        refusals=("runtime.already_settled", "runtime.wait_expired", "runtime.run_unavailable"),
    ),
    Route(
        method="POST", path=_SESSION + "/approvals", name="request_approval", summary="Ask for leave for one exact action",
        handler=request_approval, scope="sessions:write", body=bodies.RequestApproval, answer=ApprovalChanged, status=201, change=True,
        report="optional", refusals=_ASKED,
    ),
    Route(
        method="POST", path=_SESSION + "/approvals/{approval_id}/decide", name="decide_approval", summary="Grant or deny",
        handler=decide_approval, scope="sessions:write", body=bodies.DecideApproval, answer=ApprovalChanged, change=True,
        refusals=("runtime.already_settled", "runtime.approval_mismatch", "runtime.approval_expired", "runtime.run_unavailable"),
    ),
    Route(
        method="POST", path=_SESSION + "/steering", name="steer", summary="Contribute to a Run that is under way", handler=steer,
        scope="sessions:write", body=bodies.Steer, answer=Changed, status=201, change=True,
        refusals=("runtime.steering_unavailable",),
    ),
)  # fmt: skip
