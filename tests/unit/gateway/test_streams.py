"""Pages and event streams."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from msgspec import structs

from connectors.edge.keys import encode_row, row_key
from connectors.gateway.limits import GatewayLimits
from session_streams.sse import Message, Parser
from streams.custody.keyring import SecretRef
from streams.errors import NotOwner
from tests.support.gateway import WORKSPACE, World, key, message, new_session, post, world
from tests.support.waiting import eventually

STREAM = {"accept": "text/event-stream"}


@pytest.fixture
def session(client: httpx.Client) -> str:
    session_id = new_session(client)
    for number in range(4):
        post(client, f"/v1/sessions/{session_id}/events", message(str(number)))
    return session_id


def messages_of(client: httpx.Client, session: str, query: str = "", **headers: str) -> Iterator[Message]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    with client.stream("GET", f"/v1/sessions/{session}/events{query}", headers={**STREAM, **given}) as response:
        assert response.status_code == 200, response.read()
        parser = Parser()
        for chunk in response.iter_raw():
            yield from parser.feed(chunk)


def test_pages_follow_one_another_to_the_end(client: httpx.Client, session: str) -> None:
    after, seen = 0, []
    while after is not None:
        page = client.get(f"/v1/sessions/{session}/events?after_sequence={after}&limit=2").json()
        assert page["end_sequence"] == 5
        seen += [event["sequence"] for event in page["events"]]
        after = page["next_after_sequence"]
    assert seen == [1, 2, 3, 4, 5]


def test_a_page_behind_the_end_is_empty(client: httpx.Client, session: str) -> None:
    page = client.get(f"/v1/sessions/{session}/events?after_sequence=99").json()
    assert (page["events"], page["next_after_sequence"]) == ([], None)


def test_a_replay_ends_at_the_end_and_says_so(client: httpx.Client, session: str) -> None:
    told = list(messages_of(client, session, "?replay_only=true"))
    assert [each.id for each in told[:-1]] == ["1", "2", "3", "4", "5"]
    assert [each.event for each in told] == ["session.created", *["message.appended"] * 4, "end"]
    page = client.get(f"/v1/sessions/{session}/events").json()
    assert [json.loads(each.data) for each in told[:-1]] == page["events"]


def test_a_stream_resumes_behind_the_last_event_id(client: httpx.Client, session: str) -> None:
    told = list(messages_of(client, session, "?replay_only=true&after_sequence=1", last_event_id="3"))
    assert [each.id for each in told[:-1]] == ["4", "5"]


def test_a_stream_goes_on_with_what_comes_and_ends_with_the_session(client: httpx.Client, session: str) -> None:
    told: list[Message] = []
    reader = threading.Thread(target=lambda: told.extend(messages_of(client, session, "?after_sequence=5")))
    reader.start()
    post(client, f"/v1/sessions/{session}/events", message("late"))
    post(client, f"/v1/sessions/{session}/close")
    reader.join(10)
    assert [each.event for each in told] == ["message.appended", "session.closed", "end"]
    assert json.loads(told[0].data)["content"] == {"text": "late"}


def test_line_ends_within_content_do_not_break_the_stream(client: httpx.Client) -> None:
    session = new_session(client)
    body = b'{"type":"message.appended","content":{"a":\r\n1,\n\n"b": "x\\ny"}}'
    assert client.post(f"/v1/sessions/{session}/events", content=body, headers={"content-type": "application/json", **key()}).is_success
    told = list(messages_of(client, session, "?replay_only=true"))
    assert json.loads(told[1].data)["content"] == {"a": 1, "b": "x\ny"}


def test_silence_is_filled_with_comments(client: httpx.Client, session: str) -> None:
    with client.stream("GET", f"/v1/sessions/{session}/events?after_sequence=5", headers=STREAM) as response:
        text = b""
        for chunk in response.iter_raw():
            text += chunk
            if text.count(b": still here\n\n") >= 2:
                break
    assert b"data:" not in text


def test_a_stream_of_a_session_that_is_not_there_is_a_problem(client: httpx.Client) -> None:
    response = client.get(f"/v1/sessions/sess_{'0' * 32}/events", headers=STREAM)
    assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")
    malformed = client.get(f"/v1/sessions/sess_{'0' * 32}/events", headers={**STREAM, "last-event-id": "x"})
    assert malformed.status_code == 400


def test_a_stream_ends_when_its_key_is_revoked(shared: World, session: str) -> None:
    made, secret = shared.keys.create(WORKSPACE, ["sessions:read"])
    client = shared.client_with(secret)
    with client.stream("GET", f"/v1/sessions/{session}/events?after_sequence=5", headers=STREAM) as response:
        chunks = response.iter_raw()
        next(chunks)
        revoked = structs.replace(made, revoked_at=1)
        shared.rows = {**shared.rows, row_key(revoked): encode_row(revoked)}
        assert b": auth.revoked\n\n" in b"".join(chunks)


def test_a_stream_ends_when_the_owner_moves_and_is_to_be_resumed(client: httpx.Client, shared: World, session: str) -> None:
    with client.stream("GET", f"/v1/sessions/{session}/events?after_sequence=5", headers=STREAM) as response:
        chunks = response.iter_raw()
        next(chunks)
        shared.owners.failure = NotOwner("moved")
        try:
            rest = b"".join(chunks)
        finally:
            shared.owners.failure = None
    assert b": service.not_owner\n\n" in rest
    assert b"event: end" not in rest


def test_a_place_among_the_followers_is_given_back_when_the_caller_goes(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(followers_max=1, heartbeat_s=0.2)) as made:
        client = made.client()
        session = new_session(client)
        path = f"/v1/sessions/{session}/events?after_sequence=1"
        with client.stream("GET", path, headers=STREAM) as response:
            chunks = response.iter_raw()
            next(chunks)
            refused = client.get(path, headers=STREAM)
            assert (refused.status_code, refused.json()["code"]) == (503, "service.overloaded")
            assert client.get(path).status_code == 200
        eventually(lambda: made.gateway.followers.taken == 0)
        assert client.get(f"/v1/sessions/sess_{'0' * 32}/events", headers=STREAM).status_code == 404
        assert made.gateway.followers.taken == 0


def test_a_stream_ends_when_the_gateway_stops(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(heartbeat_s=30)) as made:
        client = made.client()
        session = new_session(client)
        with client.stream("GET", f"/v1/sessions/{session}/events?after_sequence=1", headers=STREAM) as response:
            chunks = response.iter_raw()
            next(chunks)
            began = time.monotonic()
            made.stop_streams()
            b"".join(chunks)
            assert time.monotonic() - began < 5


def test_content_that_was_destroyed_is_a_gap_with_its_reason(client: httpx.Client, shared: World) -> None:
    created = post(client, "/v1/sessions", {"subject": "leaving_soon", "metadata": {"a": 1}}, status=201)
    session = created["session_id"]
    post(client, f"/v1/sessions/{session}/events", message("words"))
    ref = SecretRef("subject", WORKSPACE, created["subject_id"])
    shared.keyring.destroy([ref])
    shared.sealer.forget([ref])
    events = client.get(f"/v1/sessions/{session}/events").json()["events"]
    assert [event["gap"] for event in events] == [{"reason": "erased"}] * 2
    assert all("content" not in event and event["content_digest"] for event in events)
    problem = post(client, f"/v1/sessions/{session}/events", message("more"), status=409)
    assert problem["code"] == "content.erased"
