"""Sessions and events by way of the projectors that own them.

A listing asks every owner for its own partitions and merges; each answers for its part, or the listing fails whole.
"""

import asyncio
import time

import msgspec

from connectors.owner.asker import Asker, FindsOwners
from connectors.owner.messages import EventsQuestion, SessionQuestion, SessionsQuestion
from streams.errors import Invalid
from streams.log.owners import GroupOwners
from streams.log.position import Position
from streams.log.topics import Topics
from streams.projections.projector import GROUP
from streams.projections.sessions import SessionRow
from streams.query.pages import EventsPage, ListingCursor, SessionsPage
from streams.settings import Settings

_row = msgspec.msgpack.Decoder(SessionRow).decode
_events_page = msgspec.msgpack.Decoder(EventsPage).decode
_sessions_page = msgspec.msgpack.Decoder(SessionsPage).decode


class ProjectorOwners(Asker):
    """Belongs to one event loop. All reads raise `Retriable`s, `NotFound` and `Invalid`."""

    def __init__(self, settings: Settings, token: str, finder: FindsOwners | None = None) -> None:
        super().__init__(settings.partitions, token, finder or GroupOwners(settings, GROUP, Topics(settings.topic_prefix).events))

    async def session(
        self,
        workspace_id: str,
        session_id: str,
        *,
        subject_id: str | None = None,
        position: Position | None = None,
        wait_s: float = 5.0,
    ) -> SessionRow:
        """`subject_id`: the only one whose sessions are there for who asks; None: all are."""
        deadline_s = time.monotonic() + wait_s
        partition = self._partition(session_id)
        here = await self._passed_elsewhere(position, partition, deadline_s)

        def question(left_s: float) -> SessionQuestion:
            return SessionQuestion(workspace_id, session_id, here, left_s, subject_id)

        return await self._ask(partition, "session", question, _row, deadline_s)

    async def events(
        self,
        workspace_id: str,
        session_id: str,
        *,
        subject_id: str | None = None,
        after: int,
        limit: int,
        max_bytes: int,
        wait_ms: int = 0,
        position: Position | None = None,
        wait_s: float = 5.0,
        at_end: bool = False,
    ) -> EventsPage:
        """Waits up to `wait_ms` for a first event above `after`; an empty page says that there was none. Else as `session`.

        `at_end`: from a table that holds all that the log holds now.
        """
        deadline_s = time.monotonic() + wait_s
        partition = self._partition(session_id)
        here = await self._passed_elsewhere(position, partition, deadline_s)
        follow_s = wait_ms / 1000

        def question(left_s: float) -> EventsQuestion:
            return EventsQuestion(workspace_id, session_id, after, limit, max_bytes, follow_s, here, left_s, subject_id, at_end)

        return await self._ask(partition, "events", question, _events_page, deadline_s, more_s=follow_s)

    async def sessions(
        self,
        workspace_id: str,
        *,
        subject_id: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        position: Position | None = None,
        wait_s: float = 5.0,
    ) -> SessionsPage:
        """Newest first, from all partitions."""
        deadline_s = time.monotonic() + wait_s
        text = None if position is None else str(position)

        async def part(partition: int) -> SessionsPage:
            def question(left_s: float) -> SessionsQuestion:
                return SessionsQuestion(workspace_id, subject_id, (partition,), cursor, limit, text, left_s)

            return await self._ask(partition, "sessions", question, _sessions_page, deadline_s)

        if position is not None and position.partition >= self._partitions:
            raise Invalid(f"position {position}: no such partition", code="request.malformed")
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part(partition)) for partition in range(self._partitions)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        pages = [task.result() for task in tasks]
        rows = sorted((row for page in pages for row in page.sessions), key=_place, reverse=True)
        more = len(rows) > limit or any(page.cursor for page in pages)
        return SessionsPage(tuple(rows[:limit]), str(_place(rows[limit - 1])) if more and len(rows) >= limit else None)


def _place(row: SessionRow) -> ListingCursor:
    return ListingCursor(row.created_at, row.session_id)
