"""A gateway on a real port whose log, authority and owners are in memory: the pure core decides, sealing is real.

Faults are values that a test sets: `log.withhold` counts commands that are decided and whose outcome is lost, `log.mute`
counts commands that nobody decides, `log.undeliverable` fails deliveries, `owners.failure` is raised by every read,
`stale_keys` makes the key table old, `agents.failing` is raised by every call of agent checkpoints, for which it is `passed_us` later.
"""

import asyncio
import base64
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec import structs

from connectors.edge.compose import CommandComposer
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
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import Invalid, NotFound, StreamsError
from streams.log.partitioner import partition_of
from streams.log.position import Position
from streams.log.reader import Record
from streams.log.record import decode_command, encode_attributes, encode_draft, encode_event
from streams.log.requests import new_reply_to
from streams.projections.checkpoints import CheckpointRow
from streams.projections.runs import RunRow
from streams.projections.sessions import SessionRow, SourceCursor
from streams.query.graphs import GraphPage
from streams.query.pages import CheckpointsPage, EventsPage, SessionsPage
from streams.sealed_blobs import Snapshots
from streams.session import chain
from streams.session.commands import Command, Kind
from streams.session.dead_letters import DeadLetter
from streams.session.decide import decide
from streams.session.events import SessionAttributes
from streams.session.items import SessionState, session_of
from streams.session.outcomes import ACCEPTED, REJECTED, Outcome, Rejected
from streams.session.state import DictItems
from streams.settings import Settings
from tests.support.agents import AgentsInMemory
from tests.support.graphs import GraphStore
from tests.support.owner_table import OwnerTable

T = TypeVar("T")

WORKSPACE = "ws_" + "a" * 32
OTHER_WORKSPACE = "ws_" + "b" * 32
TOPIC = "sessions.commands"
ALL = ("admin",)


