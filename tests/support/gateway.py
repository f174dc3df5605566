"""A gateway on a real port whose log, authority and owners are in memory: the pure core decides, sealing is real.

Faults are values that a test sets: `log.withhold` counts commands that are decided and whose outcome is lost, `log.mute`
counts commands that nobody decides, `log.undeliverable` fails deliveries, `owners.failure` is raised by every read,
`stale_keys` makes the key table old, those of erasures are `custodian`'s, `agents.failing` is raised by every call of agent
checkpoints, for which it is `passed_us` later.
"""

import asyncio
import base64
import itertools
import json
import re
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from connectors.edge.capsules import CapsuleDesk
from connectors.edge.compose import CommandComposer
from connectors.edge.erased import Erased
from connectors.edge.erasures import ErasureService, ErasureSubmitter
from connectors.edge.forgetting import Forgetting
from connectors.edge.keys import KeyAdministration, KeyTable
from connectors.edge.policies import PolicyAdministration, PolicyTable
from connectors.edge.submit import Submitter
from connectors.gateway.agents.describing import DESCRIBED, AgentErrorAnswer
from connectors.gateway.agents.route import AgentRoute
from connectors.gateway.agents.router import ROUTES as AGENT_ROUTES
from connectors.gateway.app import ROUTES, GatewayApplication
from connectors.gateway.limits import GatewayLimits
from connectors.gateway.openapi import codes_of
from connectors.gateway.problems import Problem, status_of
from connectors.gateway.protocol import bounded_protocol
from connectors.gateway.service import Gateway
from connectors.support.support import Support
from connectors.web import WebServer
from streams.blobs import open_blob_store
from streams.clock import now_us
from streams.custody.sealing import Sealer
from streams.custody.signers import Signers
from streams.keyrings import open_keyring
from streams.log.requests import new_reply_to
from streams.sealed_blobs import Snapshots
from streams.settings import Settings
from tests.support.agents import AgentsInMemory
from tests.support.capsules import CapsuleKeysInMemory
from tests.support.erasures import CustodianInMemory
from tests.support.memory_log import MemoryLog
from tests.support.memory_owners import MemoryGraphOwners, MemoryOwners

T = TypeVar("T")

WORKSPACE = "ws_" + "a" * 32
OTHER_WORKSPACE = "ws_" + "b" * 32
TOPIC = "sessions.commands"
ALL = ("admin",)


class World:
    """`client(*scopes)` gives an HTTP client with a key of its own; `gateway` is the object behind the port."""

    def __init__(self, limits: GatewayLimits, settings: Settings) -> None:
        self.settings = settings
        self.limits = limits
        self.log = MemoryLog(settings)
        self.owners = MemoryOwners(self.log)
        self.graph_owners = MemoryGraphOwners(self.log)
        self.passed_us = 0
        self.agents = AgentsInMemory(
            lambda: now_us() + self.passed_us, lambda outside: self.keyring.pseudonym(WORKSPACE, "subject", outside, create=True) or ""
        )
        self.rows: dict[bytes, bytes] = {}
        self.stale_keys = False
        self.keyring = open_keyring(settings)
        self.sealer = Sealer(self.keyring, cache_seconds=10)
        self.erased = Erased(self.keyring)
        self.capsule_keys = CapsuleKeysInMemory()
        self.withdrawn: set[str] = set()
        self.custodian = CustodianInMemory(self.keyring, Signers(settings.signers_path))
        self.blobs = open_blob_store(settings)
        self.keys = KeyAdministration(settings, write=self._write)
        self.policies = PolicyAdministration(settings, write=self._write, read=lambda: self.rows)
        self.gateway: Gateway
        self.loop: asyncio.AbstractEventLoop
        self.server: WebServer
        self.url = ""
        self._clients: list[httpx.Client] = []

    @property
    def fresh(self) -> bool:
        return not self.stale_keys

    def _write(self, key: bytes, value: bytes) -> None:
        self.rows = {**self.rows, key: value}

    def secret(self, *scopes: str, workspace_id: str = WORKSPACE, **more: Any) -> str:
        return self.keys.create(workspace_id, scopes or ALL, **more)[1]

    def client(self, *scopes: str, **more: Any) -> httpx.Client:
        return self.client_with(self.secret(*scopes, **more))

    def client_with(self, secret: str) -> httpx.Client:
        client = httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {secret}"}, timeout=20, event_hooks={"response": [check_documented]}
        )
        self._clients.append(client)
        return client

    @property
    def connections(self) -> int:
        """Open at the server, whatever the other side holds."""
        return len(self.server._server.server_state.connections)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the gateway's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def stop_streams(self) -> None:
        """As the gateway's own runner does before the server stops."""
        self.loop.call_soon_threadsafe(self.gateway.stopping.set)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.keyring.close()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Gateway]:
        submitter = Submitter(
            self.log, new_reply_to("test"), timeout_s=self.settings.request_timeout_s,
            commands_max=self.limits.commands_max, bytes_max=self.limits.commands_bytes_max,
        )  # fmt: skip
        self.log.settle = submitter.settle_from_thread
        composer = CommandComposer(self.keyring, self.sealer, timeout_s=self.settings.request_timeout_s, cache_seconds=10)
        erasures = ErasureSubmitter(self.custodian, new_reply_to("test"), timeout_s=self.settings.request_timeout_s)
        self.custodian.settle = erasures.settle_from_thread
        self.custodian.forget = Forgetting(self.erased, self.sealer, composer.forget_names)
        self.pool = ThreadPoolExecutor(2)
        self.gateway = Gateway(
            settings=self.settings,
            limits=self.limits,
            keys=KeyTable(self),
            policies=PolicyTable(self, self.settings),
            administration=self.policies,
            support=Support(self.settings),
            composer=composer,
            submitter=submitter,
            sealer=self.sealer,
            snapshots=Snapshots(self.blobs, self.keyring, grace_s=self.settings.orphan_grace_s),
            owners=self.owners,
            graph_owners=self.graph_owners,
            agents=self.agents,
            erasures=ErasureService(
                self.keyring, erasures, self.pool, topic="workspaces.commands", timeout_s=self.settings.request_timeout_s
            ),
            erasure_owners=self.custodian,
            erased=self.erased,
            capsules=CapsuleDesk(self.keyring, self.capsule_keys, lambda digest: digest in self.withdrawn),
            dead_letters=self.log,
            partition_of=self.log.partition_of,
            missing=lambda: ["keys"] if self.stale_keys else [],
        )
        self.loop = asyncio.get_running_loop()
        yield self.gateway
        self.gateway.pool.shutdown(wait=False)
        self.pool.shutdown(wait=False)


