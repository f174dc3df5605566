"""Bad input, each answered clearly and with nothing half-written."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from connectors.gateway.limits import GatewayLimits
from tests.support.gateway import OTHER_WORKSPACE, World, key, message, ndjson, new_session, post, world

JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
NO_SESSION = "sess_" + "0" * 32


@pytest.fixture(scope="module")
def session(client: httpx.Client) -> str:
    return new_session(client)


@pytest.fixture(autouse=True)
def nothing_is_half_written(shared: World, client: httpx.Client, session: str) -> Iterator[None]:
    """Whatever a test of this file sends, the session stands where it stood."""
    before = len(shared.log.events[session])
    yield
    assert len(shared.log.events[session]) == before


def append(client: httpx.Client, session_id: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, str]:
    response = client.post(f"/v1/sessions/{session_id}/events", content=body, headers={**headers, **key()})
    problem = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["status"] == response.status_code
    return response.status_code, problem["code"], problem["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"type":"message.appended"',
        b'{"type":"message.appended","content":{"a":1,}}',
        b'{"type":"message.appended","content":NaN}',
        b'{"type":"message.appended"} trailing',
        b'\xef\xbb\xbf{"type":"message.appended"}',
        b'{"type":"message.appended","content":"\xff"}',
        b'{"type":"message.appended","content":"\xed\xa0\x80"}',
        b'{"type":"message.appended","content":"\x01"}',
        b'{"type":"message.appended","content":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"type":"message.appended","content":' + b"[" * 200_000,
        b'{"type":"message.appended","content":' + b'{"a":[' * 60 + b"]}" * 60 + b"}",
    ],
    ids=range(13),
)
def test_what_is_no_json_is_malformed(client: httpx.Client, session: str, body: bytes) -> None:
    assert append(client, session, body, JSON)[:2] == (400, "request.malformed")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ([], "object"),
        ({}, "type"),
        ({"type": 1}, "$.type"),
        ({"type": "message.invented"}, "$.type"),
        ({"type": "message.appended", "unknown": 1}, "unknown"),
        ({"type": "message.appended", "run_id": "run_1"}, "$.run_id"),
        ({"type": "message.appended", "run_id": "run_" + "0" * 32 + "\n"}, "$.run_id"),
        ({"type": "message.appended", "turn_id": "run_" + "0" * 32}, "$.turn_id"),
        ({"type": "message.appended", "occurred_at": "yesterday"}, "$.occurred_at"),
        ({"type": "message.appended", "occurred_at": "2026-01-01T00:00:00"}, "$.occurred_at"),
        ({"type": "message.appended", "attributes": {"role": "mia li"}}, "$.attributes.role"),
        ({"type": "message.appended", "attributes": {"text": "free text"}}, "text"),
        ({"type": "message.appended", "attributes": {"input_tokens": -1}}, "$.attributes.input_tokens"),
        ({"type": "message.appended", "attributes": {"input_tokens": 2**63}}, "$.attributes.input_tokens"),
        ({"type": "message.appended", "attributes": {"source_digest": "not hex"}}, "$.attributes.source_digest"),
        ({"type": "message.appended", "attributes": []}, "attributes"),
        ({"type": "message.appended", "links": [{"relation": "friend", "id": NO_SESSION}]}, "$.links[0].relation"),
        ({"type": "message.appended", "links": [{"relation": "cause", "id": "mia"}]}, "$.links[0].id"),
        ({"type": "message.appended", "actor": ""}, "$.actor"),
        ({"type": "message.appended", "actor": 7}, "$.actor"),
    ],
    ids=range(20),
)
def test_what_has_a_wrong_type_or_form_is_invalid_and_its_field_is_named(
    client: httpx.Client, session: str, body: object, place: str
) -> None:
    status, code, detail = append(client, session, json.dumps(body).encode(), JSON)
    assert (status, code) == (422, "request.invalid")
    assert place in detail


def test_a_lone_surrogate_is_refused_and_its_field_is_named(client: httpx.Client, session: str) -> None:
    body = b'{"type":"message.appended","content":{"a":["\\ud83d\\ude00",{"b":"x\\ud800y"}]}}'
    status, code, detail = append(client, session, body, JSON)
    assert (status, code) == (422, "request.invalid")
    assert "$.content.a[1].b" in detail


def test_an_error_of_ndjson_names_its_line(client: httpx.Client, session: str) -> None:
    body = ndjson(message(), message(), {"type": "message.appended", "attributes": {"role": "nobody"}})
    status, code, detail = append(client, session, body, NDJSON)
    assert (status, code) == (422, "request.invalid")
    assert detail.startswith("line 3: ")
    assert "$.attributes.role" in detail


def test_a_bad_line_keeps_the_good_ones_out(client: httpx.Client, session: str) -> None:
    assert append(client, session, ndjson(message()) + b"{\n", NDJSON)[:2] == (400, "request.malformed")


def test_too_many_lines_are_too_large(client: httpx.Client, session: str) -> None:
    assert append(client, session, b'{"type":"message.appended"}\n' * 5001, NDJSON)[:2] == (413, "request.too_large")


def test_an_event_of_seventy_megabytes_is_too_large(client: httpx.Client, session: str) -> None:
    assert append(client, session, json.dumps(message("x" * 70_000_000)).encode(), JSON)[:2] == (413, "request.too_large")


def test_content_just_above_the_limit_is_too_large_however_well_it_compresses(client: httpx.Client, session: str) -> None:
    assert append(client, session, json.dumps(message("x" * 64 * 1024 * 1024)).encode(), JSON)[:2] == (413, "request.too_large")


def test_a_body_of_200_megabytes_is_refused_before_it_is_read(client: httpx.Client, session: str) -> None:
    """Its length is told in a header; not one byte of it has to be sent."""
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(200):
            sent += 1
            yield b" " * 1_000_000

    response = client.post(f"/v1/sessions/{session}/events", content=chunks(), headers={**JSON, **key(), "content-length": "200000000"})
    assert (response.status_code, response.json()["code"]) == (413, "request.too_large")
    assert sent < 100


def test_a_body_without_a_length_is_cut_off_at_the_limit(client: httpx.Client, session: str) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(200):
            sent += 1
            yield b" " * 1_000_000

    response = client.post(f"/v1/sessions/{session}/events", content=chunks(), headers={**JSON, **key()})
    assert (response.status_code, response.json()["code"]) == (413, "request.too_large")
    assert sent < 100


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json; charset=latin-1", "multipart/form-data"])
def test_another_media_type_is_not_supported(client: httpx.Client, session: str, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    assert append(client, session, b'{"type":"message.appended"}', headers)[:2] == (415, "request.unsupported_media_type")


def test_compressed_bodies_are_not_supported(client: httpx.Client, session: str) -> None:
    assert append(client, session, b"\x1f\x8b", {**JSON, "content-encoding": "gzip"})[:2] == (415, "request.unsupported_media_type")


@pytest.mark.parametrize("value", [None, "", "x" * 256])
def test_a_change_without_a_proper_idempotency_key_is_malformed(client: httpx.Client, session: str, value: str | None) -> None:
    headers = {} if value is None else {"idempotency-key": value}
    response = client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "request.malformed")
    assert "Idempotency-Key" in response.json()["detail"]


def test_a_session_that_does_not_exist_is_not_found(client: httpx.Client) -> None:
    assert append(client, NO_SESSION, json.dumps(message()).encode(), JSON)[:2] == (404, "resource.not_found")
    assert client.get(f"/v1/sessions/{NO_SESSION}").status_code == 404


@pytest.mark.parametrize("session_id", ["sess_1", "run_" + "0" * 32, "%00", "sess_" + "0" * 31 + "G", "sess_" + "0" * 32 + "%0a"])
def test_an_id_of_another_form_is_not_found(client: httpx.Client, session_id: str) -> None:
    for response in (client.get(f"/v1/sessions/{session_id}"), client.get(f"/v1/sessions/{session_id}/events")):
        assert (response.status_code, response.json()["code"]) == (404, "resource.not_found")
        assert response.json()["detail"] == "expected sess_ and 32 hex digits"


def test_a_closed_session_takes_nothing_more(client: httpx.Client) -> None:
    closed = new_session(client)
    post(client, f"/v1/sessions/{closed}/close", {"reason": "done"})
    assert append(client, closed, json.dumps(message()).encode(), JSON)[:2] == (409, "runtime.session_closed")
    assert client.get(f"/v1/sessions/{closed}").json()["status"] == "closed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/sessions/{}"),
        ("GET", "/v1/sessions/{}/events"),
        ("POST", "/v1/sessions/{}/events"),
        ("POST", "/v1/sessions/{}/close"),
        ("POST", "/v1/sessions/{}/runs"),
        ("POST", "/v1/sessions/{}/dead-letters"),
    ],
)
def test_another_workspaces_session_looks_exactly_like_one_that_does_not_exist(
    client: httpx.Client, shared: World, session: str, method: str, path: str
) -> None:
    stranger = shared.client(workspace_id=OTHER_WORKSPACE)
    bodies = {"/v1/sessions/{}/events": message()}
    letter = {"source_kind": "s", "reason": "r", "place": "p", "record": "eA=="}
    body = None if method == "GET" else letter if "dead" in path else bodies.get(path, {})
    answers = [
        stranger.request(method, path.format(session_id), json=body, headers=key() if method == "POST" else {})
        for session_id in (session, NO_SESSION)
    ]
    told = [(answer.status_code, answer.text.replace(session, "X").replace(NO_SESSION, "X")) for answer in answers]
    assert told[0] == told[1]
    assert told[0][0] == 404


@pytest.mark.parametrize(
    ("scopes", "method", "path", "missing"),
    [
        (("sessions:read",), "POST", "/v1/sessions", "sessions:write"),
        (("sessions:read",), "POST", "/v1/sessions/{}/events", "sessions:write"),
        (("sessions:write",), "GET", "/v1/sessions/{}", "sessions:read"),
        (("sessions:write",), "GET", "/v1/sessions/{}/events", "sessions:read"),
        (("sessions:write",), "POST", "/v1/sessions/{}/runs/run_" + "1" * 32 + "/claim", "runs:claim"),
        (("sessions:write",), "POST", "/v1/sessions/{}/dead-letters", "sessions:import"),
    ],
)
def test_a_key_without_the_scope_is_refused(
    shared: World, session: str, scopes: tuple[str, ...], method: str, path: str, missing: str
) -> None:
    response = shared.client(*scopes).request(method, path.format(session), headers=key())
    assert (response.status_code, response.json()["code"]) == (403, "auth.scope")
    assert missing in response.json()["detail"]


def test_only_an_importer_makes_imported_sessions(shared: World) -> None:
    problem = post(shared.client("sessions:write"), "/v1/sessions", {"origin": "imported"}, status=403)
    assert problem["code"] == "auth.scope"


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after_sequence=-1", "unknown=1", "replay_only=perhaps"])
def test_query_parameters_are_checked(client: httpx.Client, session: str, query: str) -> None:
    response = client.get(f"/v1/sessions/{session}/events?{query}")
    assert (response.status_code, response.json()["code"]) == (422, "request.invalid")


@pytest.mark.parametrize("query", ["limit=1&limit=2", "%ff=1", "limit", "limit=%ff"])
def test_a_query_that_is_none_is_malformed(client: httpx.Client, session: str, query: str) -> None:
    response = client.get(f"/v1/sessions/{session}/events?{query}")
    assert (response.status_code, response.json()["code"]) == (400, "request.malformed")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("session-streams-position", "nonsense"),
        ("session-streams-position", "sessions.commands:0:9999999999"),
    ],
)
def test_a_position_that_cannot_be_is_malformed(client: httpx.Client, session: str, header: str, value: str) -> None:
    response = client.get(f"/v1/sessions/{session}", headers={header: value})
    assert (response.status_code, response.json()["code"]) == (400, "request.malformed")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("session-streams-expected-sequence", "one"),
        ("session-streams-expected-sequence", "-1"),
        ("session-streams-report", "run_1;1;task_1;1"),
        ("session-streams-report", f"run_{'0' * 32};0;task_{'0' * 32};1"),
        ("session-streams-report", f"run_{'0' * 32};1;task_{'0' * 32}"),
    ],
)
def test_headers_that_a_change_depends_on_are_checked(client: httpx.Client, session: str, header: str, value: str) -> None:
    assert append(client, session, json.dumps(message()).encode(), {**JSON, header: value})[:2] == (400, "request.malformed")


def test_paths_and_methods_that_are_not_there_are_told_as_problems(client: httpx.Client, session: str) -> None:
    assert client.get("/v2/anything").json()["code"] == "resource.not_found"
    response = client.delete(f"/v1/sessions/{session}/events")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, POST")
    assert response.json()["code"] == "request.method_not_allowed"


def test_a_body_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(body_timeout_s=0.3)) as made:
        client = made.client()
        session_id = new_session(client)

        def chunks() -> Iterator[bytes]:
            yield b'{"type":'
            time.sleep(1.5)
            yield b'"message.appended"}'

        response = client.post(f"/v1/sessions/{session_id}/events", content=chunks(), headers={**JSON, **key()})
        assert (response.status_code, response.json()["code"]) == (408, "request.timeout")


def test_a_body_that_goes_on_and_on_is_given_up(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(body_timeout_s=1.0, body_total_s=0.5)) as made:
        client = made.client()
        session_id = new_session(client)

        def chunks() -> Iterator[bytes]:
            yield b'{"type":"message.appended"'
            for _ in range(20):
                time.sleep(0.1)
                yield b" "
            yield b"}"

        response = client.post(f"/v1/sessions/{session_id}/events", content=chunks(), headers={**JSON, **key()})
        assert (response.status_code, response.json()["code"]) == (408, "request.timeout")
