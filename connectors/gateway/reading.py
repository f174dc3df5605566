"""Reads events: pages by sequence, or a stream that follows the session (server-sent events).

With `lineage`, the events of a fork's ancestors come first; places are then written `sess_...:sequence`.

A stream that has nothing more to tell ends with the event `end`. Any other end is to be resumed by `Last-Event-ID`
(= sequence); it comes when the caller's key or the owner of the session goes, when the caller does not read, and when the
gateway stops. A stream holds one page, whatever the session's length. What was opened goes out only to a caller who is
still let in after the opening.
"""

import asyncio
import re
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec import Struct

from connectors.edge import fields as f
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Sequence, plain
from connectors.gateway.asgi import Send
from connectors.gateway.call import Call
from connectors.gateway.lineage import Stretch, behind, lineage_of, place_in, within, written
from connectors.gateway.opening import HELD_FROM_BYTES
from connectors.gateway.route import Route, Sendable
from connectors.gateway.service import INLINE_BYTES_MAX, Gateway
from connectors.gateway.streaming import Left, gone, send_part
from connectors.gateway.views import EventView, encode_view, opened_views, views_at_hand
from streams.errors import Invalid, StreamsError
from streams.query.pages import EventsPage

EVENT_STREAM: Final = "text/event-stream"
_STREAM_PAGE: Final = 200
_STREAM_PAGE_BYTES: Final = 1024 * 1024
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class GapView(Struct, frozen=True, forbid_unknown_fields=True):
    """Events that are in the log and cannot be shown."""

    first_sequence: int
    last_sequence: int
    reason: str


class EventsView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`next_after_sequence` asks for the next page; null where this one reaches `end_sequence`. All of it is of `session_id`; with
    `lineage`, `next_cursor` asks for the next page, of whichever session, and `end_sequence` of an ancestor is where it was forked."""

    session_id: f.SessionId
    events: list[EventView]
    gaps: list[GapView]
    next_after_sequence: Sequence | None
    next_cursor: f.PlaceInLineage | None = None
    end_sequence: Sequence


async def events(gateway: Gateway, call: Call, query: bodies.EventsQuery) -> Sendable:
    streaming = EVENT_STREAM in (call.header("accept") or "")
    resumed = _resumed(call, lineage=query.lineage)  # refused where it is malformed, of a page too
    if (query.cursor is not None and not query.lineage) or (query.lineage and query.after_sequence):
        raise Invalid("cursor: goes with lineage, and after_sequence without")
    reader = await _Reader.at(gateway, call, query, resumed if streaming else None)
    if not streaming:
        return await _one_page(gateway, call, query, reader)
    gateway.followers.take()
    try:
        page = await reader.page(_STREAM_PAGE, _STREAM_PAGE_BYTES)
    except BaseException:
        gateway.followers.give_back()
        raise
    return EventStream(gateway, call, reader, page, replay_only=query.replay_only, lineage=query.lineage)


async def _one_page(gateway: Gateway, call: Call, query: bodies.EventsQuery, reader: "_Reader") -> Answer:
    stretch = reader.stretch
    page = await reader.page(query.limit, gateway.limits.page_bytes_max)
    views = await _opened(gateway, page)
    gateway.still(call)
    next_after = page.next_after if len(views) == len(page.events) else views[-1].sequence
    end = page.end_sequence if stretch.through is None else stretch.through
    reader.passed(next_after)
    answer = plain(
        EventsView(
            session_id=stretch.session_id,
            events=views,
            gaps=[GapView(gap.first_sequence, gap.last_sequence, gap.reason) for gap in page.gaps if gap.first_sequence <= next_after],
            next_after_sequence=next_after if next_after < end else None,
            next_cursor=reader.place if query.lineage and (next_after < end or stretch.through is not None) else None,
            end_sequence=end,
        )
    )
    if len(answer.body) >= HELD_FROM_BYTES:
        call.hold(gateway.opened, len(answer.body))
    return answer


class _Reader:
    """Where somebody is who reads a session, or its whole lineage."""

    def __init__(self, gateway: Gateway, call: Call, lineage: list[Stretch], index: int, after: int) -> None:
        self._gateway, self._call = gateway, call
        self._lineage, self._index, self._after = lineage, index, after

    @classmethod
    async def at(cls, gateway: Gateway, call: Call, query: bodies.EventsQuery, resumed: str | None) -> "_Reader":
        """Behind the event that a stream is resumed from, or behind what the query names. Raises `Invalid`, and what the owner
        raises."""
        session_id = call.path["session_id"]
        if not query.lineage:
            return cls(gateway, call, [Stretch(session_id, None)], 0, query.after_sequence if resumed is None else int(resumed))
        lineage = await lineage_of(gateway, call, await gateway.session(call, session_id))
        name, text = ("cursor", query.cursor) if resumed is None else ("Last-Event-ID", resumed)
        index, after = (0, 0) if text is None else behind(lineage, *place_in(lineage, text, name))
        return cls(gateway, call, lineage, index, after)

    @property
    def stretch(self) -> Stretch:
        return self._lineage[self._index]

    @property
    def place(self) -> str:
        return written(self.stretch.session_id, self._after)

    async def page(self, limit: int, max_bytes: int, wait_ms: int = 0) -> EventsPage:
        """Raises what the owner raises. Only the session itself is waited for: an ancestor's part of it is whole."""
        stretch, call = self.stretch, self._call
        wait_ms = wait_ms if stretch.through is None else 0
        page = await self._gateway.owners.events(
            call.principal.workspace_id, stretch.session_id, subject_id=call.principal.subject_id,
            after=self._after, limit=limit, max_bytes=max_bytes, wait_ms=wait_ms,
            position=call.position() if wait_ms == 0 else None, wait_s=self._gateway.limits.position_wait_s,
        )  # fmt: skip
        call.principal.require_sight_of(stretch.session_id, page.session.workspace_id, page.session.subject_id)
        return within(page, stretch, self._after)

    def passed(self, sequence: int) -> None:
        """What comes up to this position of the stretch at hand was told."""
        self._index, self._after = behind(self._lineage, self._index, sequence)


