"""GET /v1/principal: whom a key stands for, in the words of the contract. Any key may ask."""

from typing import Any, Final

from connectors.edge.principal import Principal
from connectors.gateway.agents import auth, envelope
from connectors.gateway.agents.route import AgentRoute
from connectors.gateway.answers import Answer
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway

_KINDS: Final = {"person": "human", "runner": "agent", "service": "service"}


def told(principal: Principal) -> dict[str, Any]:
    """Its scopes by the names that their clients know: snapshots have another one here, and `admin` grants everything."""
    renamed = {each: f"snapshots:{each.partition(':')[2]}" for each in ("checkpoints:read", "checkpoints:write")}
    scopes = {renamed.get(each) or auth.shown(each) for each in principal.scopes - {"admin"}}
    return {
        "organization_id": principal.workspace_id,
        "principal_id": principal.agent_id,
        "principal_kind": _KINDS[principal.kind],
        "key_id": principal.principal_id,
        "scopes": ["*"] if "admin" in principal.scopes else sorted(scopes),
        "data_target_type": "organization" if principal.subject_id is None else "subject",
        "data_target_id": principal.subject_id,
    }


async def serve(_: Gateway, call: Call) -> Answer:
    return envelope.success(200, told(call.principal))


ROUTES: Final = (
    AgentRoute(method="GET", path="/v1/principal", name="principal", summary="Whom this key stands for", scope=None, handler=serve),
)
