"""A gateway as a process of its own, which is stopped and goes on."""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from connectors.cli.ports import free_ports
from connectors.edge.keys import KeyAdministration
from streams.settings import Settings
from tests.support.gateway import message, new_session, post
from tests.support.processes import Fleet, RoleProcess
from tests.support.roles import WORKSPACE
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
QUESTIONS = 20


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, lease_s=2.0)


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def gateway(settings: Settings, port: int) -> Iterator[RoleProcess]:
    """With an authority and a projector behind it."""
    with Fleet(settings) as fleet:
        fleet.start("authority")
        fleet.start("projector")
        process = fleet.start("gateway", "0", "--port", str(port))

        def ready() -> bool:
            assert process.alive, process.log()
            try:
                return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(ready, timeout_s=40)
        yield process


def ask(port: int, secret: str, session: str) -> socket.socket:
    """A question that lies in the gateway's socket, whether it runs or not."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {secret}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def answer(connection: socket.socket) -> tuple[int, bytes]:
    with connection:
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    whole = b"".join(parts)
    return int(whole.split(b" ", 2)[1]), whole.partition(b"\r\n\r\n")[2]


def test_a_stopped_gateway_wakes_up_refusing_until_its_keys_are_fresh(settings: Settings, gateway: RoleProcess, port: int) -> None:
    """SIGSTOP past the lease, a key revoked meanwhile, SIGCONT: the first answers are refusals, and content never is one."""
    keys = KeyAdministration(settings)
    kept = keys.create(WORKSPACE, ["admin"])[1]
    revoked, lost = keys.create(WORKSPACE, ["sessions:read"])
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {kept}"}, timeout=20) as client:
        eventually(lambda: client.get("/v1/sessions").status_code == 200, timeout_s=40)
        session = new_session(client)
        post(client, f"/v1/sessions/{session}/events", message("swordfish"))
    eventually(lambda: answer(ask(port, lost, session))[0] == 200)

    gateway.pause()
    keys.revoke(revoked.key_id)
    waiting = [ask(port, secret, session) for _ in range(QUESTIONS) for secret in (lost, kept)]
    time.sleep(settings.lease_s + 0.5)
    gateway.proceed()
    answers = [answer(connection) for connection in waiting]
    of_lost, of_kept = answers[::2], answers[1::2]

    assert all(b"swordfish" not in body for _, body in of_lost)
    codes = {(status, json.loads(body)["code"]) for status, body in of_lost}
    assert codes <= {(503, "service.not_ready"), (401, "auth.revoked")}
    assert (503, "service.not_ready") in codes | {(status, json.loads(body).get("code")) for status, body in of_kept}
    eventually(lambda: answer(ask(port, kept, session))[0] == 200)
    assert answer(ask(port, lost, session))[0] == 401
