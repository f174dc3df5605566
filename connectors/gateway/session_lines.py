"""The lines of one session for whoever exports it or makes a bundle of it, as `streams.exports.lines` has them.

- The end is named first and kept to, though the session grows. What cannot go on says so in a line.
- Where the owner of the session goes, the next one is asked, for a while.
- Held are one page, sealed, and one piece of lines; a caller who does not read is waited for, and then given up. Content
  is opened piece by piece, under the keys and the clock of that moment.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from connectors.gateway import problems
from connectors.gateway.asgi import Send
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from connectors.gateway.streaming import Left, gone, send_part
from streams.errors import ContentUnavailable, Invalid, ProjectionBehind, RecordUnreadable, Retriable, StreamsError
from streams.exports import lines
from streams.log.position import Position
from streams.log.record import decode_event_raw
from streams.query.pages import EventsPage, Gap
from streams.query.queries import MISSING
from streams.session.events import Event

_PAGE: Final = 200
_PAGE_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_PIECE: Final = 64
"""Positions that are opened under one look at the keyring."""
_PAUSE_S: Final = 0.25

_log = structlog.get_logger(__name__)

Write = Callable[[bytes], Awaitable[None]]
"""Sends whole lines. Raises `Left`."""


class Ends(NamedTuple):
    """What ends an answer that takes a while: each is done once that has happened."""

    caller_gone: asyncio.Task[Any]
    stopping: asyncio.Task[Any]


class _Position(NamedTuple):
    """A position as the owner has it: the event with the bytes of its attributes, or why there is none."""

    sequence: int
    event: Event | None
    attributes: bytes | None = None
    reason: str = MISSING


class _Piece(NamedTuple):
    """Lines that go out together; `positions` are in them. `last_hash` is the last one's."""

    data: bytes
    positions: int
    last_hash: bytes | None


def require_going_on(gateway: Gateway, call: Call, ends: Ends) -> None:
    """Raises `Left` where the caller is, and what ends an answer before it is whole."""
    if ends.caller_gone.done():
        raise Left
    if gateway.stopping.is_set():
        raise Retriable("the gateway stops", code="service.unavailable")
    gateway.still(call)


async def send_lines(
    gateway: Gateway, call: Call, send: Send, told: Callable[[Write, Ends], Awaitable[None]], name: str, media_type: str
) -> None:
    """Answers with what `told` writes, as a file of that name, and gives the place among the exports back."""
    headers = [
        (b"content-type", media_type.encode()),
        (b"cache-control", b"no-store"),
        (b"content-disposition", f'attachment; filename="{name}"'.encode()),
    ]
    ends = Ends(asyncio.create_task(gone(call.receive)), asyncio.create_task(gateway.stopping.wait()))

    async def write(data: bytes) -> None:
        with gateway.holding(len(data)):
            await send_part(send, data, gateway.limits.stall_s)
        if ends.caller_gone.done():
            raise Left

    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with suppress(Left):
            await told(write, ends)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        gateway.exports.give_back()
        for task in ends:
            task.cancel()


