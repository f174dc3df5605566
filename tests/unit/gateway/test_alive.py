"""Content goes out only to a caller who is still let in once it is open, and whom it reaches."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from connectors.edge.keys import ApiKey, encode_row, row_key
from connectors.gateway.limits import GatewayLimits
from tests.support.gateway import WORKSPACE, World, message, new_session, post, world
from tests.support.waiting import eventually

STREAM = {"accept": "text/event-stream"}
SECRET_WORDS = "swordfish"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    """Its followers are looked at again by what happens, not by the time."""
    with world(tmp_path, limits=GatewayLimits(heartbeat_s=30, threads=4)) as made:
        yield made


class Reader:
    """A key with its client, and the two ways in which it stops being let in."""

    def __init__(self, made: World) -> None:
        self._made = made
        self.key, secret = made.keys.create(WORKSPACE, ["admin"])
        self.client = made.client_with(secret)

    def revoked(self) -> None:
        gone: ApiKey = structs.replace(self.key, revoked_at=1)
        self._made.rows = {**self._made.rows, row_key(gone): encode_row(gone)}

    def stale(self) -> None:
        self._made.stale_keys = True


LOSSES = pytest.mark.parametrize(("loss", "code", "status"), [("revoked", "auth.revoked", 401), ("stale", "service.not_ready", 503)])


@contextmanager
def not_reading(made: World, secret: str, session: str, accept: str, *, buffer: int = 4096) -> Iterator[socket.socket]:
    """A caller who asks for the events of a session, and takes of them what fits a small buffer."""
    host, port = made.url.removeprefix("http://").split(":")
    head = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\naccept: {accept}\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(10)
        connection.connect((host, int(port)))
        connection.sendall(head.encode())
        yield connection


def losing(made: World, monkeypatch: pytest.MonkeyPatch, name: str, lose: Callable[[], None]) -> None:
    """`lose` happens in the middle of opening."""
    opening = getattr(made.sealer, name)

    def opened(*arguments: Any, **named: Any) -> Any:
        lose()
        return opening(*arguments, **named)

    monkeypatch.setattr(made.sealer, name, opened)


@LOSSES
@pytest.mark.parametrize(
    ("path", "opening"), [("events", "open_each"), ("graph", "why_closed"), ("graph?through_sequence=2", "why_closed")]
)
def test_what_was_opened_is_kept_back_from_who_is_not_let_in_any_more(
    made: World, monkeypatch: pytest.MonkeyPatch, path: str, opening: str, loss: str, code: str, status: int
) -> None:
    reader = Reader(made)
    session = new_session(reader.client)
    post(reader.client, f"/v1/sessions/{session}/events", message(SECRET_WORDS))
    losing(made, monkeypatch, opening, getattr(reader, loss))
    response = reader.client.get(f"/v1/sessions/{session}/{path}")
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert SECRET_WORDS not in response.text


@LOSSES
def test_an_export_breaks_off_before_it_sends_what_was_opened(
    made: World, monkeypatch: pytest.MonkeyPatch, loss: str, code: str, status: int
) -> None:
    reader = Reader(made)
    session = new_session(reader.client)
    post(reader.client, f"/v1/sessions/{session}/events", message(SECRET_WORDS))
    losing(made, monkeypatch, "open_each", getattr(reader, loss))
    lines = reader.client.get(f"/v1/sessions/{session}/export").text.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["header", "error"]
    assert json.loads(lines[-1]) == {"kind": "error", "status": status, "code": code, "next_sequence": 1}


@LOSSES
def test_a_stream_ends_before_it_sends_what_was_opened(
    made: World, monkeypatch: pytest.MonkeyPatch, loss: str, code: str, status: int
) -> None:
    reader = Reader(made)
    session = new_session(reader.client)
    post(reader.client, f"/v1/sessions/{session}/events", message(SECRET_WORDS))
    losing(made, monkeypatch, "open_each", getattr(reader, loss))
    with reader.client.stream("GET", f"/v1/sessions/{session}/events", headers=STREAM) as response:
        text = b"".join(response.iter_raw()).decode()
    assert f": {code}\n\n" in text
    assert SECRET_WORDS not in text


@LOSSES
def test_a_follower_is_not_told_of_what_comes_after_it_lost_its_leave(made: World, loss: str, code: str, status: int) -> None:
    reader, writer = Reader(made), made.client()
    session = new_session(writer)
    text = b""
    with reader.client.stream("GET", f"/v1/sessions/{session}/events?after_sequence=1", headers=STREAM) as response:
        chunks = response.iter_raw()
        while b": still here\n\n" not in text:
            text += next(chunks)
        if loss == "revoked":
            reader.revoked()
            post(writer, f"/v1/sessions/{session}/events", message(SECRET_WORDS))
        else:
            # The writer is let in first; its event comes when the keys are old already.
            compose = made.gateway.composer.compose
            made.gateway.composer.compose = lambda *a, **n: (reader.stale(), compose(*a, **n))[1]  # type: ignore[method-assign,func-returns-value]
            post(writer, f"/v1/sessions/{session}/events", message(SECRET_WORDS))
        text += b"".join(chunks)
    assert f": {code}\n\n".encode() in text
    assert SECRET_WORDS.encode() not in text


def test_a_follower_who_does_not_read_gives_its_place_back(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(followers_max=1, stall_s=0.5, heartbeat_s=0.2)) as made:
        secret = made.secret()
        client = made.client_with(secret)
        session = new_session(client)
        for _ in range(8):
            post(client, f"/v1/sessions/{session}/events", message("x" * 1_000_000))
        with not_reading(made, secret, session, "text/event-stream"):
            eventually(lambda: made.gateway.followers.taken == 1)
            eventually(lambda: made.gateway.followers.taken == 0, timeout_s=5)


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
def test_what_a_caller_does_not_take_is_not_held_for_ever(tmp_path: Path, accept: str) -> None:
    with world(tmp_path, limits=GatewayLimits(stall_s=0.5, heartbeat_s=0.2)) as made:
        secret = made.secret()
        client = made.client_with(secret)
        session = new_session(client)
        for _ in range(8):
            post(client, f"/v1/sessions/{session}/events", message("x" * 1_000_000))
        client.close()
        eventually(lambda: made.connections == 0)
        with not_reading(made, secret, session, accept):
            eventually(lambda: made.connections == 1)
            eventually(lambda: made.connections == 0, timeout_s=8)


def test_a_caller_who_takes_a_little_at_a_time_gets_all_of_it(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(stall_s=1.0)) as made:
        secret = made.secret()
        client = made.client_with(secret)
        session = new_session(client)
        for _ in range(8):
            post(client, f"/v1/sessions/{session}/events", message("x" * 1_000_000))
        with not_reading(made, secret, session, "application/json", buffer=262_144) as connection:
            taken, began = 0, time.monotonic()
            while taken < 8_000_000:
                part = connection.recv(65_536)
                assert part
                taken += len(part)
                time.sleep(0.03)
            assert time.monotonic() - began > 3 * made.limits.stall_s


def test_a_follower_who_reads_slowly_keeps_its_place(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(stall_s=0.5, heartbeat_s=0.1)) as made:
        client = made.client()
        session = new_session(client)
        with client.stream("GET", f"/v1/sessions/{session}/events?after_sequence=1", headers=STREAM) as response:
            chunks, began = response.iter_raw(), time.monotonic()
            while time.monotonic() - began < 1.5:
                next(chunks)
            assert made.gateway.followers.taken == 1
            threading.Timer(0.05, made.stop_streams).start()
            b"".join(chunks)
