"""The routes of agent checkpoints in the interface document: what they take, what they answer, and what they refuse with.

Requests are looked at field by field, in the order and with the words of the contract, so the records of requests stand here for the
document alone. Their bounds are those that are enforced.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from connectors.edge.fields import CheckpointId
from connectors.gateway.agents.fields import NAME_MAX
from connectors.gateway.agents.route import AgentRoute
from streams.agents.core import TTL_SECONDS_MAX, TTL_SECONDS_MIN

JSON: Final = "application/json"
_REF: Final = "#/components/schemas/{name}"

Text = Annotated[str, Meta(min_length=1, max_length=NAME_MAX, description="In UTF-16 units, and not blank")]
Kind = Literal["task_state", "conversation", "workflow", "cursor"]
Ttl = Annotated[int, Meta(ge=TTL_SECONDS_MIN, le=TTL_SECONDS_MAX)]
StateHash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256 of the state as JSON.stringify writes it")]
When = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$")]
State = Annotated[dict[str, Any] | list[Any] | str | int | float | bool, Meta(description="Any JSON but null, at most 64,000 bytes")]
OneToThousand = Annotated[int, Meta(ge=1, le=1000)]


class SaveAgentCheckpoint(Struct, kw_only=True):
    subject_id: Text
    agent_id: Text | None = None
    run_id: Text | None = None
    kind: Kind
    state: State
    ttl_seconds: Ttl
    expected_state_hash: StateHash | None = None


class CompileContext(Struct, kw_only=True):
    subject_id: Text
    task: Annotated[str, Meta(min_length=1, max_length=4000)]
    max_tokens: Annotated[int, Meta(ge=128, le=32_000)]
    max_candidates: OneToThousand | UnsetType = UNSET
    top_k: OneToThousand | UnsetType = UNSET
    include_checkpoints: bool | None = None
    project_id: Text | None = None
    cross_project: bool | None = None
    at: Annotated[str, Meta(description="ISO 8601")] | None = None


class AnswerMeta(Struct, frozen=True, forbid_unknown_fields=True):
    request_id: Annotated[str, Meta(pattern="^req_[0-9a-f]{32}$")]


class AgentCheckpointSaved(Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: CheckpointId
    subject_id: str
    agent_id: str
    kind: Kind
    state_hash: StateHash
    expires_at: When
    updated: bool


class AgentCheckpoint(Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: CheckpointId
    subject_id: str
    agent_id: str
    run_id: str | None
    kind: Kind
    state: Any
    state_hash: StateHash
    ttl_seconds: Ttl
    expires_at: When
    created_at: When
    updated_at: When


class AgentCheckpointVersion(AgentCheckpoint, frozen=True, forbid_unknown_fields=True, kw_only=True):
    version: Annotated[int, Meta(ge=1)]


class AgentCheckpointVersions(Struct, frozen=True, forbid_unknown_fields=True):
    """Newest first, as far as they are kept and not expired; `next_before` continues, null at the end."""

    checkpoint_id: CheckpointId
    versions: list[AgentCheckpointVersion]
    next_before: int | None


class ExportedAgentCheckpoint(Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: CheckpointId
    kind: Kind
    versions: list[AgentCheckpointVersion]


class AgentCheckpointExport(Struct, frozen=True, forbid_unknown_fields=True):
    """What has expired or is erased is not in it."""

    subject_id: str
    agent_id: str
    checkpoints: list[ExportedAgentCheckpoint]


class AgentCheckpointGone(Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: CheckpointId
    deleted: Literal[True]


class AgentPrincipal(Struct, frozen=True, forbid_unknown_fields=True):
    organization_id: str
    principal_id: str
    principal_kind: Literal["human", "agent", "service"]
    key_id: str
    scopes: list[str]
    data_target_type: Literal["organization", "subject"]
    data_target_id: str | None


class ContextScope(Struct, frozen=True, forbid_unknown_fields=True):
    subject_id: str
    project_id: None
    project_mode: Literal["unscoped", "cross_project"]
    broad_access_reason: str | None
    as_of: When


class ContextBudget(Struct, frozen=True, forbid_unknown_fields=True):
    max_tokens: int
    used_tokens: Literal[0]
    selected_items: Literal[0]
    omitted_items: Literal[0]
    deduplicated_items: Literal[0]
    unconsolidated_observations: Literal[0]
    budget_exhausted: bool


class ContextPack(Struct, frozen=True, forbid_unknown_fields=True):
    """Always empty: nothing here keeps claims, and checkpoints do not enter a pack."""

    context_id: Annotated[str, Meta(pattern="^ctx_[0-9a-f]{32}$")]
    context_token: str
    query: str
    scope: ContextScope
    budget: ContextBudget
    items: Annotated[list[Any], Meta(max_length=0)]
    conflicts: Annotated[list[Any], Meta(max_length=0)]
    policy_snapshot: str
    instructions: str


class ContextDegraded(Struct, frozen=True, forbid_unknown_fields=True):
    """`checkpoints` is there for whoever asked for them."""

    semantic: bool
    vector: Literal["disabled"]
    model: Literal["disabled"]
    checkpoints: Literal["unavailable"] | UnsetType = UNSET


class ContextMeta(Struct, frozen=True, forbid_unknown_fields=True):
    request_id: Annotated[str, Meta(pattern="^req_[0-9a-f]{32}$")]
    degraded: ContextDegraded
    candidates: Literal[0]


class AgentCheckpointSavedAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    data: AgentCheckpointSaved
    meta: AnswerMeta


class AgentCheckpointAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    data: AgentCheckpoint
    meta: AnswerMeta


class AgentCheckpointHistoryAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    data: AgentCheckpointVersions
    meta: AnswerMeta


class AgentCheckpointExportAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    data: AgentCheckpointExport
    meta: AnswerMeta


class AgentCheckpointGoneAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    data: AgentCheckpointGone
    meta: AnswerMeta


class AgentPrincipalAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    data: AgentPrincipal
    meta: AnswerMeta


class ContextAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    data: ContextPack
    meta: ContextMeta


class AgentError(Struct, frozen=True, forbid_unknown_fields=True):
    """`code` is stable, `message` for people."""

    code: str
    message: str


class AgentErrorMeta(AnswerMeta, frozen=True, forbid_unknown_fields=True):
    """`actual_state_hash`, with a conflict: of the state that is there, null for none."""

    actual_state_hash: StateHash | UnsetType | None = UNSET


class AgentErrorAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    error: AgentError
    meta: AgentErrorMeta


class Described(Struct, frozen=True, kw_only=True):
    """What is to be said of a route beside itself. `answers`: the record of each status; None where there is no body. `codes`: what it
    refuses with, by status."""

    answers: Mapping[int, Any]
    codes: Mapping[int, str]
    body: Any = None
    parameters: tuple[Mapping[str, Any], ...] = ()


_EVERY: Final = {401: "UNAUTHENTICATED", 429: "RATE_LIMITED", 500: "INTERNAL", 503: "UNAVAILABLE"}
_SCOPED: Final = {**_EVERY, 403: "FORBIDDEN"}
_NAMED: Final = {**_SCOPED, 404: "NOT_FOUND"}
_WITH_BODY: Final = {**_NAMED, 400: "VALIDATION_ERROR", 408: "REQUEST_TIMEOUT", 413: "PAYLOAD_TOO_LARGE"}


def _parameter(name: str, place: str, schema: Mapping[str, Any], *, required: bool = False, about: str = "") -> Mapping[str, Any]:
    given = {"name": name, "in": place, "required": required, "schema": schema}
    return {**given, "description": about} if about else given


_BY_ID: Final = (_parameter("checkpoint_id", "path", msgspec.json.schema(CheckpointId), required=True),)
_SOME: Final = {"type": "string", "minLength": 1}

DESCRIBED: Final[Mapping[str, Described]] = {
    "POST /v1/checkpoints": Described(
        body=SaveAgentCheckpoint, answers={200: AgentCheckpointSavedAnswer, 201: AgentCheckpointSavedAnswer},
        codes={**_WITH_BODY, 409: "CONFLICT"},
        parameters=(_parameter("If-Match", "header", {"type": "string"}, about="The state hash to replace, as `expected_state_hash`"),),
    ),
    "GET /v1/checkpoints": Described(
        answers={200: AgentCheckpointAnswer}, codes={**_NAMED, 400: "VALIDATION_ERROR"},
        parameters=(
            _parameter("subject_id", "query", _SOME, required=True), _parameter("kind", "query", _SOME, required=True),
            _parameter("agent_id", "query", {"type": "string"}, about="The caller's own where it is not given"),
        ),
    ),
    "GET /v1/checkpoints/export": Described(
        answers={200: AgentCheckpointExportAnswer}, codes={**_SCOPED, 400: "VALIDATION_ERROR"},
        parameters=(_parameter("subject_id", "query", _SOME, required=True),),
    ),
    "GET /v1/checkpoints/:id": Described(
        answers={200: AgentCheckpointAnswer}, codes=_NAMED, parameters=_BY_ID,
    ),
    "DELETE /v1/checkpoints/:id": Described(
        answers={200: AgentCheckpointGoneAnswer}, codes=_NAMED, parameters=_BY_ID,
    ),
    "GET /v1/checkpoints/:id/history": Described(
        answers={200: AgentCheckpointHistoryAnswer}, codes={**_NAMED, 400: "VALIDATION_ERROR"},
        parameters=(
            *_BY_ID, _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 100}),
            _parameter("before", "query", {"type": "integer", "minimum": 1}, about="Versions below this one"),
        ),
    ),
    "POST /v1/context/compile": Described(
        body=CompileContext, answers={200: ContextAnswer}, codes=_WITH_BODY,
    ),
    "GET /v1/principal": Described(
        answers={200: AgentPrincipalAnswer}, codes=_EVERY,
    ),
    "POST /mcp": Described(
        body=Any, answers={200: Any, 202: None, 400: Any}, codes={**_SCOPED, 408: "REQUEST_TIMEOUT"},
        parameters=(_parameter("MCP-Protocol-Version", "header", {"type": "string"}, about="One that `initialize` answers with"),),
    ),
}  # fmt: skip


def kinds() -> set[Any]:
    """Every record that the document has to hold."""
    named = {kind for route in DESCRIBED.values() for kind in (route.body, *route.answers.values())} - {None, Any}
    return named | {AgentErrorAnswer}


def paths(routes: Iterable[AgentRoute]) -> dict[str, dict[str, Any]]:
    """Raises `KeyError` for a route of which nothing is said here."""
    found: dict[str, dict[str, Any]] = {}
    for route in routes:
        described = DESCRIBED[f"{route.method} {route.path}"]
        found.setdefault(route.path.replace("/:id", "/{checkpoint_id}"), {})[route.method.lower()] = _operation(route, described)
    return found


def _operation(route: AgentRoute, described: Described) -> dict[str, Any]:
    responses = {str(status): _response(route.summary, kind) for status, kind in described.answers.items()}
    for status, code in sorted(described.codes.items()):
        response = _response(code, AgentErrorAnswer)
        if status in (429, 503):
            response["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds"}}
        responses[str(status)] = response
    operation: dict[str, Any] = {
        "operationId": route.name, "summary": route.summary, "security": [{"key": []}], "responses": responses,
        "description": "Needs a key." if route.scope is None else f"Needs the scope `{route.scope}`.",
    }  # fmt: skip
    if described.parameters:
        operation["parameters"] = list(described.parameters)
    if described.body is not None:
        operation["requestBody"] = {"required": described.body is not Any, "content": _content(described.body)}
    return operation


def _response(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, **({} if kind is None else {"content": _content(kind)})}


def _content(kind: Any) -> dict[str, Any]:
    return {JSON: {"schema": {} if kind is Any else {"$ref": _REF.format(name=kind.__name__)}}}