@contextmanager
def world(folder: Path, *, limits: GatewayLimits | None = None, request_timeout_s: float = 5.0, **more: Any) -> Iterator[World]:
    """A world that serves until the block ends. `more`: of the settings."""
    settings = Settings(data_dir=folder, request_timeout_s=request_timeout_s, content_window_days=30, **more)
    made = World(limits or GatewayLimits(threads=4, heartbeat_s=0.2), settings)
    server = WebServer(GatewayApplication(made.opened), "127.0.0.1", 0, name="gateway-test", http=bounded_protocol(made.limits))
    server.start()
    made.server = server
    made.url = f"http://127.0.0.1:{server.port}"
    try:
        yield made
    finally:
        made.stop_streams()
        server.stop()
        made.close()


_AGENT_PATTERNS = [(route, re.compile(re.sub(":id", "[^/]+", route.path))) for route in AGENT_ROUTES]
_PATTERNS = [(route, re.compile(re.sub(r"{[a-z_]+}", "[^/]+", route.path))) for route in ROUTES]
"""Of the path as it is sent: an id may hold what separates a path."""


def _agent_route(method: str, path: str) -> AgentRoute | None:
    """The one that such a request goes to. What a route has in its path as it stands is no id."""
    plain = any(route.path == path for route in AGENT_ROUTES)
    found = [route for route, pattern in _AGENT_PATTERNS if route.method == method and pattern.fullmatch(path)]
    return next((route for route in found if route.path == path or not plain), None)


def check_documented(response: httpx.Response) -> None:
    """Every answer that a test meets is one that the interface document tells of, to the last field and code."""
    request = response.request
    theirs = _agent_route(request.method, request.url.path)
    if theirs is not None:
        _check_described(theirs, response)
        return
    sent = request.url.raw_path.partition(b"?")[0].decode()
    route = next((route for route, path in _PATTERNS if route.method == request.method and path.fullmatch(sent)), None)
    if route is None or response.headers.get("content-type", "").startswith("text/event-stream"):
        return
    if response.status_code == 204:
        assert route.nothing is not None, f"{route.name}: 204 is not documented"
        return
    if response.status_code == 200 and route.media_type is not None and response.headers["content-type"].startswith(route.media_type):
        return  # whoever reads it, reads it piece by piece
    body = response.read()
    if response.status_code in (route.status, route.known_status):
        if response.headers["content-type"].partition(";")[0] in route.other_media_types:
            return
        if route.answer is not None:
            msgspec.json.decode(body, type=route.answer)
        return
    problem = msgspec.json.decode(body, type=Problem)
    assert problem.code in codes_of(route), f"{route.name}: {problem.code} is not documented"
    assert (problem.status, status_of(problem.code)) == (response.status_code, response.status_code)


def _check_described(route: AgentRoute, response: httpx.Response) -> None:
    """The same of the routes that answer in an envelope of their own."""
    described, body = DESCRIBED[f"{route.method} {route.path}"], response.read()
    if response.status_code in described.answers:
        kind = described.answers[response.status_code]
        # Not by msgspec's own parser, which has no lone surrogates; a state may hold some.
        assert body == b"" if kind is None else msgspec.convert(json.loads(body), type=kind) is not None
        return
    error = msgspec.convert(json.loads(body), type=AgentErrorAnswer).error
    assert described.codes.get(response.status_code) == error.code, f"{route.name}: {response.status_code} {error.code} is not documented"


_keys = itertools.count()


def key() -> dict[str, str]:
    """A fresh Idempotency-Key as a header."""
    return {"idempotency-key": f"key-{next(_keys)}"}


def post(client: httpx.Client, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
    """Posts JSON under a fresh key unless one is given, and returns the decoded answer of the expected status."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.post(path, json={} if body is None else body, headers={**key(), **given})
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    return response.json()


def new_session(client: httpx.Client, **body: Any) -> str:
    return str(post(client, "/v1/sessions", body, status=201)["session_id"])


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"type": "message.appended", "attributes": {"role": "user"}, "content": {"text": text}, **more}


def ndjson(*bodies: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(body).encode() + b"\n" for body in bodies)


def base64_of(record: bytes) -> str:
    return base64.b64encode(record).decode()
