"""POST /v1/context/compile and GET /v1/principal: an honest nothing, and who asks (page 06, 1.1 and 3)."""

import json
import re
from typing import Any

import httpx
import pytest

from tests.support.gateway import WORKSPACE, World

ASKED = {"subject_id": "user_rama", "task": "deploy", "max_tokens": 4000}


@pytest.fixture(scope="module")
def caller(shared: World) -> httpx.Client:
    return shared.client("context:compile")


def compiled(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/v1/context/compile", json={**ASKED, **more})


def test_a_pack_is_empty_and_says_what_did_not_take_part(caller: httpx.Client) -> None:
    answer = compiled(caller)
    data, meta = answer.json()["data"], answer.json()["meta"]
    assert answer.status_code == 200
    assert re.fullmatch("ctx_[0-9a-f]{32}", data["context_id"])
    assert data.pop("context_token") == data.pop("context_id")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", data["scope"].pop("as_of"))
    assert isinstance(data.pop("instructions"), str)
    assert data == {
        "query": "deploy",
        "scope": {"subject_id": "user_rama", "project_id": None, "project_mode": "unscoped", "broad_access_reason": None},
        "budget": {
            "max_tokens": 4000, "used_tokens": 0, "selected_items": 0, "omitted_items": 0, "deduplicated_items": 0,
            "unconsolidated_observations": 0, "budget_exhausted": False,
        },
        "items": [], "conflicts": [], "policy_snapshot": "session-streams:no-claims:unscoped",
    }  # fmt: skip
    assert meta == {
        "request_id": answer.headers["x-request-id"],
        "degraded": {"semantic": False, "vector": "disabled", "model": "disabled"},
        "candidates": 0,
    }


def test_whoever_asks_for_checkpoints_is_told_that_they_do_not_enter(caller: httpx.Client) -> None:
    degraded = compiled(caller, include_checkpoints=True).json()["meta"]["degraded"]
    assert degraded == {"semantic": False, "vector": "disabled", "model": "disabled", "checkpoints": "unavailable"}
    for flag in (False, None):
        assert "checkpoints" not in compiled(caller, include_checkpoints=flag).json()["meta"]["degraded"]


def test_a_checkpoint_that_is_there_does_not_enter_a_pack(shared: World, caller: httpx.Client) -> None:
    client = shared.client()
    saved = {"subject_id": "user_rama", "kind": "task_state", "state": {"note": "deploy needs a rollback smoke"}, "ttl_seconds": 60}
    assert client.post("/v1/checkpoints", json=saved).status_code == 201
    answer = client.post("/v1/context/compile", json={**ASKED, "include_checkpoints": True})
    assert answer.json()["data"]["items"] == []
    assert "rollback" not in answer.text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, 'Field "subject_id" is required.'),
        ({"subject_id": 1, "task": 1}, 'Field "subject_id" must be a string.'),
        ({"subject_id": "s"}, 'Field "task" is required.'),
        ({"subject_id": "s", "task": " "}, 'Field "task" must be a non-empty string.'),
        ({"subject_id": "s", "task": "x" * 4001}, 'Field "task" exceeds 4000 characters.'),
        ({"subject_id": "s", "task": "t"}, 'Field "max_tokens" is required.'),
        ({**ASKED, "max_tokens": "128"}, 'Field "max_tokens" must be an integer.'),
        ({**ASKED, "max_tokens": 127}, 'Field "max_tokens" must be between 128 and 32000.'),
        ({**ASKED, "max_tokens": 32_001, "top_k": 0}, 'Field "max_tokens" must be between 128 and 32000.'),
        ({**ASKED, "max_candidates": None, "top_k": 0}, 'Field "max_candidates" must be an integer.'),
        ({**ASKED, "max_candidates": 1001}, 'Field "max_candidates" must be between 1 and 1000.'),
        ({**ASKED, "top_k": 0, "include_checkpoints": "true"}, 'Field "top_k" must be between 1 and 1000.'),
        ({**ASKED, "include_checkpoints": "true", "project_id": 1}, 'Field "include_checkpoints" must be a boolean.'),
        ({**ASKED, "project_id": 1, "cross_project": 1}, 'Field "project_id" must be a string when present.'),
        ({**ASKED, "project_id": "p", "cross_project": 1}, 'Field "cross_project" must be a boolean.'),
        ({**ASKED, "project_id": "p", "cross_project": True}, 'Fields "project_id" and "cross_project" are mutually exclusive.'),
        ({**ASKED, "at": "yesterday"}, 'Field "at" must be an ISO-8601 timestamp.'),
        ({**ASKED, "at": 7}, 'Field "at" must be an ISO-8601 timestamp.'),
        ({**ASKED, "at": "2026-02-30"}, 'Field "at" must be an ISO-8601 timestamp.'),
        ({**ASKED, "at": "0001-01-01T00:00:00+23:59"}, 'Field "at" must be an ISO-8601 timestamp.'),
        ([], "Request body must be a JSON object."),
    ],
    ids=lambda each: str(each)[-60:],
)
def test_the_first_thing_that_is_wrong_is_told(caller: httpx.Client, body: Any, message: str) -> None:
    answer = caller.post("/v1/context/compile", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, {"code": "VALIDATION_ERROR", "message": message})


