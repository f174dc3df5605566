"""The MCP tools that there are: what is told of each, and how its arguments become a question that the routes answer too."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from connectors.gateway.agents import operations
from connectors.gateway.call import Call
from connectors.gateway.service import INLINE_BYTES_MAX, Gateway

_SUBJECT: Final = {"type": "string", "description": "Whom or what the work is about; at most 200 characters."}
_KIND: Final = {
    "type": "string",
    "enum": ["task_state", "conversation", "workflow", "cursor"],
    "description": "What is kept. An agent has one checkpoint of each kind for a subject.",
}
_AGENT: Final = {"type": "string", "description": "The calling agent's own id, which is also what it is when left out."}

TOOLS: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "titen_checkpoint_save",
        "description": (
            "Saves where this agent got to, over what it saved before for the same subject and kind. "
            "It is state to go on from, never evidence of anything, and is gone once it expires."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "subject_id": _SUBJECT,
                "kind": _KIND,
                "state": {"description": "Any JSON value but null; at most 64,000 bytes as compact JSON."},
                "ttl_seconds": {"type": "integer", "description": "For how long it is kept: 60 to 2,592,000 seconds from now."},
                "agent_id": _AGENT,
                "run_id": {"type": "string", "description": "What it belongs to; a save without one forgets the last."},
            },
            "required": ["subject_id", "kind", "state", "ttl_seconds"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False},
    },
    {
        "name": "titen_checkpoint_get",
        "description": "What this agent last saved for the subject and kind, if it has not expired. Treat it as state, not as fact.",
        "inputSchema": {
            "type": "object",
            "properties": {"subject_id": _SUBJECT, "kind": _KIND, "agent_id": _AGENT},
            "required": ["subject_id", "kind"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
    },
)

Tool = Callable[[Gateway, Call, Any], Awaitable[dict[str, Any]]]
"""Takes the arguments as they came, and gives what the route has as `data`. Raises what the operation raises."""


async def _save(gateway: Gateway, call: Call, arguments: Any) -> dict[str, Any]:
    """What is no object counts as an empty one."""
    body = {name: value for name, value in arguments.items() if name != "idempotency_key"} if isinstance(arguments, dict) else {}
    if gateway.agent_changes.full():
        raise gateway.agent_changes.refusal()
    gateway.agent_changes.take()
    try:
        _, data = await operations.save(gateway, call.principal, body, large=len(call.body) > INLINE_BYTES_MAX)
    finally:
        gateway.agent_changes.give_back()
    return data


async def _get(gateway: Gateway, call: Call, arguments: Any) -> dict[str, Any]:
    """Only strings go into the query, so that a number reads as missing."""
    given = arguments if isinstance(arguments, dict) else {}
    query = {name: given[name] for name in ("subject_id", "kind", "agent_id") if isinstance(given.get(name), str)}
    return await operations.get(gateway, call.principal, query)


CALLS: Final[dict[str, Tool]] = {"titen_checkpoint_save": _save, "titen_checkpoint_get": _get}
