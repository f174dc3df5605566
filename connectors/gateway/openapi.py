"""The interface document (OpenAPI 3.1), made of the routes and of the records that they decode and encode.

Nothing is described twice: a bound that a request is checked against is the bound that stands here.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct, structs

from connectors.edge import fields as f
from connectors.edge.principal import ANY_SCOPE
from connectors.gateway import problems
from connectors.gateway.agents import describing
from connectors.gateway.agents.route import AgentRoute
from connectors.gateway.answers import JSON, PositionText
from connectors.gateway.route import Route

_REF: Final = "#/components/schemas/{name}"
_HEADERS: Final[dict[str, tuple[Any, str]]] = {
    "Idempotency-Key": (
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
        "Names the request: sent again with the same body it is answered with the recorded outcome.",
    ),
    "Session-Streams-Expected-Sequence": ({"type": "integer", "minimum": 0}, "Refuses the change unless the session is at this sequence."),
    "Session-Streams-Report": (
        {"type": "string", "pattern": "^run_[0-9a-f]{32};[1-9][0-9]{0,17};task_[0-9a-f]{32};(0|[1-9][0-9]{0,17})$"},
        "A worker's proof: run_id;generation;native_task_id;expected_run_sequence.",
    ),
    "Session-Streams-Position": ({"$ref": _REF.format(name="Position")}, "Waits, within bounds, until this position is readable."),
    "Last-Event-ID": (
        {"type": "string", "pattern": "^(sess_[0-9a-f]{32}:)?(0|[1-9][0-9]{0,17})$"},
        "Resumes an event stream behind this event: its sequence, or with `lineage` its session and sequence.",
    ),
}
_ANSWER_HEADERS: Final = {
    "Session-Streams-Position": {"schema": {"$ref": _REF.format(name="Position")}, "description": "As in the body."},
    "Session-Streams-Repeated": {"schema": {"const": "true"}, "description": "The recorded outcome of an earlier request."},
}


_OTHER_PATH_KINDS: Final[dict[str, Any]] = {"generation": f.Generation, "subject": f.SubjectNamed}
_REPORT_WITHOUT_POSITION: Final[tuple[Any, str]] = (
    {"type": "string", "pattern": "^run_[0-9a-f]{32};[1-9][0-9]{0,17};task_[0-9a-f]{32}(;(0|[1-9][0-9]{0,17}))?$"},
    "A worker's proof: run_id;generation;native_task_id, and where it likes ;expected_run_sequence, which is not looked at here.",
)


def document(routes: tuple[Route, ...], agent_routes: tuple[AgentRoute, ...], version: str) -> dict[str, Any]:
    """The whole document, ready to be encoded."""
    kinds = {kind for route in routes for kind in (route.body, *_answers(route)) if kind is not None} | describing.kinds()
    ordered = sorted([*kinds, problems.Problem, *f.ATTRIBUTES_BODY.values()], key=lambda kind: str(kind.__name__))
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    components["Position"] = msgspec.json.schema(PositionText)
    any_attributes = {"anyOf": [{"$ref": _REF.format(name=kind.__name__)} for kind in f.ATTRIBUTES_BODY.values()]}
    components["EventBody"]["properties"]["attributes"] = {"anyOf": [*any_attributes["anyOf"], {"type": "null"}]}
    components["EventView"]["properties"]["attributes"] = any_attributes
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths.update(describing.paths(agent_routes))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Session Streams", "version": version, "summary": "A durable session log for AI agents on Apache Kafka"},
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "sks_ or titen_sk_, and 43 characters"}},
        },
    }


def codes_of(route: Route) -> tuple[str, ...]:
    """Every code that the route may refuse with."""
    codes = {"request.invalid", "service.internal"}
    codes.update(route.refusals)
    if route.scope is not None:
        codes |= {"auth.missing", "auth.invalid", "auth.not_yet_valid", "auth.expired", "auth.revoked"}
        codes |= set() if route.scope == ANY_SCOPE else {"auth.scope"}
        codes |= {"service.not_ready"}
        codes |= {"request.malformed", "request.rate_limited", "service.overloaded", "service.unavailable", "service.broker_unavailable"}
        codes |= {"service.not_owner", "service.projection_behind", "service.keyring_unavailable", "service.blob_store_unavailable"}
    if "{" in route.path:
        codes |= {"resource.not_found"}
    if route.change:
        codes |= {"request.timeout", "request.too_large", "request.unsupported_media_type"}
        codes |= {"content.erased", "content.expired"}
    if route.change and route.command:
        codes |= {"request.idempotency_mismatch", "request.expired", "service.outcome_unknown"}
        codes |= {"resource.not_found", "runtime.session_closed", "runtime.sequence_conflict"}
    return tuple(sorted(codes))


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary, "responses": _responses(route)}
    if route.scope is not None:
        operation["security"] = [{"key": []}]
        scopes = f"scope `{route.scope}`" if route.also_scope is None else f"scopes `{route.scope}` and `{route.also_scope}`"
        operation["description"] = "Needs a key." if route.scope == ANY_SCOPE else f"Needs the {scopes}."
    parameters = [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    content = {} if route.body is None else {JSON: _shown({"$ref": _REF.format(name=route.body.__name__)}, route.body_example)}
    content.update(_as_text(route.other_body_types))
    if content:
        required = route.reads_body_itself or any(field.required for field in structs.fields(route.body))
        operation["requestBody"] = {"required": required, "content": content}
    return operation


def _responses(route: Route) -> dict[str, Any]:
    content: dict[str, Any]
    if route.answer is not None:
        answers = [{"$ref": _REF.format(name=kind.__name__)} for kind in _answers(route)]
        content = {JSON: _shown(answers[0] if len(answers) == 1 else {"oneOf": answers}, route.example)}
    else:
        content = _as_text({route.media_type or "text/plain": route.media_type_says})
    content.update(_as_text(route.other_media_types))
    success: dict[str, Any] = {"description": route.summary, "content": content}
    if route.change:
        success["headers"] = {**_ANSWER_HEADERS, **route.answer_headers}
    responses = {str(status): success for status in (route.status, route.known_status) if status is not None}
    if route.nothing is not None:
        responses["204"] = {"description": route.nothing}
    by_status: dict[int, list[str]] = {}
    for code in codes_of(route):
        by_status.setdefault(problems.status_of(code), []).append(code)
    for status, codes in sorted(by_status.items()):
        response: dict[str, Any] = {
            "description": f"{problems.TITLES[status]}: {', '.join(codes)}",
            "content": {problems.MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
        }
        if status in (429, 503):
            response["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds"}}
        responses[str(status)] = response
    return responses


def _answers(route: Route) -> tuple[Any, ...]:
    """The records that an answer may be one of."""
    return get_args(route.answer) or (route.answer,)


def _shown(schema: dict[str, Any], example: Struct | None) -> dict[str, Any]:
    return {"schema": schema, **({} if example is None else {"example": msgspec.to_builtins(example)})}


def _as_text(media_types: Mapping[str, str]) -> dict[str, Any]:
    return {
        media_type: {"schema": {"type": "string", **({"description": description} if description else {})}}
        for media_type, description in media_types.items()
    }


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = [part.strip("{}") for part in route.path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": _schema(_path_kind(name))} for name in names]


def _path_kind(name: str) -> Any:
    return _OTHER_PATH_KINDS.get(name) or f.PATH_PARAMETERS[name][1]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    for field in structs.fields(route.query):
        schema = _schema(field.type)
        # A parameter that is not given has no value; null cannot be written in a query.
        options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
        found.append({"name": field.name, "in": "query", "required": False, "schema": options[0] if options else schema})
    return found


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    names: list[tuple[str, bool]] = []
    if route.change:
        names.append(("Idempotency-Key", True))
        if route.command:
            names.append(("Session-Streams-Expected-Sequence", False))
    if route.report != "none":
        names.append(("Session-Streams-Report", route.report == "required"))
    if route.scope is not None and route.position:
        names.append(("Session-Streams-Position", False))
    if route.last_event_id:
        names.append(("Last-Event-ID", False))
    headers = _HEADERS if route.report_position else {**_HEADERS, "Session-Streams-Report": _REPORT_WITHOUT_POSITION}
    names.extend((name, True) for name in route.headers)
    headers = {**headers, **route.headers}
    return [
        {"name": name, "in": "header", "required": required, "schema": headers[name][0], "description": headers[name][1]}
        for name, required in names
    ]


def _schema(kind: Any) -> dict[str, Any]:
    return msgspec.json.schema(kind)
