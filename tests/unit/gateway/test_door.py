"""What there is too much of is turned away before anything is made of it. Spoken over bare sockets, to a loop that a test holds up."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connectors.gateway.endpoint import Endpoint
from connectors.gateway.limits import GatewayLimits
from tests.support.gateway import World, key, message, new_session, world
from tests.support.waiting import eventually

_UNDER_WAY = 300


@pytest.fixture
def full(tmp_path: Path) -> Iterator[World]:
    """No more changes are let in."""
    with world(tmp_path, limits=GatewayLimits(commands_max=3)) as made:
        made.gateway.changes.taken += 3
        yield made


def append_request(session: str, *, more: bytes = b"", body: bytes = b'{"type":"message.appended"}') -> bytes:
    head = f"POST /v1/sessions/{session}/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head.encode() + more + b"content-length: %d\r\n\r\n%s" % (len(body), body)


def connect(made: World) -> socket.socket:
    host, port = made.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer(connection: socket.socket) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers, body: of one answer, to its end."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += connection.recv(1)
    first, *lines = text.removesuffix(b"\r\n\r\n").split(b"\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in lines)
    body = b""
    while len(body) < int(headers[b"content-length"]):
        body += connection.recv(int(headers[b"content-length"]) - len(body))
    return int(first.split()[1]), headers, body


def turned_away(connection: socket.socket) -> None:
    status, headers, body = answer(connection)
    problem = json.loads(body)
    assert (status, headers[b"content-type"]) == (503, b"application/problem+json")
    assert (problem["code"], problem["status"]) == ("service.overloaded", 503)
    assert int(headers[b"retry-after"]) == problem["retry_after"] >= 1


SESSION = "sess_" + "0" * 32


def test_a_connection_goes_on_behind_a_refusal(full: World) -> None:
    with connect(full) as connection:
        for body in (b"{}", b"x" * 300_000, b""):
            connection.sendall(append_request(SESSION, body=body))
            turned_away(connection)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert answer(connection)[0] == 200
        full.gateway.changes.taken -= 3
        connection.sendall(append_request(SESSION))
        assert answer(connection)[0] == 401


def test_those_turned_away_are_counted_and_reach_no_application(full: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Endpoint, "serve")
    with connect(full) as connection:
        connection.sendall(append_request(SESSION) * 5)
        for _ in range(5):
            turned_away(connection)
    assert b'requests_total{route="append_events",status="503"} 5.0' in full.gateway.metrics.text()
    assert full.gateway.changes.taken == 3


@pytest.mark.parametrize(
    "more", [b"connection: close\r\n", b"expect: 100-continue\r\n"], ids=["the last one", "one that waits to be asked"]
)
def test_what_needs_more_than_an_answer_is_refused_all_the_same(full: World, more: bytes) -> None:
    with connect(full) as connection:
        connection.sendall(append_request(SESSION, more=more))
        turned_away(connection)


def test_answers_keep_the_order_of_the_requests(full: World) -> None:
    with connect(full) as connection:
        connection.sendall(
            b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" + append_request(SESSION) + b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
        )
        assert answer(connection)[0] == 200
        turned_away(connection)
        assert answer(connection)[0] == 200


def test_a_refusal_tells_nothing_of_key_or_session(full: World) -> None:
    full.gateway.changes.taken -= 3
    existing = new_session(full.client())
    full.gateway.changes.taken += 3
    keys = (b"", b"authorization: Bearer nobody\r\n", f"authorization: Bearer {full.secret()}\r\n".encode())
    answers = set()
    for session in (SESSION, existing):
        for more in keys:
            with connect(full) as connection:
                connection.sendall(append_request(session, more=more))
                status, headers, body = answer(connection)
                answers.add((status, tuple(sorted(headers)), body))
    assert len(answers) == 1


@contextmanager
def held_up(made: World) -> Iterator[None]:
    """The loop does nothing until the block ends."""
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        go_on.wait(20)

    made.loop.call_soon_threadsafe(hold)
    assert inside.wait(20)
    try:
        yield
    finally:
        go_on.set()


def test_what_arrives_while_the_loop_is_held_up_is_refused_and_what_comes_later_is_not(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        client = made.client()
        session = new_session(client)
        changes = made.gateway.changes
        changes.taken += _UNDER_WAY
        with connect(made) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert answer(connection)[0] == 200
            with held_up(made):
                connection.sendall(append_request(session))
                eventually(lambda: changes.lateness.seconds() > 0.3)
            turned_away(connection)
        eventually(lambda: client.post(f"/v1/sessions/{session}/events", json=message(), headers=key()).status_code == 200)
        changes.taken -= _UNDER_WAY
        assert changes.taken == 0
