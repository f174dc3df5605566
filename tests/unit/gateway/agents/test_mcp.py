"""POST /mcp, row by row of the contract (page 06, 2): each row is a request, and all that is said of its answer."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.gateway.agents.mcp import BATCH_MAX, VERSIONS
from connectors.gateway.limits import GatewayLimits
from connectors.support.support import running_release
from streams.errors import Retriable
from tests.support.gateway import World, world

SCOPE = "mcp:call"
PARSE = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error."}}
INVALID = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Invalid JSON-RPC request."}}
ABSENT = {"code": "NOT_FOUND", "message": "Resource was not found."}
STATE = {"step": 3, "of": 7, "pending": ["rollback smoke"]}
STATE_HASH = "5ab982ea637562b9b4d1c752bf073346eb27d7ea673a2adb463c1324c2fe947b"


@pytest.fixture(scope="module")
def caller(shared: World) -> httpx.Client:
    """A key for the tools and nothing else: they look at no other scope."""
    return shared.client(SCOPE)


def send(client: httpx.Client, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post("/mcp", content=content, headers={name.replace("_", "-"): value for name, value in headers.items()})


def message(method: str, /, *, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}


def notification(method: str, **params: Any) -> dict[str, Any]:
    told = message(method, **params)
    del told["id"]
    return told


def call(name: str, id: Any = 1, /, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", id=id, name=name, arguments=arguments)


def save(subject_id: str, id: Any = 1, /, **more: Any) -> dict[str, Any]:
    given = {"subject_id": subject_id, "kind": "task_state", "state": STATE, "ttl_seconds": 3600}
    return call("titen_checkpoint_save", id, **{**given, **more})


def get(subject_id: str, id: Any = 1, /, **more: Any) -> dict[str, Any]:
    return call("titen_checkpoint_get", id, **{"subject_id": subject_id, "kind": "task_state", **more})


def text_of(answer: dict[str, Any], *, failed: bool = False) -> Any:
    """What a tool said, whose answer holds one text and nothing beside it."""
    (content,) = answer["result"]["content"]
    assert answer["result"] == {"content": [{"type": "text", "text": content["text"]}], **({"isError": True} if failed else {})}
    return json.loads(content["text"])


def failure(client: httpx.Client, asked: dict[str, Any]) -> Any:
    return text_of(send(client, asked).json(), failed=True)


# -- the way in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        ("https://evil.example", "Cross-origin MCP requests are not allowed."),
        ("null", "Invalid MCP Origin header."),
        ("not an origin", "Invalid MCP Origin header."),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_an_origin_that_is_not_the_gateways_is_refused_before_key_and_method_are_looked_at(
    shared: World, origin: str, told: str, method: str
) -> None:
    response = httpx.request(method, f"{shared.url}/mcp", headers={"origin": origin})
    assert response.status_code == 403
    assert response.json()["error"] == {"code": "FORBIDDEN", "message": told}
    assert response.headers["x-request-id"] == response.json()["meta"]["request_id"]


def test_the_gateways_own_origin_and_none_are_let_in(caller: httpx.Client, shared: World) -> None:
    assert send(caller, message("ping"), origin=shared.url).json()["result"] == {}
    assert send(caller, message("ping")).json()["result"] == {}


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD", "OPTIONS"])
def test_there_is_no_stream_and_no_session_to_end(shared: World, method: str) -> None:
    response = httpx.request(method, f"{shared.url}/mcp")
    assert response.status_code == 405
    if method != "HEAD":
        assert response.json()["error"] == {"code": "METHOD_NOT_ALLOWED", "message": "Allowed methods: POST."}


def test_without_a_key_or_its_scope_the_refusal_is_that_of_rest(shared: World) -> None:
    nobody = httpx.post(f"{shared.url}/mcp", json=message("ping"))
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    other = send(shared.client("agent-checkpoints:write", "agent-checkpoints:read"), message("ping"))
    assert other.status_code == 403
    assert other.json()["error"] == {"code": "FORBIDDEN", "message": 'Missing required scope "mcp:call".'}


@pytest.mark.parametrize("version", [*VERSIONS, ""])
def test_a_protocol_version_that_is_spoken_is_taken(caller: httpx.Client, version: str) -> None:
    assert send(caller, message("ping"), mcp_protocol_version=version).status_code == 200


@pytest.mark.parametrize("body", [message("ping"), b"no JSON"])
def test_any_other_protocol_version_is_refused_before_the_body_is_read(caller: httpx.Client, body: Any) -> None:
    response = send(caller, body, mcp_protocol_version="2026-07-28")
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Unsupported MCP-Protocol-Version."}}


def test_every_answer_has_the_headers_of_the_contract(caller: httpx.Client) -> None:
    answers = [send(caller, message("ping"), x_request_id="mine"), send(caller, notification("ping"))]
    assert [answer.status_code for answer in answers] == [200, 202]
    assert answers[0].headers["content-type"] == "application/json"
    assert (answers[1].content, "content-type" in answers[1].headers) == (b"", False)
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-request-id"].startswith("req_")
        assert "mcp-session-id" not in answer.headers


def test_what_the_caller_accepts_and_calls_its_body_makes_no_difference(caller: httpx.Client) -> None:
    answer = send(caller, message("ping"), accept="text/event-stream", content_type="text/plain")
    assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}


# -- the message ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"{'jsonrpc': '2.0'}",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 64 + b"]" * 64 + b"}",
        b'"' + b"x" * (1 << 20) + b'"',
    ],
    ids=["empty", "blank", "cut off", "no JSON", "too deep", "too large"],
)
def test_what_cannot_be_read_is_a_parse_error(caller: httpx.Client, body: bytes) -> None:
    response = send(caller, body)
    assert (response.status_code, response.json()) == (200, PARSE)


@pytest.mark.parametrize(
    "body",
    [
        [], 1, "ping", None, {}, {"id": None}, {"method": "ping"}, {"jsonrpc": 2.0, "method": "ping"}, {"jsonrpc": "1.0", "method": "ping"},
        {"jsonrpc": "2.0"}, {"jsonrpc": "2.0", "method": 7}, {"jsonrpc": "2.0", "method": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_request_is_refused_even_without_an_id(caller: httpx.Client, body: Any) -> None:
    response = send(caller, body)
    assert (response.status_code, response.json()) == (200, INVALID)


def test_an_invalid_request_keeps_the_id_that_it_came_with(caller: httpx.Client) -> None:
    assert send(caller, {"id": "seven"}).json() == {**INVALID, "id": "seven"}


@pytest.mark.parametrize("id", [0, -1, 1.5, "a", "", None, True, [1], {"b": 1, "2": 2}, 2**53 - 1])
def test_an_id_is_answered_as_it_was_given(caller: httpx.Client, id: Any) -> None:
    assert send(caller, message("ping", id=id)).json() == {"jsonrpc": "2.0", "id": id, "result": {}}


@pytest.mark.parametrize("method", ["ping", "initialize", "tools/list", "tools/call", "no/such"])
def test_what_has_no_id_is_answered_by_nothing(caller: httpx.Client, method: str) -> None:
    response = send(caller, notification(method))
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.parametrize("method", ["notifications/initialized", "initialized"])
def test_that_a_client_is_initialized_is_answered_by_nothing_even_with_an_id(caller: httpx.Client, method: str) -> None:
    assert send(caller, message(method)).status_code == 202
    assert send(caller, [message(method), message("ping", id=2)]).json() == [{"jsonrpc": "2.0", "id": 2, "result": {}}]


def test_a_batch_is_answered_in_order_and_one_of_notifications_by_nothing(caller: httpx.Client) -> None:
    asked = [message("ping", id="b"), 5, notification("ping"), message("no/such", id=None), message("ping", id="a")]
    assert send(caller, asked).json() == [
        {"jsonrpc": "2.0", "id": "b", "result": {}},
        INVALID,
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "Method not found: no/such"}},
        {"jsonrpc": "2.0", "id": "a", "result": {}},
    ]
    nothing = send(caller, [notification("ping"), notification("notifications/initialized")])
    assert (nothing.status_code, nothing.content) == (202, b"")


def test_a_batch_is_bounded(caller: httpx.Client) -> None:
    whole = [message("ping", id=number) for number in range(BATCH_MAX)]
    assert len(send(caller, whole).json()) == BATCH_MAX
    assert send(caller, [*whole, message("ping")]).json() == INVALID


# -- the methods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_is_spoken_is_echoed(caller: httpx.Client, version: str) -> None:
    assert send(caller, message("initialize", protocolVersion=version)).json()["result"]["protocolVersion"] == version


@pytest.mark.parametrize("params", [{}, {"protocolVersion": "2099-01-01"}, {"protocolVersion": 7}, {"protocolVersion": None}])
def test_whoever_asks_for_another_version_gets_the_newest(caller: httpx.Client, params: dict[str, Any]) -> None:
    told = send(caller, message("initialize", **params)).json()["result"]
    instructions = told.pop("instructions")
    assert isinstance(instructions, str)
    assert told == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "titen", "version": running_release()},
    }


def test_the_tools_that_are_listed_are_those_that_there_are(caller: httpx.Client) -> None:
    told = send(caller, message("tools/list", cursor="ignored")).json()["result"]
    save_tool, get_tool = told["tools"]
    assert list(told) == ["tools"]
    kinds = ["task_state", "conversation", "workflow", "cursor"]
    for tool in (save_tool, get_tool):
        assert set(tool) == {"name", "description", "inputSchema", "annotations"}
        assert (tool["inputSchema"]["type"], tool["inputSchema"]["additionalProperties"]) == ("object", False)
        assert tool["inputSchema"]["properties"]["kind"]["enum"] == kinds
        assert all(each.pop("description") for each in tool["inputSchema"]["properties"].values())
    assert save_tool["name"] == "titen_checkpoint_save"
    assert save_tool["inputSchema"]["required"] == ["subject_id", "kind", "state", "ttl_seconds"]
    assert {name: each.get("type") for name, each in save_tool["inputSchema"]["properties"].items()} == {
        "subject_id": "string", "kind": "string", "state": None, "ttl_seconds": "integer", "agent_id": "string", "run_id": "string",
    }  # fmt: skip
    assert save_tool["inputSchema"]["properties"]["state"] == {}
    assert save_tool["annotations"] == {
        "readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False,
    }  # fmt: skip
    assert get_tool["name"] == "titen_checkpoint_get"
    assert get_tool["inputSchema"]["required"] == ["subject_id", "kind"]
    assert set(get_tool["inputSchema"]["properties"]) == {"subject_id", "kind", "agent_id"}
    assert get_tool["annotations"] == {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


@pytest.mark.parametrize(
    "method", ["", "tools", "Ping", "resources/list", "prompts/list", "server/discover", "logging/setLevel", "x\ud800"], ids=ascii
)
def test_a_method_that_is_not_there_is_named(caller: httpx.Client, method: str) -> None:
    told = send(caller, message(method)).json()
    assert told == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": f"Method not found: {method}"}}


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": 7}, {"arguments": {}}])
def test_a_call_needs_the_name_of_a_tool(caller: httpx.Client, params: dict[str, Any]) -> None:
    assert send(caller, message("tools/call", **params)).json()["error"] == {"code": -32602, "message": "Missing tool name."}


@pytest.mark.parametrize("params", [None, [], "titen_checkpoint_get"], ids=str)
def test_params_that_are_no_object_name_no_tool(caller: httpx.Client, params: Any) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    assert send(caller, asked).json()["error"] == {"code": -32602, "message": "Missing tool name."}


@pytest.mark.parametrize("name", ["", "titen_remember", "titen_compile", "titen_handoff", "titen_checkpoint_delete", "__proto__"])
def test_a_tool_that_is_not_listed_is_unknown(caller: httpx.Client, name: str) -> None:
    assert send(caller, call(name)).json()["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}


# -- the tools --------------------------------------------------------------------------------------------------------


def test_what_a_tool_saved_both_doors_read(caller: httpx.Client, shared: World) -> None:
    saved = text_of(send(caller, save("both")).json())
    assert list(saved) == ["data"]
    assert list(saved["data"]) == ["checkpoint_id", "subject_id", "agent_id", "kind", "state_hash", "expires_at", "updated"]
    assert (saved["data"]["state_hash"], saved["data"]["updated"]) == (STATE_HASH, False)
    again = text_of(send(caller, save("both")).json())["data"]
    assert (again["updated"], again["checkpoint_id"]) == (True, saved["data"]["checkpoint_id"])
    read = text_of(send(caller, get("both")).json())
    assert list(read) == ["data"]
    assert read["data"]["state"] == STATE
    assert list(read["data"]) == [
        "checkpoint_id", "subject_id", "agent_id", "run_id", "kind", "state", "state_hash", "ttl_seconds", "expires_at", "created_at",
        "updated_at",
    ]  # fmt: skip


def test_the_routes_and_the_tools_give_one_and_the_same(shared: World) -> None:
    client = shared.client(SCOPE, "agent-checkpoints:read", "agent-checkpoints:write")
    saved = text_of(send(client, save("same", run_id="run-1")).json())["data"]
    by_scope = client.get("/v1/checkpoints", params={"subject_id": "same", "kind": "task_state"}).json()["data"]
    by_id = client.get(f"/v1/checkpoints/{saved['checkpoint_id']}").json()["data"]
    assert by_scope == by_id == text_of(send(client, get("same")).json())["data"]
    assert by_id["run_id"] == "run-1"


def test_a_notification_saves_and_says_nothing(caller: httpx.Client) -> None:
    asked = save("silent")
    del asked["id"]
    assert send(caller, asked).status_code == 202
    assert text_of(send(caller, get("silent")).json())["data"]["state"] == STATE


def test_the_messages_of_a_batch_see_what_those_before_them_saved(caller: httpx.Client) -> None:
    answers = send(caller, [save("batch", 1, state=1), get("batch", 2), save("batch", 3, state=2), get("batch", 4)]).json()
    assert [text_of(answer)["data"].get("state") for answer in answers] == [None, 1, None, 2]


@pytest.mark.parametrize("arguments", [{}, [], "text", 7, None], ids=str)
def test_arguments_that_are_no_object_count_as_an_empty_one(caller: httpx.Client, arguments: Any) -> None:
    asked = message("tools/call", name="titen_checkpoint_save", arguments=arguments)
    assert failure(caller, asked) == {"code": "VALIDATION_ERROR", "message": 'Field "subject_id" is required.'}
    asked = message("tools/call", name="titen_checkpoint_get", arguments=arguments)
    assert failure(caller, asked) == {"code": "VALIDATION_ERROR", "message": 'Query "subject_id" is required.'}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"subject_id": 7}, 'Field "subject_id" must be a string.'),
        ({"kind": "notes"}, 'Field "kind" must be one of: task_state, conversation, workflow, cursor.'),
        ({"state": None}, 'Field "state" is required.'),
        ({"ttl_seconds": "60"}, 'Field "ttl_seconds" must be an integer.'),
        ({"ttl_seconds": 59}, 'Field "ttl_seconds" must be between 60 and 2592000.'),
        ({"state": "x" * 64_000}, "Checkpoint state exceeds 64000 bytes."),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_a_save_is_refused_for_is_a_result_that_the_model_reads(caller: httpx.Client, more: dict[str, Any], told: str) -> None:
    assert failure(caller, save("refused", **more)) == {"code": "VALIDATION_ERROR", "message": told}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"subject_id": 7}, 'Query "subject_id" is required.'),
        ({"subject_id": ""}, 'Query "subject_id" is required.'),
        ({"kind": None}, 'Query "kind" is required.'),
    ],
    ids=str,
)
def test_what_is_no_string_is_missing_from_a_get(caller: httpx.Client, more: dict[str, Any], told: str) -> None:
    assert failure(caller, get("missing", **more)) == {"code": "VALIDATION_ERROR", "message": told}


@pytest.mark.parametrize("more", [{}, {"kind": "notes"}, {"agent_id": "somebody"}, {"agent_id": ""}], ids=str)
def test_what_is_not_there_is_not_found_whatever_was_asked_for(caller: httpx.Client, more: dict[str, Any]) -> None:
    assert failure(caller, get("nowhere", **more)) == ABSENT


def test_another_agents_checkpoint_is_not_there_and_cannot_be_saved(caller: httpx.Client, shared: World) -> None:
    assert failure(caller, save("mine", agent_id="somebody")) == ABSENT
    send(caller, save("mine"))
    assert failure(shared.client(SCOPE), get("mine")) == ABSENT


def test_unknown_arguments_and_an_idempotency_key_make_no_difference(caller: httpx.Client) -> None:
    saved = text_of(send(caller, save("more", idempotency_key=7, colour="red")).json())["data"]
    assert saved["state_hash"] == STATE_HASH


def test_a_state_comes_back_as_javascript_writes_it(caller: httpx.Client) -> None:
    state = b'{"b":1.0,"10":1e2,"2":-0,"t":"a\\u2028\\ud800\\/"}'
    asked = json.dumps(save("javascript", state="@")).encode().replace(b'"@"', state)
    assert "result" in send(caller, asked).json()
    (content,) = send(caller, get("javascript")).json()["result"]["content"]
    assert '"state":{"2":0,"10":100,"b":1,"t":"a\u2028\\ud800/"}' in content["text"]


def test_a_save_that_names_what_it_expects_is_refused_where_that_is_not_there(caller: httpx.Client) -> None:
    send(caller, save("expected"))
    assert failure(caller, save("expected", expected_state_hash="0" * 64))["code"] == "CONFLICT"
    assert text_of(send(caller, save("expected", expected_state_hash=STATE_HASH)).json())["data"]["updated"]


# -- what fails -------------------------------------------------------------------------------------------------------


def test_storage_that_is_away_is_told_to_the_model_and_nothing_of_why(caller: httpx.Client, shared: World) -> None:
    shared.agents.failing = Retriable("broker at 10.0.0.1 is away", code="service.broker_unavailable")
    try:
        for asked in (save("away"), get("away")):
            assert failure(caller, asked) == {"code": "UNAVAILABLE", "message": "Storage is unavailable."}
    finally:
        shared.agents.failing = None


def test_what_nobody_foresaw_is_told_without_a_word_of_it(caller: httpx.Client, shared: World) -> None:
    shared.agents.failing = ValueError("a secret")
    try:
        (content,) = send(caller, get("crash")).json()["result"]["content"]
    finally:
        shared.agents.failing = None
    assert content == {"type": "text", "text": "Tool execution failed."}


def test_a_save_by_a_tool_takes_its_place_among_the_changes_of_agents(caller: httpx.Client, shared: World) -> None:
    for changes, full in ((shared.gateway.agent_changes, True), (shared.gateway.changes, False)):
        taken = changes.limit - changes.taken
        changes.take(taken)
        try:
            result = send(caller, save("place")).json()["result"]
        finally:
            changes.give_back(taken)
        assert result.get("isError", False) is full
        assert changes.taken == 0


def test_a_batch_costs_its_key_what_its_messages_would_cost(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(threads=2, requests_per_s=0.001, requests_burst=3)) as made:
        asked = [get("rate", number) for number in range(5)]
        answers = send(made.client(SCOPE), asked).json()
        codes = [text_of(answer, failed=True)["code"] for answer in answers]
        assert codes == ["NOT_FOUND"] * 3 + ["RATE_LIMITED"] * 2


def test_a_save_by_a_tool_takes_its_room_from_agents_changes_and_none_from_those_of_sessions(caller: httpx.Client, shared: World) -> None:
    gateway = shared.gateway
    for changes, failed in ((gateway.changes, False), (gateway.agent_changes, True)):
        taken = changes.limit - changes.taken
        changes.take(taken)
        try:
            told = text_of(send(caller, save("room")).json(), failed=failed)
            read = send(caller, get("room")).json()["result"]
        finally:
            changes.give_back(taken)
        assert ("data" in told, told.get("code")) == ((False, "UNAVAILABLE") if failed else (True, None))
        assert "isError" not in read, "reads have room of their own"
    assert gateway.agent_changes.taken == 0


@pytest.mark.parametrize("state", ["x" * 60_000, "\N{GRINNING FACE}" * 15_000], ids=["one byte each", "four bytes each"])
def test_states_that_wait_for_their_caller_are_bounded_together_by_their_bytes(tmp_path: Path, state: str) -> None:
    with world(tmp_path, limits=GatewayLimits(threads=2, opened_total_bytes_max=150_000)) as made:
        client = made.client(SCOPE)
        send(client, save("large", state=state))
        answers = send(client, [get("large", number) for number in range(4)]).json()
        assert [answer["result"].get("isError", False) for answer in answers] == [False, False, True, True]
        assert text_of(answers[2], failed=True)["code"] == "UNAVAILABLE"
        assert made.gateway.opened.taken == 0


def test_a_gateway_is_told_where_browsers_find_it(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(threads=2, mcp_origin="https://memory.example")) as made:
        client = made.client(SCOPE)
        assert send(client, message("ping"), origin="https://memory.example").status_code == 200
        assert send(client, message("ping"), origin=made.url).status_code == 403