async def _opened(gateway: Gateway, page: EventsPage) -> list[EventView]:
    """A page that is small, and whose secrets are at hand, is opened sooner than a thread would take it up."""
    if sum([len(value) for value in page.events]) <= INLINE_BYTES_MAX:
        views = views_at_hand(gateway, page.events)
        if views is not None:
            return views
    return await gateway.in_thread(partial(opened_views, gateway, page.events))


def _resumed(call: Call, *, lineage: bool) -> str | None:
    text = call.header("last-event-id")
    if text is None or re.fullmatch(r"sess_[0-9a-f]{32}:(0|[1-9][0-9]{0,17})" if lineage else r"0|[1-9][0-9]{0,17}", text) is not None:
        return text
    raise Invalid(f"Last-Event-ID: expected {'sess_...:sequence' if lineage else 'a sequence'}", code="request.malformed")


class EventStream:
    """Answers with events as they come, a comment in each silence, and an end."""

    status = 200

    def __init__(self, gateway: Gateway, call: Call, reader: _Reader, page: EventsPage, *, replay_only: bool, lineage: bool) -> None:
        """Takes over one place among the followers. `page` is the reader's first."""
        self._gateway, self._call, self._reader, self._page = gateway, call, reader, page
        self._replay_only, self._lineage = replay_only, lineage
        self._until: int | None = None

    async def send(self, send: Send) -> None:
        headers = [
            (b"content-type", f"{EVENT_STREAM}; charset=utf-8".encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(gone(self._call.receive)), asyncio.create_task(self._gateway.stopping.wait())]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            with suppress(Left):
                await self._follow(send, ends)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._gateway.followers.give_back()
            for task in ends:
                task.cancel()

    async def _follow(self, send: Send, ends: list[asyncio.Task[Any]]) -> None:
        gateway, call, reader, page = self._gateway, self._call, self._reader, self._page

        async def write(data: bytes) -> None:
            with gateway.holding(len(data)):
                await send_part(send, data, gateway.limits.stall_s)

        await write(b"retry: 1000\n\n")
        while True:
            try:
                values = page.events
                while True:
                    chunk, taken = await gateway.in_thread(partial(_chunk, gateway, values, lineage=self._lineage))
                    gateway.still(call)
                    await write(chunk or b": still here\n\n")
                    values = values[taken:]
                    if not values:
                        break
                over = self._is_over(page) if reader.stretch.through is None else None
                if over is not None:
                    # Told apart from an end that is to be resumed.
                    await write(b'event: end\ndata: {"reason":"%s"}\n\n' % over)
                    return
                reader.passed(page.next_after)
                asked = asyncio.create_task(reader.page(_STREAM_PAGE, _STREAM_PAGE_BYTES, int(gateway.limits.heartbeat_s * 1000)))
                await asyncio.wait([asked, *ends], return_when=asyncio.FIRST_COMPLETED)
                if any(task.done() for task in ends):
                    asked.cancel()
                    return
                page = await asked
            except StreamsError as error:
                # The caller resumes behind the last event that it saw, and is then told what is wrong.
                await write(f": {error.code}\n\n".encode())
                return

    def _is_over(self, page: EventsPage) -> bytes | None:
        if self._replay_only and self._until is None:
            self._until = page.end_sequence
        if page.session.status == "closed" and page.next_after >= page.end_sequence:
            return b"closed"
        return b"replayed" if self._until is not None and page.next_after >= self._until else None


def _chunk(gateway: Gateway, values: tuple[bytes, ...], *, lineage: bool) -> tuple[bytes, int]:
    """The first of these events as they go out, and how many they are."""
    views = opened_views(gateway, values)
    parts: list[bytes] = []
    for view in views:
        # White space between the tokens of content may hold line ends, which would end the field.
        data = b"\ndata: ".join(_LINE_END.split(encode_view(view)))
        place = written(view.session_id, view.sequence) if lineage else str(view.sequence)
        parts.append(b"id: %s\nevent: %s\ndata: %s\n\n" % (place.encode(), view.type.encode(), data))
    return b"".join(parts), len(views)


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/events", name="read_events",
        summary="A page of events, or (Accept: text/event-stream) a stream that follows", handler=events,
        scope="sessions:read", query=bodies.EventsQuery, answer=EventsView, last_event_id=True,
        other_media_types={EVENT_STREAM: "id: sequence, or with lineage sess_...:sequence; event: type; data: an EventView"},
    ),
)  # fmt: skip
