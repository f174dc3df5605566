"""Routes of Runs and their attempts: open, keep the lease, report, settle. How one comes to hold a Run stands in `claims.py`.

A worker proves itself by the header `Session-Streams-Report`; who may report what, the authority decides.
"""

from typing import Any

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Changed
from connectors.gateway.call import Call
from connectors.gateway.changes import Done, append_one, report_of
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.session.commands import Kind
from streams.session.events import AttemptAttributes, Link, RunAttributes
from streams.session.outcomes import Grant

_RUN = "/v1/sessions/{session_id}/runs/{run_id}"
_ATTEMPT = _RUN + "/attempts/{generation}"
_HELD = ("runtime.attempt_fenced", "runtime.already_settled")
_REPORTED = (*_HELD, "runtime.position_conflict", "runtime.run_unavailable", "runtime.transition_refused")


class RunChanged(Changed, kw_only=True, forbid_unknown_fields=True):
    run_id: f.RunId


class AttemptGranted(Changed, kw_only=True, forbid_unknown_fields=True):
    """What a report has to name from now on, and until when the lease holds."""

    run_id: f.RunId
    generation: f.Generation
    native_task_id: f.TaskId
    lease_expires_at: f.Moment


async def open_run(gateway: Gateway, call: Call, body: bodies.OpenRun) -> Answer:
    attributes = RunAttributes(
        origin="live",
        lane=body.lane,
        claimable=body.claimable,
        harness=body.harness,
        harness_revision=body.harness_revision,
        environment_revision=body.environment_revision,
    )

    def event(naming: Naming) -> NewEvent:
        return NewEvent(
            type="run.accepted",
            run_id=naming.of("run"),
            thread_id=body.thread_id,
            turn_id=body.turn_id,
            actor=body.actor,
            links=() if body.parent_run_id is None else (Link("parent_run", body.parent_run_id),),
            attributes=attributes,
            content=f.content_text(body.content),
        )

    done = await append_one(gateway, call, event)
    return done.told(201, RunChanged, run_id=done.naming.of("run"))


async def renew(gateway: Gateway, call: Call, body: bodies.RenewAttempt) -> Answer:
    report = report_of(call, position_needed=False)
    return _granted(await append_one(gateway, call, None, kind=Kind.RENEW, report=report, lease_ms=body.lease_ms))


async def ready(gateway: Gateway, call: Call, body: bodies.ReadyAttempt) -> Answer:
    report = report_of(call)

    def event(_: Naming) -> NewEvent:
        return NewEvent(type="attempt.ready", run_id=report.run_id, content=f.content_text(body.content))

    return _granted(await append_one(gateway, call, event, report=report))


async def fail(gateway: Gateway, call: Call, body: bodies.FailAttempt) -> Answer:
    report = report_of(call)

    def event(_: Naming) -> NewEvent:
        attributes = AttemptAttributes(reason=body.reason)
        return NewEvent(type="attempt.failed", run_id=report.run_id, attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event, report=report)
    return done.told(200, RunChanged, run_id=report.run_id)


async def complete(gateway: Gateway, call: Call, body: bodies.CompleteRun) -> Answer:
    report = report_of(call)

    def event(_: Naming) -> NewEvent:
        attributes = RunAttributes(outcome=body.outcome, reward=body.reward, reason=body.reason)
        return NewEvent(type=f"run.{body.result}", run_id=report.run_id, attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event, report=report)
    return done.told(200, RunChanged, run_id=report.run_id)


async def cancel(gateway: Gateway, call: Call, body: bodies.CancelRun) -> Answer:
    run_id = call.path["run_id"]

    def event(_: Naming) -> NewEvent:
        return NewEvent(
            type="run.cancelled", run_id=run_id, attributes=RunAttributes(reason=body.reason), content=f.content_text(body.content)
        )

    done = await append_one(gateway, call, event)
    return done.told(200, RunChanged, run_id=run_id)


def _granted(done: Done) -> Answer:
    grant = done.outcome.grant
    if grant is None:
        raise RuntimeError(f"{done.outcome.command_id}: accepted without a grant")
    return done.told(200, AttemptGranted, **granted_fields(grant))


def granted_fields(grant: Grant) -> dict[str, Any]:
    """What `AttemptGranted` tells beside every change."""
    return {
        "run_id": grant.run_id,
        "generation": grant.generation,
        "native_task_id": grant.native_task_id,
        "lease_expires_at": f.when(grant.lease_expires_at),
    }


ROUTES = (
    Route(
        method="POST", path="/v1/sessions/{session_id}/runs", name="open_run", summary="Open a public Run", handler=open_run,
        scope="sessions:write", body=bodies.OpenRun, answer=RunChanged, status=201, change=True,
        refusals=("runtime.already_settled", "runtime.handoff_unavailable"),
    ),
    Route(
        method="POST", path=_ATTEMPT + "/renew", name="renew_attempt", summary="Extend the lease; appends nothing", handler=renew,
        scope="runs:claim", body=bodies.RenewAttempt, answer=AttemptGranted, change=True, report="required",
        report_position=False, refusals=_HELD,
    ),
    Route(
        method="POST", path=_ATTEMPT + "/ready", name="ready_attempt", summary="The harness serves; once more after its restart",
        handler=ready, scope="runs:claim", body=bodies.ReadyAttempt, answer=AttemptGranted, change=True, report="required",
        refusals=_REPORTED,
    ),
    Route(
        method="POST", path=_ATTEMPT + "/fail", name="fail_attempt", summary="The attempt failed", handler=fail,
        scope="runs:claim", body=bodies.FailAttempt, answer=RunChanged, change=True, report="required", refusals=_REPORTED,
    ),
    Route(
        method="POST", path=_RUN + "/complete", name="complete_run", summary="Settle the Run", handler=complete,
        scope="runs:claim", body=bodies.CompleteRun, answer=RunChanged, change=True, report="required", refusals=_REPORTED,
    ),
    Route(
        method="POST", path=_RUN + "/cancel", name="cancel_run", summary="Cancel the Run", handler=cancel,
        scope="sessions:write", body=bodies.CancelRun, answer=RunChanged, change=True,
        refusals=("runtime.already_settled", "runtime.run_unavailable", "runtime.transition_refused"),
    ),
)  # fmt: skip
