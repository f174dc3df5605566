"""The policy of the caller's workspace, as it would be pinned to a session that is created now."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from connectors.edge import fields as f
from connectors.gateway.answers import Answer, plain
from connectors.gateway.bodies import NoQuery
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway


class WorkspacePolicyView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`source`: whether the workspace has a policy of its own. A change holds for sessions created after it."""

    workspace_id: f.WorkspaceId
    mode: f.PolicyMode
    content_window_days: f.Days
    checkpoint_window_s: f.CheckpointWindow
    source: Literal["workspace", "installation"]
    changed_at: datetime | None


async def read(gateway: Gateway, call: Call, _: NoQuery) -> Answer:
    policy = gateway.policies.of(call.principal.workspace_id)
    view = WorkspacePolicyView(
        workspace_id=call.principal.workspace_id,
        mode=policy.mode,
        content_window_days=policy.content_window_days,
        checkpoint_window_s=policy.checkpoint_window_s,
        source="installation" if policy.changed_at is None else "workspace",
        changed_at=None if policy.changed_at is None else f.when(policy.changed_at),
    )
    return plain(view)


ROUTES = (
    Route(
        method="GET", path="/v1/workspace/policy", name="read_policy", summary="What is pinned to sessions created now",
        handler=read, scope="sessions:read", answer=WorkspacePolicyView, position=False,
    ),
)  # fmt: skip
