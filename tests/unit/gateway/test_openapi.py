"""The document tells of every route, and nothing that is not so. That answers keep to it, every test of this folder
checks (`tests.support.gateway.check_documented`)."""

import json
import re
from typing import Any

import httpx
import msgspec
import pytest

from connectors.gateway.agents.describing import DESCRIBED
from connectors.gateway.agents.router import ROUTES as AGENT_ROUTES
from connectors.gateway.app import DOCUMENT, ROUTES
from connectors.gateway.openapi import codes_of
from connectors.gateway.problems import STATUS, status_of
from streams.session import refusals
from tests.support.gateway import World, check_documented

SPEC: dict[str, Any] = json.loads(DOCUMENT)


def every(value: object) -> list[dict[str, Any]]:
    """All objects of the document."""
    found = [value] if isinstance(value, dict) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [*found, *(each for item in inner for each in every(item))]


def test_it_is_served_as_it_is(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == SPEC


def test_every_reference_leads_somewhere() -> None:
    names = {each["$ref"].rpartition("/")[2] for each in every(SPEC) if isinstance(each.get("$ref"), str)}
    assert names <= SPEC["components"]["schemas"].keys()


def test_every_object_that_we_define_is_closed() -> None:
    open_ones = {
        name
        for name, schema in SPEC["components"]["schemas"].items()
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False
    }
    # What agents send is looked at as their contract has it: unknown fields make no difference.
    assert open_ones == {"CompileContext", "SaveAgentCheckpoint"}


def test_every_operation_has_a_name_of_its_own_and_documents_its_parameters() -> None:
    operations = [(path, operation) for path, item in SPEC["paths"].items() for operation in item.values()]
    assert len({operation["operationId"] for _, operation in operations}) == len(operations) == len(ROUTES) + len(AGENT_ROUTES)
    for path, operation in operations:
        told = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
        assert told == set(re.findall(r"{([a-z_]+)}", path))


def test_every_change_asks_for_an_idempotency_key() -> None:
    theirs = {route.path.replace(":id", "{checkpoint_id}") for route in AGENT_ROUTES}
    for path, item in SPEC["paths"].items():
        for method, operation in item.items():
            asked = [each for each in operation.get("parameters", []) if each["name"] == "Idempotency-Key" and each["required"]]
            assert bool(asked) == (method != "get" and path not in theirs)


def test_what_is_said_of_the_routes_of_agents_is_said_of_those_that_there_are() -> None:
    assert DESCRIBED.keys() == {f"{route.method} {route.path}" for route in AGENT_ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_code_of_a_route_has_a_status(route: Any) -> None:
    assert all(code in STATUS for code in codes_of(route))


def test_every_code_that_a_session_refuses_with_has_a_status_of_its_own() -> None:
    codes = {value for name, value in vars(refusals).items() if name.isupper() and isinstance(value, str)}
    assert codes <= STATUS.keys()


def test_a_code_that_nobody_entered_is_an_internal_error_and_runtime_codes_are_conflicts() -> None:
    assert (status_of("made.up"), status_of("runtime.made_up")) == (500, 409)


def test_patterns_mean_the_same_to_python_and_to_other_readers() -> None:
    """Anchored at both ends, and free of what ECMA-262 does not know."""
    patterns = [each["pattern"] for each in every(SPEC) if isinstance(each.get("pattern"), str)]
    assert patterns
    for pattern in patterns:
        assert pattern.startswith("^")
        assert "$" in pattern
        assert not re.search(r"\\[AZz]|\(\?P|\(\?<[=!]", pattern)


def test_an_answer_that_is_not_documented_would_fail_a_test() -> None:
    request = httpx.Request("GET", "http://gateway/v1/sessions")
    with pytest.raises(msgspec.ValidationError):
        check_documented(httpx.Response(200, json={"sessions": [], "cursor": None, "more": 1}, request=request))
    problem = {"type": "t", "title": "t", "status": 409, "code": "runtime.session_closed", "detail": "d"}
    with pytest.raises(AssertionError):
        check_documented(httpx.Response(409, json=problem, request=request))


def test_the_position_of_a_report_is_optional_on_three_routes_only(shared: World) -> None:
    paths = httpx.get(f"{shared.url}/openapi.json").json()["paths"]
    without = set()
    for path, methods in paths.items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "Session-Streams-Report" and parameter["schema"]["pattern"].endswith(")?$"):
                    without.add((method, path.rpartition("/")[2]))
    assert without == {("post", "renew"), ("post", "snapshots"), ("get", "conversation")}


def test_the_lines_of_a_conversation_are_described(shared: World) -> None:
    paths = httpx.get(f"{shared.url}/openapi.json").json()["paths"]
    (operation,) = [methods["get"] for path, methods in paths.items() if path.endswith("/conversation")]
    described = operation["responses"]["200"]["content"]["application/x-ndjson"]["schema"]["description"]
    assert all(f'"kind":"{kind}"' in described for kind in ("event", "gap", "end"))


@pytest.mark.parametrize("route", [route for route in ROUTES if route.example or route.body_example], ids=lambda route: route.name)
def test_an_example_is_one(route: Any) -> None:
    operation = SPEC["paths"][route.path][route.method.lower()]
    shown = [(route.answer, operation["responses"][str(route.status)]["content"])] if route.example else []
    shown += [(route.body, operation["requestBody"]["content"])] if route.body_example is not None else []
    for kind, content in shown:
        assert msgspec.convert(content["application/json"]["example"], kind) is not None
