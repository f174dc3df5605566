"""The client of the HTTP measurements: a process of its own, lean enough not to be what is measured.

Each connection sends a request, waits for its answer, and sends the next (a closed loop); or requests come at a rate of
their own, whatever becomes of those before (an open loop), and wait from the moment at which they were due; one that finds
all connections busy is given up by the client itself. Requests are bytes that are
mostly made beforehand; answers are parsed by httptools; the loop is uvloop's. It reads its task as JSON from standard
input, says a line when the warm-up is over and one when the last answer has come, and writes its `Outcome` to the file that
it is given.
"""

import asyncio
import secrets
import string
import sys
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import httptools
import msgspec
import uvloop
from msgspec import Struct

_ALPHABET: Final = (string.ascii_letters + string.digits + " .,:;!?()[]{}<>=+-*/_#%&$@~^|").replace('"', "").replace("\\", "")
_POOL: Final = 64
"""Bodies made beforehand; each request takes one of them."""
_PATIENCE_S: Final = 60.0
"""For the last answers."""
_GREETING: Final = b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n"
"""What each connection of an open loop begins with: one that is made has not been accepted yet, and would wait for that."""


class Ask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request of kind `ask`. A body makes it a POST under an Idempotency-Key of its own. `report`: of the worker that asks."""

    path: str
    body: str | None = None
    report: str = ""


class Task(Struct, frozen=True, kw_only=True):
    """`kind`: create, append, batch, session, page, owner or ask.

    With `requests`, so many are sent, to the sessions (or of the `asks`) in turn; without, for `load_s`, drawn at random.
    """

    kind: str
    host: str
    port: int
    key: str
    connections: int
    sessions: list[str] = []
    content_chars: int = 0
    """Of one event's content, which is text that hardly compresses."""
    lines: int = 1
    """Events of a batch, or of a page."""
    warm_s: float = 0.0
    load_s: float = 0.0
    per_s: float = 0.0
    """Requests a second in an open loop, at random distances; 0: a closed loop. Being refused is no failure then."""
    requests: int = 0
    questions: list[str] = []
    """Bodies in base64, of kind `owner`; `key` is the installation's token then."""
    question: str = "session"
    """What they ask for, as the owner's paths name it."""
    asks: list[Ask] = []
    """Of kind `ask`; 204 is an answer to them, too. The bodies of all answers are kept."""


class Outcome(Struct, frozen=True, kw_only=True):
    """Of the time behind the warm-up. `seconds`: of each request that was answered 200 or 201."""

    wall_s: float
    cpu_s: float
    seconds: list[float]
    statuses: dict[int, int]
    refused: int = 0
    """Of an open loop: 429 and 503 that say when to come again."""
    unsent: int = 0
    """Of an open loop: requests that were due and found no connection free; they are in nothing else here."""
    late: list[float] = []
    """Of an open loop: of each request, how many seconds after it was due the client sent it. In `seconds`, too."""
    created: list[str] = []
    bodies: list[str] = []
    """Of kind `ask`, in the order in which they came: with one connection that of `seconds`, where all were 200 or 201."""
    refusal: str = ""
    """The first answer that was not what was asked for."""


