"""The policy of the caller's workspace, as it would be pinned to a session that is created now: read, and replaced."""

import asyncio
import time
from datetime import datetime
from typing import Literal

from msgspec import Struct

from connectors.edge import fields as f
from connectors.edge.policies import WorkspacePolicy
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, plain
from connectors.gateway.bodies import NoQuery
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway

_PAUSE_S = 0.01


class WorkspacePolicyView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`source`: whether the workspace has a policy of its own. A change holds for sessions created after it."""

    workspace_id: f.WorkspaceId
    mode: f.PolicyMode
    content_window_days: f.Days
    checkpoint_window_s: f.CheckpointWindow
    source: Literal["workspace", "installation"]
    changed_at: datetime | None


async def read(gateway: Gateway, call: Call, _: NoQuery) -> Answer:
    return plain(_view(call, gateway.policies.of(call.principal.workspace_id)))


async def replace(gateway: Gateway, call: Call, body: bodies.SetPolicy) -> Answer:
    """Other gateways follow within the lease, or create no session; this one is waited for."""
    workspace_id = call.principal.workspace_id
    policy = WorkspacePolicy(mode=body.mode, content_window_days=body.content_window_days, checkpoint_window_s=body.checkpoint_window_s)
    incoming = call.incoming()
    made, repeated = await gateway.in_thread(
        lambda: gateway.administration.replace(workspace_id, policy, gateway.composer.policy_request(incoming))
    )
    until_s = time.monotonic() + gateway.limits.position_wait_s
    while not gateway.policies.knows(workspace_id, made) and time.monotonic() < until_s:
        await asyncio.sleep(_PAUSE_S)
    answer = plain(_view(call, made))
    return Answer(answer.status, answer.body, [(b"session-streams-repeated", b"true")]) if repeated else answer


def _view(call: Call, policy: WorkspacePolicy) -> WorkspacePolicyView:
    return WorkspacePolicyView(
        workspace_id=call.principal.workspace_id,
        mode=policy.mode,
        content_window_days=policy.content_window_days,
        checkpoint_window_s=policy.checkpoint_window_s,
        source="installation" if policy.changed_at is None else "workspace",
        changed_at=None if policy.changed_at is None else f.when(policy.changed_at),
    )


ROUTES = (
    Route(
        method="GET", path="/v1/workspace/policy", name="read_policy", summary="What is pinned to sessions created now",
        handler=read, scope="sessions:read", answer=WorkspacePolicyView, position=False,
    ),
    Route(
        method="PUT", path="/v1/workspace/policy", name="replace_policy",
        summary="Replace what is pinned to sessions created from now on", handler=replace, scope="policy:write", body=bodies.SetPolicy,
        answer=WorkspacePolicyView, change=True, command=False, position=False, refusals=("request.idempotency_mismatch",),
        body_example=bodies.SetPolicy(mode="standard", content_window_days=90, checkpoint_window_s=7 * 86_400),
    ),
)  # fmt: skip
