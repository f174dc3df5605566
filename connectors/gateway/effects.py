"""Routes of provider effects: told before the request leaves, settled by a receipt or by evidence."""

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Changed
from connectors.gateway.call import Call
from connectors.gateway.changes import append_one, report_of
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.session.events import EffectAttributes

_EFFECTS = "/v1/sessions/{session_id}/effects"
_REPORTED = ("runtime.attempt_fenced", "runtime.position_conflict", "runtime.already_settled", "runtime.run_unavailable")


class EffectChanged(Changed, kw_only=True, forbid_unknown_fields=True):
    effect_id: f.EffectId


async def dispatch(gateway: Gateway, call: Call, body: bodies.DispatchEffect) -> Answer:
    report = report_of(call)

    def event(naming: Naming) -> NewEvent:
        attributes = EffectAttributes(
            effect_id=naming.of("eff"),
            provider=body.provider,
            request_digest=body.request_digest,
            action_digest=body.action_digest,
            approval_id=body.approval_id,
        )
        return NewEvent(type="effect.dispatched", run_id=report.run_id, attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event, report=report)
    return done.told(201, EffectChanged, effect_id=done.naming.of("eff"))


async def receipt(gateway: Gateway, call: Call, body: bodies.ReceiveReceipt) -> Answer:
    report = report_of(call)
    effect_id = call.path["effect_id"]

    def event(_: Naming) -> NewEvent:
        attributes = EffectAttributes(effect_id=effect_id, receipt_digest=body.receipt_digest, outcome=body.outcome)
        return NewEvent(type="effect.receipt_accepted", run_id=report.run_id, attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event, report=report)
    return done.told(200, EffectChanged, effect_id=effect_id)


async def reconcile(gateway: Gateway, call: Call, body: bodies.ReconcileEffect) -> Answer:
    effect_id = call.path["effect_id"]

    def event(_: Naming) -> NewEvent:
        attributes = EffectAttributes(
            effect_id=effect_id, evidence_kind=body.evidence_kind, outcome=body.outcome, receipt_digest=body.receipt_digest
        )
        return NewEvent(type="effect.reconciled", attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event, report=call.report())
    return done.told(200, EffectChanged, effect_id=effect_id)


ROUTES = (
    Route(
        method="POST", path=_EFFECTS, name="dispatch_effect", summary="Tell of an effect before its request leaves", handler=dispatch,
        scope="sessions:write", body=bodies.DispatchEffect, answer=EffectChanged, status=201, change=True, report="required",
        refusals=(
            *_REPORTED, "runtime.already_exists", "runtime.transition_refused", "runtime.limit_reached", "runtime.effect_indeterminate",
            "runtime.effect_in_flight", "runtime.approval_required", "runtime.approval_mismatch", "runtime.approval_expired",
            "runtime.approval_used",
        ),
    ),
    Route(
        method="POST", path=_EFFECTS + "/{effect_id}/receipt", name="receive_receipt", summary="Settle an effect by its receipt",
        handler=receipt, scope="sessions:write", body=bodies.ReceiveReceipt, answer=EffectChanged, change=True, report="required",
        refusals=_REPORTED,
    ),
    Route(
        method="POST", path=_EFFECTS + "/{effect_id}/reconcile", name="reconcile_effect", summary="Settle an effect by evidence",
        handler=reconcile, scope="sessions:write", body=bodies.ReconcileEffect, answer=EffectChanged, change=True, report="optional",
        refusals=(*_REPORTED, "runtime.effect_in_flight"),
    ),
)  # fmt: skip