def test_there_are_no_projects(caller: httpx.Client, shared: World) -> None:
    unknown = compiled(caller, project_id="p", at="yesterday")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "NOT_FOUND")
    refused = compiled(caller, cross_project=True)
    assert (refused.status_code, refused.json()["error"]["message"]) == (403, 'Missing required scope "context:compile:all".')
    scope = compiled(shared.client(), cross_project=True).json()["data"]["scope"]
    assert (scope["project_mode"], scope["broad_access_reason"]) == ("cross_project", "credential_scope:context:compile:all")


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("2026-07-30", "2026-07-30T00:00:00.000Z"),
        ("2026-07-30T12:00", "2026-07-30T12:00:00.000Z"),
        ("2026-07-30T12:00:00.123456+02:00", "2026-07-30T10:00:00.123Z"),
    ],
)
def test_a_pack_is_of_the_time_that_was_asked_for(caller: httpx.Client, at: str, told: str) -> None:
    assert compiled(caller, at=at).json()["data"]["scope"]["as_of"] == told


def test_a_key_of_one_subject_compiles_for_that_one_only(shared: World) -> None:
    subject_id = shared.keyring.pseudonym(WORKSPACE, "subject", "user_rama", create=True)
    client = shared.client("context:compile", subject_id=subject_id)
    assert compiled(client).status_code == 200
    other = compiled(client, subject_id="somebody")
    assert (other.status_code, other.json()["error"]["message"]) == (404, "Resource was not found.")


@pytest.mark.parametrize(
    "path", ["/v1/context", "/v1/context/ctx_1", "/v1/context/ctx_1/feedback", "/v1/observations", "/v1/consolidations", "/v1/claims"]
)
def test_what_claims_would_be_made_and_asked_for_with_is_not_there(shared: World, path: str) -> None:
    answer = httpx.post(f"{shared.url}{path}")
    assert answer.status_code == 404
    if path.startswith("/v1/context"):
        assert answer.json()["error"] == {"code": "NOT_FOUND", "message": "Unknown endpoint."}


def test_any_key_may_ask_whom_it_stands_for(shared: World) -> None:
    scopes = ("mcp:call", "agent-checkpoints:read", "checkpoints:read", "sessions:read")
    answer = shared.client(*scopes).get("/v1/principal")
    data = answer.json()["data"]
    assert answer.status_code == 200
    assert re.fullmatch("agent_[0-9a-f]{32}", data.pop("principal_id"))
    assert re.fullmatch("key_[0-9a-f]{32}", data.pop("key_id"))
    assert data == {
        "organization_id": WORKSPACE, "principal_kind": "service",
        "scopes": ["checkpoints:read", "mcp:call", "sessions:read", "snapshots:read"],
        "data_target_type": "organization", "data_target_id": None,
    }  # fmt: skip
    assert shared.client().get("/v1/principal").json()["data"]["scopes"] == ["*"]
    for kind, told in (("person", "human"), ("runner", "agent")):
        assert shared.client("mcp:call", kind=kind).get("/v1/principal").json()["data"]["principal_kind"] == told


def test_the_principal_of_a_key_is_the_agent_of_its_checkpoints(shared: World) -> None:
    client = shared.client()
    saved = {"subject_id": "principal", "kind": "cursor", "state": 1, "ttl_seconds": 60}
    agent_id = client.post("/v1/checkpoints", json=saved).json()["data"]["agent_id"]
    assert client.get("/v1/principal").json()["data"]["principal_id"] == agent_id


@pytest.mark.parametrize("method", ["HEAD", "POST", "OPTIONS"])
def test_a_principal_can_only_be_read(shared: World, method: str) -> None:
    answer = httpx.request(method, f"{shared.url}/v1/principal")
    assert answer.status_code == 405
    if method != "HEAD":
        assert json.loads(answer.text)["error"]["message"] == "Allowed methods: GET."
