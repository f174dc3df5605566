"""Internal HTTP of an owner, as plain ASGI: a point read is a dictionary look-up, a RocksDB get and an encoding.

    POST /internal/v1/{session, sessions, events, ..., applied}     with the installation's token; see `messages`
    POST /internal/v1/{graph, applied}                              of an owner of graphs
    GET  /healthz  /readyz  /metrics                                without; counts and positions only

Bounds: the body of a question (64 KiB), the length and bytes of a page, the time of a wait, the number of waiters.
"""

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from connectors.owner import metrics
from connectors.owner.asked import LIMIT_MAX, Receive, Scope, Send, bounded, decoded, position, waited, while_asked
from connectors.owner.messages import PREFIX, AppliedQuestion, EventsQuestion, GraphQuestion, SessionQuestion, SessionsQuestion, refusal
from connectors.owner.run_questions import RunQuestions
from connectors.owner.token import HEADER
from streams.errors import Invalid, NotPermitted, StreamsError
from streams.log.position import Position
from streams.projections.graph.handler import ROLE as GRAPH_ROLE
from streams.projections.projector import ROLE
from streams.projections.tables import Tables
from streams.query.freshness import Freshness
from streams.query.graphs import GraphReads
from streams.query.reads import Reads

_QUESTION_BYTES_MAX: Final = 64 * 1024
_PAGE_BYTES_MAX: Final = 16 << 20
_DEPTH_MAX: Final = 100
_ITEMS_MAX: Final = 100_000

_log = structlog.get_logger(__name__)
_encode = msgspec.msgpack.Encoder().encode


class InternalApplication:
    """Serves questions in its own loop, to which it binds `freshness` at start-up. Derived classes bring the questions."""

    role = ROLE

    def __init__(self, token: str, freshness: Freshness, tables: Tables, joined: Callable[[], bool]) -> None:
        """`joined`: whether the process has its place in the group yet."""
        self._token = token.encode()
        self._freshness = freshness
        self._tables = tables
        self._joined = joined
        self._questions: dict[str, Callable[[bytes, Receive], Awaitable[object]]] = {PREFIX + "applied": self._applied}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        path = scope["path"]
        question = self._questions.get(path)
        if question is None:
            await self._operations(path, send)
            return
        try:
            self._admit(scope)
            answer = await question(await _body(receive), receive)
            status, body = 200, _encode(answer)
        except StreamsError as error:
            status, said = refusal(error)
            if status == 500:
                _log.error("internal_read_failed", path=path, code=error.code, reason=error.detail)
            body = _encode(said)
        await _send(send, status, b"application/msgpack", body)

    def _admit(self, scope: Scope) -> None:
        if scope["method"] != "POST":
            raise Invalid("expected POST", code="request.malformed")
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        if not hmac.compare_digest(given, self._token):
            raise NotPermitted("the installation's token is missing or wrong", code="auth.invalid")

    async def _applied(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _applied_decoder)
        place = Position.parse(question.position)
        await self._freshness.ready(place.partition, place, time.monotonic() + waited(question.wait_s))
        return None

    async def _operations(self, path: str, send: Send) -> None:
        if path == "/healthz":
            await _send(send, 200, b"text/plain", b"alive\n")
        elif path == "/readyz":
            tables = self._tables.owned.values()
            ready = self._joined() and all(table.lease.held for table in tables)
            state = {
                "ready": ready,
                "joined": self._joined(),
                "partitions": {
                    str(table.partition): {"position": table.position, "end": table.end, "serving": table.lease.held} for table in tables
                },
            }
            await _send(send, 200 if ready else 503, b"application/json", json.dumps(state).encode())
        elif path == "/metrics":
            await _send(send, 200, metrics.CONTENT_TYPE, self._numbers())
        else:
            await _send(send, 404, b"text/plain", b"no such path\n")

    def _numbers(self) -> bytes:
        return metrics.text(self._tables, self.role)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._freshness.bind(asyncio.get_running_loop())
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return


class OwnerApplication(InternalApplication):
    """Of a projector: sessions, listings, events; Runs and checkpoints (`run_questions`)."""

    def __init__(self, token: str, reads: Reads, freshness: Freshness, tables: Tables, joined: Callable[[], bool]) -> None:
        super().__init__(token, freshness, tables, joined)
        self._reads = reads
        self._questions |= {
            PREFIX + "session": self._session,
            PREFIX + "sessions": self._sessions,
            PREFIX + "events": self._events,
        }
        self._questions |= {PREFIX + name: answer for name, answer in RunQuestions(reads).answers.items()}

    async def _session(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _session_decoder)
        return await self._reads.session(
            question.workspace_id,
            question.session_id,
            subject_id=question.subject_id,
            position=position(question.position),
            wait_s=waited(question.wait_s),
        )

    async def _sessions(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _sessions_decoder)
        return await self._reads.sessions(
            question.workspace_id,
            question.subject_id,
            partitions=question.partitions,
            cursor=question.cursor,
            limit=bounded("limit", question.limit, 1, LIMIT_MAX),
            position=position(question.position),
            wait_s=waited(question.wait_s),
        )

    async def _events(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _events_decoder)
        follow_s = waited(question.follow_s)
        page = self._reads.events(
            question.workspace_id,
            question.session_id,
            subject_id=question.subject_id,
            after=bounded("after", question.after, 0, 2**62),
            limit=bounded("limit", question.limit, 1, LIMIT_MAX),
            max_bytes=bounded("max_bytes", question.max_bytes, 1, _PAGE_BYTES_MAX),
            follow_s=follow_s,
            position=position(question.position),
            wait_s=waited(question.wait_s),
            at_end=question.at_end,
        )
        return await (page if follow_s == 0 else while_asked(page, receive))


class GraphApplication(InternalApplication):
    """Of a process that makes graphs."""

    role = GRAPH_ROLE

    def __init__(self, token: str, reads: GraphReads, freshness: Freshness, tables: Tables, joined: Callable[[], bool]) -> None:
        super().__init__(token, freshness, tables, joined)
        self._reads = reads
        self._questions[PREFIX + "graph"] = self._graph

    async def _graph(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _graph_decoder)
        return await self._reads.graph(
            question.workspace_id,
            question.session_id,
            subject_id=question.subject_id,
            node_id=question.node_id,
            depth=bounded("depth", question.depth, 0, _DEPTH_MAX),
            nodes_max=bounded("nodes_max", question.nodes_max, 1, _ITEMS_MAX),
            items_max=bounded("items_max", question.items_max, 1, _ITEMS_MAX),
            position=position(question.position),
            wait_s=waited(question.wait_s),
        )


_session_decoder = msgspec.msgpack.Decoder(SessionQuestion)
_sessions_decoder = msgspec.msgpack.Decoder(SessionsQuestion)
_events_decoder = msgspec.msgpack.Decoder(EventsQuestion)
_applied_decoder = msgspec.msgpack.Decoder(AppliedQuestion)
_graph_decoder = msgspec.msgpack.Decoder(GraphQuestion)


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body", False):
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _QUESTION_BYTES_MAX:
            break
    if len(body) > _QUESTION_BYTES_MAX:
        raise Invalid("question: too large", code="request.too_large")
    return body


async def _send(send: Send, status: int, content_type: bytes, body: bytes) -> None:
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
