"""Health, readiness and metrics without a key, and dead letters with one."""

import httpx

from streams.custody.dead_letters import Address, Letter, open_dead_letter
from tests.support.gateway import World, base64_of, message, new_session, post


def test_metrics_count_requests_by_route_and_hold_no_id(client: httpx.Client, shared: World) -> None:
    session = new_session(client, subject="mia_li_3668")
    post(client, f"/v1/sessions/{session}/events", message())
    client.get(f"/v1/sessions/{session}/events")
    text = httpx.get(f"{shared.url}/metrics").text
    assert 'session_streams_gateway_requests_total{route="append_events",status="200"}' in text
    assert "session_streams_gateway_ready 1.0" in text
    for budget in shared.gateway.budgets:
        assert f'session_streams_gateway_under_way{{kind="{budget.what}"}}' in text
    for prefix in ("sess_", "ws_", "key_", "subj_", "mia"):
        assert prefix not in text


def test_operations_need_no_key(shared: World) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/asyncapi.json"):
        assert httpx.get(shared.url + path).status_code == 200


def test_the_topics_describe_themselves_beside_the_routes(shared: World) -> None:
    served = httpx.get(f"{shared.url}/asyncapi.json").json()
    assert served["asyncapi"].startswith("3.")
    assert {channel["address"] for channel in served["channels"].values()} >= {"sessions.events", "sessions.commands"}


def test_everything_else_does(shared: World) -> None:
    for headers in ({}, {"authorization": "Basic eDp5"}, {"authorization": "Bearer"}, {"authorization": "Bearer sks_wrong"}):
        response = httpx.get(f"{shared.url}/v1/sessions", headers=headers)
        assert response.status_code == 401
        assert response.json()["code"] in ("auth.missing", "auth.invalid")
        assert response.headers["www-authenticate"].startswith("Bearer")


def test_a_dead_letter_is_sealed_with_its_place(client: httpx.Client, shared: World) -> None:
    session = new_session(client, origin="imported")
    record = b'{"broken": mia_li_3668'
    body = {
        "source_kind": "claude-code",
        "reason": "malformed",
        "place": "/home/mia/talk.jsonl:9",
        "record": base64_of(record),
        "source_index": 8,
    }
    assert post(client, f"/v1/sessions/{session}/dead-letters", body, status=201) == {"session_id": session}
    letter = shared.log.letters[-1]
    assert (letter.origin, letter.offset, letter.reason, letter.session_id) == ("claude-code", 8, "malformed", session)
    assert b"mia" not in letter.ciphertext
    address = Address(letter.key_day, letter.origin, letter.partition, letter.offset, letter.workspace_id)
    opened = open_dead_letter(shared.sealer, address, ciphertext=letter.ciphertext, digest=letter.digest)
    assert opened == Letter(key=None, value=record, place="/home/mia/talk.jsonl:9")


def test_a_dead_letter_whose_record_is_no_base64_is_invalid(client: httpx.Client) -> None:
    session = new_session(client, origin="imported")
    body = {"source_kind": "claude-code", "reason": "malformed", "place": "x:1", "record": "###"}
    assert post(client, f"/v1/sessions/{session}/dead-letters", body, status=422)["code"] == "request.invalid"