class SessionLines:
    """The export of one session up to a position; 0: where it stands when this begins."""

    def __init__(self, gateway: Gateway, call: Call, session_id: str, from_sequence: int, end_sequence: int) -> None:
        self._gateway, self._call, self._session_id = gateway, call, session_id
        self._from = self._next = from_sequence
        self._end = end_sequence
        self._last_hash: bytes | None = None
        self._first: EventsPage | None = None
        self._header_is_out = False

    async def begin(self, position: Position | None) -> None:
        """Reads the first page, and by it knows what there is."""
        # The whole session as it stands now: an export that is short because a table lags would verify all the same.
        page = await self._page(self._next - 1, _PAGE, position, at_end=True)
        self._end = self._end or page.end_sequence
        if self._end > page.end_sequence:
            raise Invalid(f"end_sequence: the session stands at {page.end_sequence}")
        if self._next > self._end + 1:
            raise Invalid(f"from_sequence: at most {self._end + 1}, behind the end")
        if self._next > self._end:
            # Only the trailer is left, which holds the last position's hash.
            page = await self._page(self._end - 1, 1)
            last = _positions(page, self._end - 1, self._end)[0].event
            self._last_hash = None if last is None else last.hash
        self._first = page

    async def send(self, write: Write, ends: Ends) -> bool:
        """All its lines; False where it could not go on, and said so in the last one. Raises `Left`."""
        await write(lines.header_line(self._session_id, from_sequence=self._from, end_sequence=self._end))
        self._header_is_out = True
        try:
            await self._send_positions(write, ends)
        except StreamsError as error:
            _log.warning("export_broke_off", session_id=self._session_id, code=error.code, next_sequence=self._next)
            await write(self.broken_off(error))
            return False
        await write(lines.trailer_line(self._end, self._last_hash))
        return True

    def broken_off(self, error: StreamsError) -> bytes:
        """The line that says why nothing follows."""
        status = problems.status_of(error.code)
        return lines.error_line(error.code if status != 500 else "service.internal", status=status, next_sequence=self._next)

    async def _send_positions(self, write: Write, ends: Ends) -> None:
        page, self._first = self._first, None
        while self._next <= self._end:
            if page is None:
                page = await self._following(ends)
            positions = await self._gateway.in_thread(partial(_positions, page, self._next - 1, self._end))
            page = None
            while positions:
                piece = await self._gateway.in_thread(partial(_piece, self._gateway, positions))
                positions = positions[piece.positions :]
                self._gateway.still(self._call)
                await write(piece.data)
                self._next, self._last_hash = self._next + piece.positions, piece.last_hash

    async def _following(self, ends: Ends) -> EventsPage:
        """The next page, from whoever owns the session by then. Raises `Left`, and what ends an export."""
        gateway = self._gateway
        deadline_s = time.monotonic() + gateway.limits.export_patience_s
        while True:
            require_going_on(gateway, self._call, ends)
            asked = asyncio.create_task(self._page(self._next - 1, _PAGE))
            await asyncio.wait([asked, *ends], return_when=asyncio.FIRST_COMPLETED)
            if ends.caller_gone.done():
                asked.cancel()
                raise Left
            if not asked.done():
                asked.cancel()
                continue
            try:
                return asked.result()
            except Retriable:
                if time.monotonic() + _PAUSE_S >= deadline_s:
                    raise
            await asyncio.wait(ends, timeout=_PAUSE_S, return_when=asyncio.FIRST_COMPLETED)

    async def _page(self, after: int, limit: int, position: Position | None = None, *, at_end: bool = False) -> EventsPage:
        principal, gateway = self._call.principal, self._gateway
        page = await gateway.owners.events(
            principal.workspace_id, self._session_id, subject_id=principal.subject_id, after=after, limit=limit,
            max_bytes=_PAGE_BYTES, position=position, wait_s=gateway.limits.position_wait_s, at_end=at_end,
        )  # fmt: skip
        principal.require_sight_of(self._session_id, page.session.workspace_id, page.session.subject_id)
        if page.end_sequence < self._end and self._header_is_out:
            raise ProjectionBehind(f"{self._session_id} is told at {page.end_sequence}, and stood at {self._end}", retry_after_s=1)
        return page


def _positions(page: EventsPage, after: int, end: int) -> list[_Position]:
    """Every position that a page tells of, from behind `after` to `end` at most; what it lacks is told with the reason."""
    found: list[_Position] = []

    def lacking(until: int) -> None:
        found.extend(_Position(sequence, None, reason=_reason(page.gaps, sequence)) for sequence in range(after + 1 + len(found), until))

    for value in page.events:
        try:
            event, attributes = decode_event_raw(value)
        except RecordUnreadable as error:
            position = _Position(after + 1 + len(found), None, reason=error.code)
        else:
            lacking(min(event.sequence, end + 1))
            position = _Position(event.sequence, event, attributes)
        if position.sequence > end:
            return found
        found.append(position)
    if not page.events:
        # The owner has nothing more up to the session's end.
        lacking(end + 1)
    return found


def _reason(gaps: Sequence[Gap], sequence: int) -> str:
    return next((gap.reason for gap in gaps if gap.first_sequence <= sequence <= gap.last_sequence), MISSING)


def _piece(gateway: Gateway, positions: Sequence[_Position]) -> _Piece:
    """The lines of the first of these positions, as many as make a piece. Blocks on the keyring. Raises `KeyringUnavailable`."""
    taken = positions[:_PIECE]
    opened = gateway.sealer.open_each([position.event for position in taken if position.event is not None])
    made: list[bytes] = []
    size, last_hash = 0, None
    for position in taken:
        if position.event is None:
            line, last_hash = lines.missing_line(position.sequence, position.reason), None
        else:
            content = next(opened)
            if isinstance(content, ContentUnavailable):
                gateway.metrics.gaps.labels(content.code.removeprefix("content.")).inc()
            line, last_hash = lines.position_line(position.event, position.attributes, content), position.event.hash
        made.append(line)
        size += len(line)
        if size >= _PIECE_BYTES:
            break
    return _Piece(b"".join(made), len(made), last_hash)
