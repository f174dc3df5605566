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


CHUNKED = b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [(b"0\r\nx-trailer: ", b"y" * 1000), (b"0\r\n", b"x-trailer: y\r\n" * 80), (b"5;extension=", b"y" * 1000)],
    ids=["a trailer without end", "trailers without end", "a chunk line without end"],
)
def test_what_is_sent_beside_a_body_is_bounded_as_headers_are(strict: World, beginning: bytes, piece: bytes) -> None:
    with connect(strict) as connection:
        connection.sendall(CHUNKED + beginning)
        sent = 0
        try:
            while sent < 2_000_000:
                connection.sendall(piece)
                sent += len(piece)
                time.sleep(0.0005)
        except OSError:
            return
    pytest.fail(f"{sent} bytes were taken")


def test_trailers_within_the_bound_are_taken_and_are_no_headers(strict: World) -> None:
    trailer = f"authorization: Bearer {strict.secret()}\r\nx: {'y' * 500}\r\n\r\n".encode()
    with connect(strict) as connection:
        for _ in range(5):
            connection.sendall(CHUNKED + b"0\r\n" + trailer)
            assert connection.recv(65536).startswith(b"HTTP/1.1 401")


def test_a_body_in_many_small_chunks_is_no_large_header(strict: World) -> None:
    body = (b"%d" % (number % 10) for number in range(20_000))
    text = b'{"metadata":"' + b"".join(body) + b'"}'
    pieces = (text[start : start + 3] for start in range(0, len(text), 3))
    response = strict.client().post("/v1/sessions", content=pieces, headers={"idempotency-key": "k", "content-type": "application/json"})
    assert response.status_code == 201


def test_a_large_body_is_no_large_header(strict: World) -> None:
    client = strict.client()
    assert client.post("/v1/sessions", json={"metadata": "x" * 100_000}, headers={"idempotency-key": "k"}).status_code == 201


def test_what_is_no_http_is_answered_with_a_problem(strict: World) -> None:
    with connect(strict) as connection:
        connection.sendall(b"what is this\r\n\r\n")
        head, _, body = received(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["code"] == "request.malformed"
