"""What comes before a request is one is bounded too. Spoken over bare sockets."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.gateway.limits import GatewayLimits
from tests.support.gateway import World, world

REQUEST = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, limits=GatewayLimits(header_timeout_s=0.4, header_bytes_max=2048)) as made:
        yield made


def connect(made: World) -> socket.socket:
    host, port = made.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def received(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_headers_that_take_too_long_end_the_connection(strict: World) -> None:
    with connect(strict) as connection:
        connection.sendall(REQUEST)
        began = time.monotonic()
        assert received(connection) == b""
        assert time.monotonic() - began < 3


def test_headers_that_come_drop_by_drop_end_it_too(strict: World) -> None:
    with connect(strict) as connection:
        connection.sendall(REQUEST)
        ended = False
        for _ in range(40):
            try:
                connection.sendall(b"a: b\r\n")
            except OSError:
                ended = True
                break
            time.sleep(0.05)
        assert ended


def test_the_time_for_headers_begins_anew_with_each_request(strict: World) -> None:
    with connect(strict) as connection:
        for _ in range(2):
            connection.sendall(REQUEST + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(0.6)
        connection.sendall(REQUEST)
        assert received(connection) == b""


def test_headers_that_are_too_large_end_the_connection(strict: World) -> None:
    with connect(strict) as connection:
        connection.sendall(REQUEST)
        try:
            for _ in range(200):
                connection.sendall(b"x-filler: " + b"y" * 1000 + b"\r\n")
                time.sleep(0.001)
        except OSError:
            return
        assert received(connection) == b""


def test_a_large_body_is_no_large_header(strict: World) -> None:
    client = strict.client()
    assert client.post("/v1/sessions", json={"metadata": "x" * 100_000}, headers={"idempotency-key": "k"}).status_code == 201


def test_what_is_no_http_is_answered_with_a_problem(strict: World) -> None:
    with connect(strict) as connection:
        connection.sendall(b"what is this\r\n\r\n")
        head, _, body = received(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["code"] == "request.malformed"
