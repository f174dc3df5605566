"""One request as a handler sees it: its headers, path and query, its body read within bounds, its principal."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from connectors.edge import fields
from connectors.edge.compose import Incoming
from connectors.edge.json_text import parse
from connectors.edge.misfits import in_words
from connectors.edge.principal import Principal
from connectors.gateway.answers import JSON
from connectors.gateway.asgi import WHOLE, Message, Receive, Scope
from connectors.gateway.guards import Budget, Pace
from connectors.gateway.limits import GatewayLimits
from streams.errors import Invalid, NotPermitted
from streams.log.position import Position
from streams.session.commands import Report
from streams.session.ids import is_id

T = TypeVar("T")

_REPORT: Final = re.compile(r"(run_[0-9a-f]{32});([1-9][0-9]{0,17});(task_[0-9a-f]{32})(?:;(0|[1-9][0-9]{0,17}))?")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_LISTS: Final = frozenset({"accept", "transfer-encoding"})
"""Headers that may stand several times, since nothing is decided by them but a form. The last one counts here."""
_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")


class Call:
    """Belongs to one request; `principal` is set once it is authenticated."""

    def __init__(self, scope: Scope, receive: Receive, limits: GatewayLimits, path: dict[str, str], bodies: Budget) -> None:
        """`bodies` bounds the bytes of all bodies that are held at once; `release` gives back what this call holds."""
        self.scope = scope
        self.receive = receive
        self.path = path
        self.principal: Principal
        self._limits = limits
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        # Few requests have a header twice, and only who reads it looks further.
        self._some_twice = len(self._headers) < len(scope["headers"])
        self.body = b""
        self._bodies, self._held = bodies, 0
        self._holds: list[tuple[Budget, int]] = []

    def hold(self, budget: Budget, amount: int) -> None:
        """Takes that much of a budget until the request is answered. Raises `Overloaded`."""
        budget.take(amount)
        self._holds.append((budget, amount))

    def release(self) -> None:
        self._bodies.give_back(self._held)
        self._held = 0
        while self._holds:
            budget, amount = self._holds.pop()
            budget.give_back(amount)

    def header(self, name: str) -> str | None:
        """Raises `Invalid` (request.malformed) where it was sent twice: who knows which of them a proxy has looked at."""
        value = self._headers.get(name.encode())
        if self._some_twice and name not in _LISTS and [each for each, _ in self.scope["headers"]].count(name.encode()) > 1:
            raise Invalid(f"{name}: sent more than once", code="request.malformed")
        return None if value is None else value.decode("latin-1").strip()

    # -- headers ------------------------------------------------------------------------------------------------------

    def bearer(self) -> str:
        """Raises `NotPermitted` (auth.missing)."""
        scheme, _, secret = (self.header("authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise NotPermitted("expected the header Authorization: Bearer sks_...", code="auth.missing")
        return secret.strip()

    def idempotency_key(self) -> str:
        """Raises `Invalid` (request.malformed)."""
        key = self.header("idempotency-key")
        if key is None or _KEY.fullmatch(key) is None:
            raise Invalid("Idempotency-Key: required, 1 to 255 printable ASCII characters", code="request.malformed")
        return key

    def position(self) -> Position | None:
        """What a read is to wait for. Raises `Invalid` (request.malformed)."""
        text = self.header("session-streams-position")
        return None if text is None else Position.parse(text)

    def expected_sequence(self) -> int | None:
        """Raises `Invalid` (request.malformed)."""
        text = self.header("session-streams-expected-sequence")
        if text is None:
            return None
        if _NUMBER.fullmatch(text) is None:
            raise Invalid("Session-Streams-Expected-Sequence: expected a number", code="request.malformed")
        return int(text)

    def report(self, *, position_needed: bool = True) -> Report | None:
        """What a worker proves. Raises `Invalid` (request.malformed)."""
        text = self.header("session-streams-report")
        if text is None:
            return None
        match = _REPORT.fullmatch(text)
        if match is None:
            position = "expected_run_sequence" if position_needed else "expected_run_sequence, the last of which may be left out"
            raise Invalid(f"Session-Streams-Report: expected run_id;generation;native_task_id;{position}", code="request.malformed")
        if position_needed and match[4] is None:
            raise Invalid(
                "Session-Streams-Report: expected_run_sequence is missing, the fourth part of"
                " run_id;generation;native_task_id;expected_run_sequence",
                code="request.malformed",
            )
        return Report(match[1], int(match[2]), match[3], None if match[4] is None else int(match[4]))

    def query(self, kind: type[T]) -> T:
        """The query parameters, unknown ones refused. Raises `Invalid` (request.malformed or request.invalid)."""
        text: bytes = self.scope["query_string"]
        if not text:
            return _convert({}, kind)
        try:
            pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=True, encoding="utf-8", errors="strict")
        except ValueError as error:
            raise Invalid("query: not a list of name=value", code="request.malformed") from error
        if len({name for name, _ in pairs}) < len(pairs):
            raise Invalid("query: a parameter is given twice", code="request.malformed")
        found = _convert(dict(pairs), kind)
        for name, value in pairs:
            # The converter takes the word for a JSON null, which a query cannot hold.
            if value.lower() == "null" and getattr(found, name) is None:
                raise Invalid(f"query: null is no value - at `$.{name}`")
        return found

    # -- body ---------------------------------------------------------------------------------------------------------

    def require_media_type(self, allowed: tuple[str, ...]) -> str:
        """Raises `Invalid` (request.unsupported_media_type)."""
        given, _, parameters = (self.header("content-type") or "").partition(";")
        charset = parameters.strip().lower().replace('"', "")
        if given.strip().lower() not in allowed or charset not in ("", "charset=utf-8"):
            raise Invalid(f"Content-Type: expected {' or '.join(allowed)} in UTF-8", code="request.unsupported_media_type")
        if self.header("content-encoding") not in (None, "identity"):
            raise Invalid("Content-Encoding: none is supported", code="request.unsupported_media_type")
        return given.strip().lower()

    async def read_body(self, bytes_max: int | None = None) -> bytes:
        """The whole body, of at most `bytes_max` where that is less than what the gateway takes.

        Raises `Invalid`: request.too_large as soon as it is known, request.timeout after a silence or where it goes on too
        long; and `Overloaded`.
        """
        limit = min(self._limits.body_bytes_max, bytes_max or self._limits.body_bytes_max)
        self._require_announced(limit)
        chunks: list[bytes] = []
        size = 0
        deadline_s = time.monotonic() + self._limits.body_total_s
        while True:
            message = await self.receive() if WHOLE in self.scope else await self._next_message(deadline_s)
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            self._bodies.take(len(chunk))
            self._held += len(chunk)
            chunks.append(chunk)
            if not message.get("more_body", False):
                break
        self.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return self.body

    async def chunks(self, bytes_max: int, total_s: float) -> AsyncIterator[bytes]:
        """The body as it comes, within `total_s`. What is not taken yet waits with the sender. Raises as `read_body`, and where the
        sender is too slow."""
        self._require_announced(bytes_max)
        limits, size, deadline_s = self._limits, 0, time.monotonic() + total_s
        pace = Pace(limits.transfer_bytes_per_s_min, limits.transfer_start_s)
        more = True
        while more:
            with pace.waiting():
                message = await self._next_message(deadline_s)
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > bytes_max:
                raise _too_large(bytes_max)
            more = message.get("more_body", False)
            if not pace.moved(len(chunk)) and more:
                raise Invalid(f"the body came slower than {limits.transfer_bytes_per_s_min:g} bytes/s", code="request.timeout")
            if chunk:
                yield chunk

    def _require_announced(self, bytes_max: int) -> None:
        """Raises `Invalid` (request.too_large) where the headers say already that more comes."""
        length = self.header("content-length")
        if length is not None and int(length) > bytes_max:
            raise _too_large(bytes_max)

    async def _next_message(self, deadline_s: float) -> Message:
        """Raises `Invalid` (request.timeout) after a silence, and at the deadline (time.monotonic)."""
        try:
            left_s = max(0.0, deadline_s - time.monotonic())
            return await asyncio.wait_for(self.receive(), min(self._limits.body_timeout_s, left_s))
        except TimeoutError:
            raise Invalid("the body did not arrive in time", code="request.timeout") from None

    async def json(self, decoder: "msgspec.json.Decoder[T]") -> T:
        """The body as one JSON object; an empty one stands for `{}`. Raises `Invalid`."""
        if self.header("content-length") not in (None, "0") or self.header("transfer-encoding") is not None:
            self.require_media_type((JSON,))
        return parse(await self.read_body() or b"{}", decoder, self._limits.json_depth_max)

    def incoming(self) -> Incoming:
        """Once the body is read. Raises `Invalid` (request.malformed) without an Idempotency-Key."""
        return Incoming(
            principal=self.principal,
            idempotency_key=self.idempotency_key(),
            method=self.scope["method"],
            path=self.scope["path"],
            body=self.body,
        )


class Disconnected(Exception):
    """The caller went away; nobody reads an answer."""


def misfit_of_path(parameters: dict[str, str]) -> str | None:
    """What form was expected where an id of a path has not the form of its kind; None where all have it."""
    for name, value in parameters.items():
        known = fields.PATH_PARAMETERS.get(name)
        if known is not None and not is_id(value, known[0]):
            return f"expected {known[0]}_ and 32 hex digits"
        if name == "generation" and re.fullmatch(r"[1-9][0-9]{0,17}", value) is None:
            return "expected a generation: 1, 2, 3 ..."
    return None


def _convert(value: dict[str, str], kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"query: {in_words(str(error))}") from error


def _too_large(limit: int) -> Invalid:
    return Invalid(f"the body is larger than {limit} bytes", code="request.too_large")
