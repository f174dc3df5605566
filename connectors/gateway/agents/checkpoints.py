"""The routes of agent checkpoints (page 06, 1.1)."""

from typing import Final
from urllib.parse import parse_qsl

from connectors.gateway.agents import body, operations
from connectors.gateway.agents.envelope import success
from connectors.gateway.agents.route import AgentRoute
from connectors.gateway.answers import Answer
from connectors.gateway.call import Call
from connectors.gateway.opening import HELD_FROM_BYTES
from connectors.gateway.service import INLINE_BYTES_MAX, Gateway

_READ, _WRITE = "agent-checkpoints:read", "agent-checkpoints:write"
_POSITION: Final = "session-streams-position"


def query_of(call: Call) -> dict[str, str]:
    """As URLSearchParams reads it, the first of each name."""
    pairs = parse_qsl(call.scope["query_string"].decode(errors="replace"), keep_blank_values=True, errors="replace")
    return dict(reversed(pairs))


async def save(gateway: Gateway, call: Call) -> Answer:
    """The position of the command is told to whoever names that header in the request, with any value."""
    given = await body.body_object(gateway, call)
    large = len(call.body) > INLINE_BYTES_MAX
    written, data = await operations.save(gateway, call.principal, given, if_match=call.header("if-match"), large=large)
    asked = call.header(_POSITION) is not None
    return success(200 if written.updated else 201, data, more=[(_POSITION.encode(), written.position.encode())] if asked else [])


async def get(gateway: Gateway, call: Call) -> Answer:
    return success(200, await operations.get(gateway, call.principal, query_of(call)))


async def get_by_id(gateway: Gateway, call: Call) -> Answer:
    return success(200, await operations.get_by_id(gateway, call.principal, call.path["id"]))


async def delete(gateway: Gateway, call: Call) -> Answer:
    return success(200, await operations.delete(gateway, call.principal, call.path["id"]))


async def history(gateway: Gateway, call: Call) -> Answer:
    return _held(gateway, call, success(200, await operations.history(gateway, call.principal, call.path["id"], query_of(call))))


async def export(gateway: Gateway, call: Call) -> Answer:
    return _held(gateway, call, success(200, await operations.export(gateway, call.principal, query_of(call))))


def _held(gateway: Gateway, call: Call, answer: Answer) -> Answer:
    """A long answer counts among what is held open until it is sent."""
    if len(answer.body) >= HELD_FROM_BYTES:
        call.hold(gateway.opened, len(answer.body))
    return answer


ROUTES: Final = (
    AgentRoute(
        method="POST", path="/v1/checkpoints", name="save_agent_checkpoint", summary="Save a checkpoint, over the one that is there",
        scope=_WRITE, handler=save, change=True,
    ),
    AgentRoute(
        method="GET", path="/v1/checkpoints", name="find_agent_checkpoint", summary="The caller's checkpoint at a subject and kind",
        scope=_READ, handler=get,
    ),
    # In front of the ids: none is spelled so.
    AgentRoute(
        method="GET", path="/v1/checkpoints/export", name="export_agent_checkpoints",
        summary="All that the caller keeps of a subject, with its versions", scope=_READ, handler=export,
    ),
    AgentRoute(
        method="GET", path="/v1/checkpoints/:id", name="get_agent_checkpoint", summary="A checkpoint by its id", scope=_READ,
        handler=get_by_id,
    ),
    AgentRoute(
        method="DELETE", path="/v1/checkpoints/:id", name="delete_agent_checkpoint", summary="Delete a checkpoint", scope=_WRITE,
        handler=delete, change=True,
    ),
    AgentRoute(
        method="GET", path="/v1/checkpoints/:id/history", name="list_agent_checkpoint_versions",
        summary="The versions of a checkpoint within retention", scope=_READ, handler=history,
    ),
)  # fmt: skip