class _Connection(asyncio.Protocol):
    """One caller: sends the next request as soon as the last is answered."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._since = 0.0
        self._retry_after = False
        self._finished = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is none by class
        self._load.free(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, _: bytes) -> None:
        self._retry_after = self._retry_after or name.lower() == b"retry-after"

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        asked_again, self._retry_after = self._retry_after, False
        self._load.answered(self._parser.get_status_code(), time.perf_counter() - self._since, body, asked_again)
        self._load.free(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost(error if self._finished else error or ConnectionError("closed by the server"))

    def send(self, request: bytes, since: float) -> None:
        """`since`: when it was due, or is now."""
        self._since = since
        self._transport.write(request)

    def finish(self) -> None:
        self._finished = True
        self._transport.close()


class _Load:
    """What all connections share."""

    def __init__(self, task: Task, on_begin: Callable[[], None]) -> None:
        self._task, self._on_begin = task, on_begin
        self._make = _maker(task)
        self._wanted = (200, 201, 204) if task.kind == "ask" else (200, 201)
        self._open = task.connections
        self._left = task.requests
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.created: list[str] = []
        self.bodies: list[str] = []
        self.refused, self.refusal = 0, ""
        self.unsent = 0
        self.late: list[float] = []
        now = time.perf_counter()
        self.begins, self.ends = now + task.warm_s, now + task.warm_s + task.load_s
        self._measuring = False
        self.begun_s = self.cpu_s = self.wall_s = 0.0
        if task.requests:
            self._begin()

    def free(self, connection: _Connection) -> None:
        """It may send the next, or is done."""
        request = self._next_request()
        if request is None:
            connection.finish()
        else:
            connection.send(request, time.perf_counter())

    def _next_request(self) -> bytes | None:
        if self._task.requests:
            self._left -= 1
            return self._make() if self._left >= 0 else None
        now = time.perf_counter()
        self._look(now)
        return self._make() if now < self.ends else None

    def _look(self, now: float) -> None:
        if not self._measuring and now >= self.begins:
            self._begin()

    def answered(self, status: int, seconds: float, body: bytes, retry_after: bool) -> None:
        """`retry_after`: the answer says when to come again."""
        if self._task.per_s and status in (429, 503) and retry_after:
            self.refused += self._measuring
        elif status not in self._wanted:
            self.refusal = self.refusal or f"{status} {body[:300].decode(errors='replace')}"
        if self._task.kind == "create" and status == 201:
            self.created.append(msgspec.json.decode(body)["session_id"])
        # Those that are answered behind the end were under way in it; the wall time goes to the last of them.
        if self._measuring:
            self.statuses[status] += 1
            if status in (200, 201):
                self.seconds.append(seconds)
                if self._task.kind == "ask":
                    self.bodies.append(body.decode())

    def lost(self, error: Exception | None) -> None:
        self._open -= 1
        if error is not None:
            self.refusal = self.refusal or f"connection lost: {error}"
        if self._open == 0:
            self.wall_s, self.cpu_s = time.perf_counter() - self.begun_s, time.process_time() - self.cpu_s
            self.done.set_result(None)

    def _begin(self) -> None:
        self._measuring = True
        self.begun_s, self.cpu_s = time.perf_counter(), time.process_time()
        self._on_begin()


class _OpenLoad(_Load):
    """Requests that come when they come."""

    def __init__(self, task: Task, on_begin: Callable[[], None]) -> None:
        super().__init__(task, on_begin)
        self._free: list[_Connection] = []
        self._greeted: set[_Connection] = set()
        self._over = False

    def free(self, connection: _Connection) -> None:
        if self._over:
            connection.finish()
        elif connection not in self._greeted:
            self._greeted.add(connection)
            connection.send(_GREETING, time.perf_counter())
        else:
            self._free.append(connection)

    async def arrive(self) -> None:
        """Until the end."""
        while len(self._free) < self._open:
            await asyncio.sleep(0.01)
        random = Random()
        at = time.perf_counter()
        # Making the connections took its time.
        self.begins, self.ends = at + self._task.warm_s, at + self._task.warm_s + self._task.load_s
        while at < self.ends:
            await asyncio.sleep(at - time.perf_counter())
            now = time.perf_counter()
            self._look(now)
            while at <= now:
                if self._free:
                    self._free.pop().send(self._make(), at)
                    if self._measuring:
                        self.late.append(time.perf_counter() - at)
                else:
                    self.unsent += self._measuring
                at += random.expovariate(self._task.per_s)
        self._over = True
        for connection in self._free:
            connection.finish()


def _maker(task: Task) -> Callable[[], bytes]:
    random = Random()
    turns = cycle(task.sessions)

    def session() -> str:
        return next(turns) if task.requests else random.choice(task.sessions)

    authority = f"Host: {task.host}\r\nAuthorization: Bearer {task.key}\r\n"
    if task.kind == "create":
        return lambda: _post("/v1/sessions", authority, b"{}", "application/json")
    if task.kind == "session":
        return lambda: f"GET /v1/sessions/{session()} HTTP/1.1\r\n{authority}\r\n".encode()
    if task.kind == "page":
        return lambda: f"GET /v1/sessions/{session()}/events?limit={task.lines} HTTP/1.1\r\n{authority}\r\n".encode()
    if task.kind == "owner":
        head = f"POST /internal/v1/{task.question} HTTP/1.1\r\nHost: {task.host}\r\nx-internal-token: {task.key}\r\n".encode()
        asked = [b64decode(question) for question in task.questions]
        whole = [head + b"Content-Length: %d\r\n\r\n%s" % (len(question), question) for question in asked]
        return lambda: random.choice(whole)
    if task.kind == "ask":
        following = cycle(task.asks)
        return lambda: _asked(next(following) if task.requests else random.choice(task.asks), authority)
    lines = [_line(task.content_chars) for _ in range(_POOL)]
    if task.kind == "append":
        return lambda: _post(f"/v1/sessions/{session()}/events", authority, random.choice(lines), "application/json")
    bodies = [b"\n".join(random.choices(lines, k=task.lines)) for _ in range(8)]
    return lambda: _post(f"/v1/sessions/{session()}/events", authority, random.choice(bodies), "application/x-ndjson")


def _asked(ask: Ask, authority: str) -> bytes:
    head = f"{authority}Session-Streams-Report: {ask.report}\r\n" if ask.report else authority
    if ask.body is None:
        return f"GET {ask.path} HTTP/1.1\r\n{head}\r\n".encode()
    return _post(ask.path, head, ask.body.encode(), "application/json")


def _post(path: str, authority: str, body: bytes, media_type: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\n{authority}Idempotency-Key: {secrets.token_hex(12)}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def content_of(chars: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(chars))


def _line(content_chars: int) -> bytes:
    event = {"type": "message.appended", "attributes": {"role": "user"}, "content": content_of(content_chars)}
    return msgspec.json.encode(event)


async def _run(task: Task, on_begin: Callable[[], None]) -> Outcome:
    load = _OpenLoad(task, on_begin) if task.per_s else _Load(task, on_begin)
    loop = asyncio.get_running_loop()

    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A connection that cannot go on would be waited for without end.
        if not load.done.done():
            load.done.set_exception(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(failed)
    for _ in range(task.connections):
        await loop.create_connection(lambda: _Connection(load), task.host, task.port)
    if isinstance(load, _OpenLoad):
        await load.arrive()
    await asyncio.wait_for(load.done, task.warm_s + task.load_s + _PATIENCE_S)
    _say("done")
    return Outcome(
        wall_s=load.wall_s, cpu_s=load.cpu_s, seconds=load.seconds, statuses=dict(load.statuses), refused=load.refused,
        unsent=load.unsent, late=load.late, created=load.created, bodies=load.bodies, refusal=load.refusal,
    )  # fmt: skip


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    outcome = uvloop.run(_run(task, lambda: _say("begun")))
    # To a file: what is written to a pipe after uvloop has run may be cut off.
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
