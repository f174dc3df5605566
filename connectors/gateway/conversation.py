"""The history of a session for the worker that holds an attempt of its Run: every event that carries content, ancestors first;
but for capsules, which are no part of a conversation.

Lines (NDJSON), in the order of positions:

    {"kind":"event", ...an EventView}
    {"kind":"gap","session_id":...,"first_sequence":...,"last_sequence":...,"reason":...}      content between these cannot be read
    {"kind":"end","through_sequence":...,"complete":...}                                       the last line of a whole answer

- The end is where the session stood when it was asked, and is kept to though the session grows.
- What breaks off has no end line, and its connection is cut: it is never taken for whole.
- Held are one page, sealed, and one piece of lines; a caller who does not read is waited for, and then given up.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from msgspec import UNSET, Struct

from connectors.gateway import bodies
from connectors.gateway.answers import NDJSON
from connectors.gateway.asgi import Send
from connectors.gateway.call import Call
from connectors.gateway.changes import report_of
from connectors.gateway.holders import require_holder
from connectors.gateway.lineage import Stretch, lineage_of, within
from connectors.gateway.problems import Lacking
from connectors.gateway.route import Route, Sendable
from connectors.gateway.service import Gateway
from connectors.gateway.streaming import Left, gone, send_part
from connectors.gateway.views import EventView, encode_view, opened_views
from streams.errors import Retriable, StreamsError
from streams.log.record import decode_event
from streams.query.pages import EventsPage, Gap
from streams.session import refusals
from streams.session.events import NONE, OMITTED, KeyReference
from streams.session.history import worded
from streams.session.outcomes import Unavailable
from streams.session.words import CONTENT_OMITTED

_PAGE: Final = 200
_PAGE_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_CAPSULES: Final = "capsule."
_PAUSE_S: Final = 0.25
_NAMED_MAX: Final = 100
"""Ranges that a refusal names."""
_FLAT: Final = bytes.maketrans(b"\r\n", b"  ")
"""Line ends within JSON are white space between its tokens."""
_log = structlog.get_logger(__name__)


class GapLine(Struct, tag_field="kind", tag="gap"):
    session_id: str
    first_sequence: int
    last_sequence: int
    reason: str


class EndLine(Struct, tag_field="kind", tag="end"):
    through_sequence: int
    complete: bool


_encode = msgspec.json.Encoder().encode


async def conversation(gateway: Gateway, call: Call, query: bodies.ConversationQuery) -> Sendable:
    report = report_of(call, position_needed=False)
    await require_holder(gateway, call, call.path["session_id"], report)
    gateway.conversations.take()
    try:
        stream = ConversationStream(gateway, call, query)
        await stream.begin()
    except BaseException:
        gateway.conversations.give_back()
        raise
    return stream


class ConversationStream:
    """Answers with the lines of one history."""

    status = 200

    def __init__(self, gateway: Gateway, call: Call, query: bodies.ConversationQuery) -> None:
        """Takes over one place among the conversations."""
        self._gateway, self._call, self._query = gateway, call, query
        self._session_id = call.path["session_id"]
        self._stretches: list[Stretch] = []
        self._end = 0
        self._ends: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        """Everything that can be refused before the first line. Raises what a read of events raises, and `Lacking`."""
        # The whole session as it stands now: a history that is short because a table lags would look whole all the same.
        page = await self._page(self._session_id, self._query.after_sequence, at_end=True)
        self._end = page.end_sequence
        own = Stretch(self._session_id, self._end)
        with_ancestors = self._query.lineage and self._query.after_sequence == 0
        self._stretches = [*(await lineage_of(self._gateway, self._call, page.session))[:-1], own] if with_ancestors else [own]
        if self._query.require_complete:
            await self._require_complete()

    async def send(self, send: Send) -> None:
        headers = [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-store")]
        self._ends = [asyncio.create_task(gone(self._call.receive)), asyncio.create_task(self._gateway.stopping.wait())]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            with suppress(Left):
                await self._lines(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except StreamsError as error:
            _log.warning("conversation_cut", session_id=self._session_id, code=error.code)
        finally:
            self._gateway.conversations.give_back()
            for task in self._ends:
                task.cancel()

    async def _lines(self, send: Send) -> None:
        gateway, lines = self._gateway, _Lines()
        async for session_id, page in self._pages():
            values, gaps = page.events, page.gaps
            while values or gaps:
                views = await gateway.in_thread(partial(opened_views, gateway, values))
                values = values[len(views) :]
                here = [gap for gap in gaps if not values or gap.first_sequence <= views[-1].sequence]
                gaps = gaps[len(here) :]
                gateway.still(self._call)
                for piece in lines.pieces(session_id, here, views):
                    await self._write(send, piece)
        for piece in lines.ended(self._end):
            await self._write(send, piece)

    async def _write(self, send: Send, piece: bytes) -> None:
        with self._gateway.holding(len(piece)):
            await send_part(send, piece, self._gateway.limits.stall_s)
        if self._ends[0].done():
            raise Left

    async def _pages(self) -> AsyncIterator[tuple[str, EventsPage]]:
        """What lies between the bounds of each stretch, and no more."""
        for stretch in self._stretches:
            after, until = self._query.after_sequence if stretch.session_id == self._session_id else 0, stretch.through or 0
            while after < until:
                page = within(await self._following(stretch.session_id, after), stretch, after)
                yield stretch.session_id, page
                after = page.next_after

    async def _following(self, session_id: str, after: int) -> EventsPage:
        """The next page, from whoever owns the session by then. Raises `Retriable` once the patience for that is over."""
        deadline_s = time.monotonic() + self._gateway.limits.export_patience_s
        while True:
            if self._gateway.stopping.is_set():
                raise Retriable("the gateway stops", code="service.unavailable")
            try:
                return await self._page(session_id, after)
            except Retriable:
                if time.monotonic() + _PAUSE_S >= deadline_s:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _page(self, session_id: str, after: int, *, at_end: bool = False) -> EventsPage:
        principal, gateway = self._call.principal, self._gateway
        page = await gateway.owners.events(
            principal.workspace_id, session_id, subject_id=principal.subject_id, after=after, limit=_PAGE, max_bytes=_PAGE_BYTES,
            position=self._call.position() if at_end else None, wait_s=gateway.limits.position_wait_s, at_end=at_end,
        )  # fmt: skip
        principal.require_sight_of(session_id, page.session.workspace_id, page.session.subject_id)
        return page

    async def _require_complete(self) -> None:
        """Looks whether all content opens, without opening it. Raises `Lacking`."""
        lacking: list[GapLine] = []
        async for session_id, page in self._pages():
            found = await self._gateway.in_thread(partial(_closed, self._gateway, session_id, page))
            lacking = _merged([*lacking, *found])
        if lacking:
            missing = worded([_unavailable(each, self._session_id) for each in lacking[:_NAMED_MAX]])
            raise Lacking(f"first unavailable: {missing[0]}", code=refusals.HISTORY_UNAVAILABLE, missing=missing)


class _Lines:
    """Puts the lines of a history together; gaps that follow one another are one line, whatever the pages."""

    def __init__(self) -> None:
        self._gap: GapLine | None = None
        self._complete = True

    def pieces(self, session_id: str, found: Sequence[Gap], views: list[EventView]) -> Iterator[bytes]:
        gaps = [GapLine(session_id, gap.first_sequence, gap.last_sequence, gap.reason) for gap in found]
        made = bytearray()
        for view in views:
            while gaps and gaps[0].first_sequence <= view.sequence:
                made += self._lacking(gaps.pop(0))
            if view.gap is not None:
                made += self._lacking(GapLine(session_id, view.sequence, view.sequence, f"content.{view.gap.reason}"))
            elif view.content is not UNSET and not view.type.startswith(_CAPSULES):
                made += self._gap_line()
                made += b'{"kind":"event",' + encode_view(view).translate(_FLAT)[1:] + b"\n"
            if len(made) >= _PIECE_BYTES:
                yield bytes(made)
                made.clear()
        for gap in gaps:
            made += self._lacking(gap)
        if made:
            yield bytes(made)

    def ended(self, through_sequence: int) -> Iterator[bytes]:
        yield self._gap_line() + _encode(EndLine(through_sequence, self._complete)) + b"\n"

    def _lacking(self, gap: GapLine) -> bytes:
        """The line of the gap before, where this one is another."""
        self._complete = False
        before = [] if self._gap is None else [self._gap]
        merged = _merged([*before, gap])
        self._gap = merged[-1]
        return _encode(merged[0]) + b"\n" if len(merged) > 1 else b""

    def _gap_line(self) -> bytes:
        gap, self._gap = self._gap, None
        return b"" if gap is None else _encode(gap) + b"\n"


def _closed(gateway: Gateway, session_id: str, page: EventsPage) -> list[GapLine]:
    """What of a page cannot be read. Blocks on the keyring. Raises `KeyringUnavailable`."""
    events = [decode_event(value) for value in page.events]
    references: set[KeyReference] = {event.content.key_reference for event in events if event.content.key_reference is not None}
    codes = gateway.sealer.why_closed(events[0].workspace_id, references) if events else {}
    found = [GapLine(session_id, gap.first_sequence, gap.last_sequence, gap.reason) for gap in page.gaps]
    for event in events:
        content = event.content
        if content.state == NONE:
            continue
        code = CONTENT_OMITTED if content.state == OMITTED else None if content.key_reference is None else codes.get(content.key_reference)
        if code is not None:
            found.append(GapLine(session_id, event.sequence, event.sequence, code))
    return sorted(found, key=lambda each: each.first_sequence)


def _merged(gaps: list[GapLine]) -> list[GapLine]:
    """Neighbours of one session and one reason as one."""
    found: list[GapLine] = []
    for gap in gaps:
        last = found[-1] if found else None
        if last is not None and (last.session_id, last.reason) == (gap.session_id, gap.reason):
            found[-1] = GapLine(gap.session_id, last.first_sequence, max(last.last_sequence, gap.last_sequence), gap.reason)
        else:
            found.append(gap)
    return found


def _unavailable(gap: GapLine, session_id: str) -> Unavailable:
    return Unavailable(gap.first_sequence, gap.last_sequence, gap.reason, None if gap.session_id == session_id else gap.session_id)


_SAYS: Final = (
    "One JSON object a line, in the order of positions, ancestors first. "
    '{"kind":"event", ...} is an event as EventView describes it, of each event that carries content and of no other. '
    '{"kind":"gap","session_id","first_sequence","last_sequence","reason"}: content between these positions cannot be read, since it is '
    "content.expired, content.erased, content.omitted or unreadable. "
    '{"kind":"end","through_sequence","complete"} is the last line; without it the answer broke off.'
)
ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/runs/{run_id}/attempts/{generation}/conversation", name="read_conversation",
        summary="The history of the session, for the worker that holds the attempt", handler=conversation, scope="runs:claim",
        query=bodies.ConversationQuery, media_type=NDJSON, media_type_says=_SAYS, report="required",
        report_position=False,
        refusals=("runtime.attempt_fenced", "runtime.session_closed", "runtime.session_history_unavailable"),
    ),
)  # fmt: skip
