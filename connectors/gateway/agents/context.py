"""POST /v1/context/compile: the request is looked at as a compiler would, and the pack is empty, since nothing here holds claims.

Checkpoints do not enter a pack, and `degraded.checkpoints` says so to whoever asks for them (seed 003, page 06, 3). Nothing is
kept of a compilation.
"""

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from connectors.edge.principal import Principal
from connectors.gateway.agents import auth, envelope, fields
from connectors.gateway.agents.body import body_object
from connectors.gateway.agents.failures import invalid, not_found
from connectors.gateway.agents.route import AgentRoute
from connectors.gateway.answers import Answer
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import NotPermitted

POLICY: Final = "session-streams:no-claims"
INSTRUCTIONS: Final = "Nothing was compiled: this service keeps no claims. Fetch a checkpoint by itself, and treat it as working state."
ALL_PROJECTS: Final = "context:compile:all"

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?")

Compiled = tuple[dict[str, Any], dict[str, Any]]
"""What is told as `data`, and what stands in `meta` beside the request's id."""


def compiled(body: dict[str, Any], context_id: str, now: datetime, allow: Callable[[str], None]) -> Compiled:
    """`allow` raises `Failure` for a scope that the key lacks. Raises `Failure`, for the first thing that is wrong."""
    subject_id = fields.required_string(body, "subject_id", 200)
    task = fields.required_string(body, "task", 4000)
    max_tokens = fields.required_integer(body, "max_tokens", 128, 32_000)
    for name in ("max_candidates", "top_k"):
        if name in body:
            fields.required_integer(body, name, 1, 1000)
    with_checkpoints = _flag(body, "include_checkpoints")
    project_id = fields.optional_string(body, "project_id", 200)
    everywhere = _flag(body, "cross_project")
    if everywhere and project_id is not None:
        raise invalid('Fields "project_id" and "cross_project" are mutually exclusive.')
    if everywhere:
        allow(ALL_PROJECTS)
    if project_id is not None:
        raise not_found()
    at = _moment(body, "at") or now
    mode = "cross_project" if everywhere else "unscoped"
    data = {
        "context_id": context_id,
        "context_token": context_id,
        "query": task,
        "scope": {
            "subject_id": subject_id,
            "project_id": None,
            "project_mode": mode,
            "broad_access_reason": f"credential_scope:{ALL_PROJECTS}" if everywhere else None,
            "as_of": fields.when(at),
        },
        "budget": {
            "max_tokens": max_tokens,
            "used_tokens": 0,
            "selected_items": 0,
            "omitted_items": 0,
            "deduplicated_items": 0,
            "unconsolidated_observations": 0,
            "budget_exhausted": False,
        },
        "items": [],
        "conflicts": [],
        "policy_snapshot": f"{POLICY}:{mode}",
        "instructions": INSTRUCTIONS,
    }
    degraded: dict[str, Any] = {"semantic": False, "vector": "disabled", "model": "disabled"}
    if with_checkpoints:
        degraded["checkpoints"] = "unavailable"
    return data, {"degraded": degraded, "candidates": 0}


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f'Field "{name}" must be a boolean.')
    return bool(value)


def _moment(body: dict[str, Any], name: str) -> datetime | None:
    """Without an offset it is UTC."""
    value = body.get(name)
    if value is None:
        return None
    try:
        if not isinstance(value, str) or _MOMENT.fullmatch(value) is None:
            raise ValueError
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid(f'Field "{name}" must be an ISO-8601 timestamp.') from None


async def serve(gateway: Gateway, call: Call) -> Answer:
    """Raises `Failure`, and what reading a body raises."""
    body = await body_object(gateway, call)
    principal = call.principal
    now = datetime.fromtimestamp(gateway.clock() / 1_000_000, UTC)
    data, meta = compiled(body, f"ctx_{uuid.uuid4().hex}", now, partial(auth.require, principal))
    if principal.subject_id is not None and not await _may_see(gateway, principal, body["subject_id"]):
        raise not_found()
    return envelope.success(200, data, meta)


async def _may_see(gateway: Gateway, principal: Principal, subject_id: str) -> bool:
    """Whether the subject is the one that the key is restricted to. Raises `KeyringUnavailable`."""
    try:
        await gateway.in_thread(partial(gateway.composer.subject, principal, subject_id))
    except NotPermitted:
        return False
    return True


ROUTES: Final = (
    AgentRoute(
        method="POST", path="/v1/context/compile", name="compile_context", summary="Compile a context pack",
        scope="context:compile", handler=serve,
    ),
)  # fmt: skip