class MemoryLog:
    """Commands go in, outcomes come back by the loop's next turn; dead letters are kept as they are."""

    def __init__(self, settings: Settings) -> None:
        self.rows: dict[str, SessionRow] = {}
        self.table = OwnerTable()
        self.events: dict[str, list[bytes]] = {}
        self.commands: list[Command] = []
        self.values: list[bytes] = []
        self.letters: list[DeadLetter] = []
        self.withhold = 0
        self.mute = 0
        self.undeliverable: StreamsError | None = None
        self.settle: Callable[[list[Outcome]], None] = lambda outcomes: None
        self._settings = settings
        self._offsets = itertools.count()
        self._erasures = itertools.count()
        self._items: dict[str, DictItems] = {}
        self._told: dict[str, tuple[bytes, Outcome]] = {}

    def partition_of(self, session_id: str) -> int:
        return partition_of(session_id.encode(), self._settings.partitions)

    def send(self, value: bytes, session_id: str, on_done: Callable[[StreamsError | None], None] | None = None) -> None:
        if self.undeliverable is not None:
            assert on_done is not None
            on_done(self.undeliverable)
            return
        command = decode_command(value)
        assert command.session_id == session_id
        if self.mute:
            self.mute -= 1
            return
        self.commands.append(command)
        self.values.append(value)
        outcome = structs.replace(self._decided(command), correlation=command.correlation)
        if self.withhold:
            self.withhold -= 1
            return
        self.settle([outcome])

    def erase(self, session_id: str) -> None:
        """As the custodian tells the authority of it."""
        command = Command(
            command_id=f"cmd_{next(self._erasures):032x}", session_id=session_id, workspace_id=self.rows[session_id].workspace_id,
            kind=Kind.ERASE, principal_id="key_" + "0" * 32, request_digest=bytes(32), issued_at=0, not_after=2**62,
        )  # fmt: skip
        assert self._decided(command).status == ACCEPTED

    def send_dead_letter(self, letter: DeadLetter, key: str, on_done: Callable[[StreamsError | None], None]) -> None:
        self.letters.append(letter)
        on_done(self.undeliverable)

    def _decided(self, command: Command) -> Outcome:
        known = self._told.get(command.command_id)
        if known is not None:
            if known[0] != command.request_digest:
                return self._refused(command, Rejected("request.idempotency_mismatch", "another request"))
            return structs.replace(known[1], repeated=True)
        items = self._items.setdefault(command.session_id, DictItems())
        offset = next(self._offsets)
        decision = decide(items, command, time.time_ns() // 1000, offset)
        if isinstance(decision, Rejected):
            outcome = self._refused(command, decision)
        else:
            header = session_of(items)
            told = len(self.events.get(command.session_id, []))
            previous = chain.genesis(command.session_id) if header is None else header.last_hash
            for index, draft in enumerate(decision.drafts):
                added: dict[str, Any] = {
                    "sequence": decision.first_sequence + index, "command_offset": offset,
                    "command_last": index == len(decision.drafts) - 1, "accepted_at": decision.accepted_at, "previous_hash": previous,
                }  # fmt: skip
                attributes = encode_attributes(draft.type, draft.attributes)
                previous = chain.event_hash(draft, attributes, **added)
                self.events.setdefault(command.session_id, []).append(encode_event(encode_draft(draft), **added, hash=previous))
            items.put(decision.chained(previous) if decision.drafts else decision.changed)
            header = items.get("session", "")
            assert isinstance(header, SessionState)
            self.table.apply(command.session_id, self.events.get(command.session_id, [])[told:])
            self._fold(header, decision.drafts)
            for sent in decision.sent:
                self._decided(sent)
            outcome = Outcome(
                command_id=command.command_id, correlation=0, session_id=command.session_id, status=ACCEPTED,
                first_sequence=decision.first_sequence, last_sequence=header.sequence, position_offset=header.last_command_offset,
                decided_at=decision.accepted_at, grant=decision.grant, actual_run_sequence=decision.run_sequence,
            )  # fmt: skip
        self._told[command.command_id] = (command.request_digest, outcome)
        return outcome

    def _refused(self, command: Command, rejected: Rejected) -> Outcome:
        header = session_of(self._items.get(command.session_id, DictItems()))
        return Outcome(
            command_id=command.command_id, correlation=0, session_id=command.session_id, status=REJECTED, code=rejected.code,
            detail=rejected.detail, last_sequence=0 if header is None else header.sequence, decided_at=0,
            actual_run_sequence=rejected.actual_run_sequence, missing=rejected.missing,
        )  # fmt: skip

    def _fold(self, header: SessionState, drafts: tuple[Any, ...]) -> None:
        row = self.rows.get(header.session_id)
        folded = self.table.model.session(header.workspace_id, header.session_id)
        counts = {} if row is None else dict(row.counts)
        source = None if row is None else row.source
        for draft in drafts:
            counts[draft.type] = counts.get(draft.type, 0) + 1
            index = getattr(draft.attributes, "source_index", None)
            if index is not None:
                source = SourceCursor(draft.attributes.source_kind, index, draft.attributes.source_digest)
            if isinstance(draft.attributes, SessionAttributes) and draft.type == "session.created":
                origin = draft.attributes.origin
        self.rows[header.session_id] = SessionRow(
            header.session_id, header.workspace_id, header.subject_id, header.status, origin if row is None else row.origin,
            header.policy_mode, header.content_window_days, header.created_at, header.last_accepted_at, header.sequence,
            header.last_command_offset, counts, source, folded.checkpoint_window_s, folded.lineage,
        )  # fmt: skip


class MemoryOwners:
    """Reads what `MemoryLog` holds. A page waits for events as the owner does."""

    def __init__(self, log: MemoryLog) -> None:
        self.failure: StreamsError | None = None
        self.positions: list[Position | None] = []
        self._log = log

    async def session(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> SessionRow:  # fmt: skip
        self.positions.append(position)
        if self.failure is not None:
            raise self.failure
        row = self._log.rows.get(session_id)
        if position is not None and position.offset > 10**9:
            raise Invalid("position: beyond the end of the log", code="request.malformed")
        if row is None or row.workspace_id != workspace_id or subject_id not in (None, row.subject_id):
            raise NotFound(f"session {session_id}")
        return row

    async def sessions(
        self, workspace_id: str, *, subject_id: str | None = None, cursor: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> SessionsPage:  # fmt: skip
        rows = [row for row in self._log.rows.values() if row.workspace_id == workspace_id and subject_id in (None, row.subject_id)]
        rows.sort(key=lambda row: row.created_at, reverse=True)
        start = int(cursor or 0)
        more = len(rows) > start + limit
        return SessionsPage(tuple(rows[start : start + limit]), str(start + limit) if more else None)

    async def events(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        after: int, limit: int, max_bytes: int, wait_ms: int = 0,
        position: Position | None = None, wait_s: float = 5.0, at_end: bool = False,
    ) -> EventsPage:  # fmt: skip
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            row = await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
            if row.sequence > after or time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.01)
        values = self._log.events[session_id][after : after + limit]
        return EventsPage(row, tuple(values), (), after + len(values))

    async def event_named(
        self, workspace_id: str, session_id: str, event_id: str, *, hint: int | None = None, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> int:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        found, _ = self._log.table.model.named_event(workspace_id, session_id, event_id, subject_id)
        if found is None:
            raise NotFound(f"session {session_id} has no event {event_id}")
        return found

    async def checkpoints(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, cursor: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointsPage:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        return self._log.table.model.checkpoints(workspace_id, session_id, subject_id, cursor=cursor, limit=limit)

    async def checkpoint(
        self, workspace_id: str, session_id: str, checkpoint_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointRow:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        return self._log.table.model.checkpoint(workspace_id, session_id, checkpoint_id, subject_id)

    async def run(
        self, workspace_id: str, session_id: str, run_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> RunRow:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        return self._log.table.model.run(workspace_id, session_id, run_id, subject_id)

    async def claimable(
        self, workspace_id: str, lanes: Sequence[str], *, subject_id: str | None = None, limit: int = 10,
        wait_ms: int = 0, wait_s: float = 5.0,
    ) -> tuple[RunRow, ...]:  # fmt: skip
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            if self.failure is not None:
                raise self.failure
            found = self._log.table.model.claimable(workspace_id, lanes, subject_id, partitions=(0,), limit=limit)
            if found or time.monotonic() >= deadline:
                return found
            await asyncio.sleep(0.01)

    async def claimed(
        self, workspace_id: str, claim_digest: str, *, subject_id: str | None = None, wait_s: float = 5.0
    ) -> RunRow | None:  # fmt: skip
        if self.failure is not None:
            raise self.failure
        found = self._log.table.model.claimed(workspace_id, claim_digest, subject_id, partitions=(0,))
        return found[0] if found else None


class MemoryGraphOwners:
    """Folds what `MemoryLog` holds when it is asked, with the projection's own handler."""

    def __init__(self, log: MemoryLog) -> None:
        self.failure: StreamsError | None = None
        self._log = log

    async def graph(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        node_id: str | None, depth: int, nodes_max: int, items_max: int, position: Position | None = None, wait_s: float = 5.0,
    ) -> GraphPage:  # fmt: skip
        if self.failure is not None:
            raise self.failure
        table = GraphStore()
        values = self._log.events.get(session_id, [])
        table.apply([Record("sessions.events", 0, offset, session_id.encode(), value, 0) for offset, value in enumerate(values)])
        model = table.model()
        if node_id is not None:
            return model.around(workspace_id, session_id, node_id, subject_id, depth=depth, nodes_max=nodes_max)
        return model.graph(workspace_id, session_id, subject_id, items_max=items_max)


class World:
    """`client(*scopes)` gives an HTTP client with a key of its own; `gateway` is the object behind the port."""

    def __init__(self, folder: Path, limits: GatewayLimits, settings: Settings) -> None:
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
        self.keyring = open_local_keyring(folder / "keyring")
        self.sealer = Sealer(self.keyring, cache_seconds=10)
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
        self.gateway = Gateway(
            settings=self.settings,
            limits=self.limits,
            keys=KeyTable(self),
            policies=PolicyTable(self, self.settings),
            support=Support(self.settings),
            composer=CommandComposer(self.keyring, self.sealer, timeout_s=self.settings.request_timeout_s, cache_seconds=10),
            submitter=submitter,
            sealer=self.sealer,
            snapshots=Snapshots(self.blobs, self.keyring),
            owners=self.owners,
            graph_owners=self.graph_owners,
            agents=self.agents,
            dead_letters=self.log,
            partition_of=self.log.partition_of,
            missing=lambda: ["keys"] if self.stale_keys else [],
        )
        self.loop = asyncio.get_running_loop()
        yield self.gateway
        self.gateway.pool.shutdown(wait=False)


@contextmanager
def world(folder: Path, *, limits: GatewayLimits | None = None, request_timeout_s: float = 5.0) -> Iterator[World]:
    """A world that serves until the block ends."""
    settings = Settings(data_dir=folder, request_timeout_s=request_timeout_s, content_window_days=30)
    made = World(folder, limits or GatewayLimits(threads=4, heartbeat_s=0.2), settings)
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


def check_documented(response: httpx.Response) -> None:
    """Every answer that a test meets is one that the interface document tells of, to the last field and code."""
    request = response.request
    theirs = next((route for route, path in _AGENT_PATTERNS if route.method == request.method and path.fullmatch(request.url.path)), None)
    if theirs is not None:
        _check_described(theirs, response)
        return
    route = next((route for route, path in _PATTERNS if route.method == request.method and path.fullmatch(request.url.path)), None)
    if route is None or response.headers.get("content-type", "").startswith("text/event-stream"):
        return
    if response.status_code == 204:
        assert route.nothing is not None, f"{route.name}: 204 is not documented"
        return
    if response.status_code == 200 and route.media_type is not None and response.headers["content-type"].startswith(route.media_type):
        return  # whoever reads it, reads it piece by piece
    body = response.read()
    if response.status_code == route.status:
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
