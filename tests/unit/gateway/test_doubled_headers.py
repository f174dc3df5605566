"""A header by which something is decided stands once: of two, nobody knows which one a proxy has looked at."""

import json

import httpx
import pytest

from tests.support.gateway import OTHER_WORKSPACE, World, key, message, new_session


@pytest.fixture(scope="module")
def session(client: httpx.Client) -> str:
    return new_session(client)


def sent(client: httpx.Client, session_id: str, *more: tuple[str, str]) -> httpx.Response:
    headers = [*client.headers.items(), ("content-type", "application/json"), *key().items()]
    given = [*((name, value) for name, value in headers if name in ("authorization", "content-type", "idempotency-key")), *more]
    return httpx.post(f"{client.base_url}/v1/sessions/{session_id}/events", content=json.dumps(message()), headers=given)


@pytest.mark.parametrize("name", ["Idempotency-Key", "Content-Type", "Session-Streams-Expected-Sequence"])
def test_two_are_malformed_also_where_they_are_alike(shared: World, client: httpx.Client, session: str, name: str) -> None:
    before = len(shared.log.events[session])
    values = {"Content-Type": "application/json", "Session-Streams-Expected-Sequence": str(before)}
    response = sent(client, session, (name, values.get(name, "one")), (name, values.get(name, "two")))
    assert (response.status_code, response.json()["code"]) == (400, "request.malformed")
    assert name.lower() in response.json()["detail"]
    assert len(shared.log.events[session]) == before


def test_two_keys_are_nobodys(shared: World, client: httpx.Client, session: str) -> None:
    other = shared.client(workspace_id=OTHER_WORKSPACE).headers["authorization"]
    for authorization in (other, client.headers["authorization"]):
        response = sent(client, session, ("Authorization", authorization))
        assert (response.status_code, response.json()["code"]) == (400, "request.malformed")
        assert authorization not in response.text


def test_what_may_stand_several_times_still_may(client: httpx.Client, session: str) -> None:
    more = [("accept", "text/plain"), ("accept", "application/json"), ("x-forwarded-for", "a"), ("x-forwarded-for", "b")]
    assert sent(client, session, *more).status_code == 200
