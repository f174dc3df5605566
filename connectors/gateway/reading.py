"""Reads events: pages by sequence, or a stream that follows the session (server-sent events).

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

from connectors.gateway import bodies
from connectors.gateway.answers import Sequence, plain
from connectors.gateway.asgi import Send
from connectors.gateway.call import Call
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
    """`next_after_sequence` asks for the next page; null where this one reaches `end_sequence`."""

    events: list[EventView]
    gaps: list[GapView]
    next_after_sequence: Sequence | None
    end_sequence: Sequence


async def events(gateway: Gateway, call: Call, query: bodies.EventsQuery) -> Sendable:
    streaming = EVENT_STREAM in (call.header("accept") or "")
    resumed_after = _resume_after(call, query.after_sequence)  # refused where it is malformed, of a page too
    after = resumed_after if streaming else query.after_sequence
    if not streaming:
        page = await _page(gateway, call, after, query.limit, gateway.limits.page_bytes_max)
        views = await _opened(gateway, page)
        gateway.still(call)
        next_after = page.next_after if len(views) == len(page.events) else views[-1].sequence
        return plain(
            EventsView(
                events=views,
                gaps=[GapView(gap.first_sequence, gap.last_sequence, gap.reason) for gap in page.gaps if gap.first_sequence <= next_after],
                next_after_sequence=next_after if next_after < page.end_sequence else None,
                end_sequence=page.end_sequence,
            )
        )
    gateway.followers.take()
    try:
        page = await _page(gateway, call, after, _STREAM_PAGE, _STREAM_PAGE_BYTES)
    except BaseException:
        gateway.followers.give_back()
        raise
    return EventStream(gateway, call, page, replay_only=query.replay_only)


async def _opened(gateway: Gateway, page: EventsPage) -> list[EventView]:
    """A page that is small, and whose secrets are at hand, is opened sooner than a thread would take it up."""
    if sum([len(value) for value in page.events]) <= INLINE_BYTES_MAX:
        views = views_at_hand(gateway, page.events)
        if views is not None:
            return views
    return await gateway.in_thread(partial(opened_views, gateway, page.events))


def _resume_after(call: Call, after: int) -> int:
    text = call.header("last-event-id")
    if text is None:
        return after
    if re.fullmatch(r"0|[1-9][0-9]{0,17}", text) is None:
        raise Invalid("Last-Event-ID: expected a sequence", code="request.malformed")
    return int(text)


async def _page(gateway: Gateway, call: Call, after: int, limit: int, max_bytes: int, wait_ms: int = 0) -> EventsPage:
    session_id = call.path["session_id"]
    page = await gateway.owners.events(
        call.principal.workspace_id, session_id, subject_id=call.principal.subject_id,
        after=after, limit=limit, max_bytes=max_bytes, wait_ms=wait_ms,
        position=call.position() if wait_ms == 0 else None, wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip
    call.principal.require_sight_of(session_id, page.session.workspace_id, page.session.subject_id)
    return page


class EventStream:
    """Answers with events as they come, a comment in each silence, and an end."""

    status = 200

    def __init__(self, gateway: Gateway, call: Call, page: EventsPage, *, replay_only: bool) -> None:
        """Takes over one place among the followers."""
        self._gateway, self._call, self._page = gateway, call, page
        self._until = page.end_sequence if replay_only else None

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
        gateway, call, page = self._gateway, self._call, self._page

        async def write(data: bytes) -> None:
            await send_part(send, data, gateway.limits.stall_s)

        await write(b"retry: 1000\n\n")
        while True:
            try:
                values = page.events
                while True:
                    chunk, taken = await gateway.in_thread(partial(_chunk, gateway, values))
                    gateway.still(call)
                    await write(chunk or b": still here\n\n")
                    values = values[taken:]
                    if not values:
                        break
                over = self._is_over(page)
                if over is not None:
                    # Told apart from an end that is to be resumed.
                    await write(b'event: end\ndata: {"reason":"%s"}\n\n' % over)
                    return
                wait_ms = int(gateway.limits.heartbeat_s * 1000)
                asked = asyncio.create_task(_page(gateway, call, page.next_after, _STREAM_PAGE, _STREAM_PAGE_BYTES, wait_ms))
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
        if page.session.status == "closed" and page.next_after >= page.end_sequence:
            return b"closed"
        return b"replayed" if self._until is not None and page.next_after >= self._until else None


def _chunk(gateway: Gateway, values: tuple[bytes, ...]) -> tuple[bytes, int]:
    """The first of these events as they go out, and how many they are."""
    views = opened_views(gateway, values)
    parts: list[bytes] = []
    for view in views:
        # White space between the tokens of content may hold line ends, which would end the field.
        data = b"\ndata: ".join(_LINE_END.split(encode_view(view)))
        parts.append(b"id: %d\nevent: %s\ndata: %s\n\n" % (view.sequence, view.type.encode(), data))
    return b"".join(parts), len(views)


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/events", name="read_events",
        summary="A page of events, or (Accept: text/event-stream) a stream that follows", handler=events,
        scope="sessions:read", query=bodies.EventsQuery, answer=EventsView, last_event_id=True,
        other_media_types={EVENT_STREAM: "id: sequence, event: type, data: an EventView"},
    ),
)  # fmt: skip
