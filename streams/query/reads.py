"""What the owner of a partition answers, waiting included: read your own writes, and no false "not found".

"Not found" is said only by a table that has everything which was in the log when the request came: a session that
another gateway created a moment ago is there.
"""

import asyncio
import time

from streams.errors import NotFound
from streams.log.position import Position
from streams.projections.sessions import SessionRow
from streams.query.freshness import Freshness
from streams.query.pages import EventsPage, ListingCursor, SessionsPage
from streams.query.queries import ReadModel


class Reads:
    """Every read takes `wait_s`, its budget for waiting; raises `ProjectionBehind` at its end. In the serving loop only."""

    def __init__(self, model: ReadModel, freshness: Freshness) -> None:
        self._model = model
        self._freshness = freshness

    async def session(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, position: Position | None = None, wait_s: float
    ) -> SessionRow:
        """Raises `NotFound`, `Invalid` (position), `NotOwner`, `ProjectionBehind`, `Overloaded`, `BrokerUnavailable`."""
        deadline_s = time.monotonic() + wait_s
        partition = self._model.partition(session_id)
        await self._freshness.ready(partition, position, deadline_s)
        try:
            return self._model.session(workspace_id, session_id, subject_id)
        except NotFound:
            await self._freshness.at_end(partition, deadline_s)
            return self._model.session(workspace_id, session_id, subject_id)

    async def events(
        self,
        workspace_id: str,
        session_id: str,
        *,
        subject_id: str | None = None,
        after: int,
        limit: int,
        max_bytes: int,
        follow_s: float = 0.0,
        position: Position | None = None,
        wait_s: float,
        at_end: bool = False,
    ) -> EventsPage:
        """One page; with `at_end`, only once the table holds all that the log held when this was asked.

        Where there is nothing above `after` yet, waits up to `follow_s` for it, then answers an empty page.
        """
        deadline_s = time.monotonic() + wait_s
        partition = self._model.partition(session_id)
        await self._freshness.ready(partition, position, deadline_s)
        if at_end:
            await self._freshness.at_end(partition, deadline_s)

        def page() -> EventsPage:
            return self._model.events(workspace_id, session_id, subject_id, after=after, limit=limit, max_bytes=max_bytes)

        try:
            found = page()
        except NotFound:
            await self._freshness.at_end(partition, deadline_s)
            found = page()
        if found.events or follow_s <= 0:
            return found
        with self._freshness.next_event(partition, session_id) as new:
            found = page()
            if not found.events:
                await asyncio.wait([new], timeout=follow_s)
                found = page()
        return found

    async def sessions(
        self,
        workspace_id: str,
        subject_id: str | None,
        *,
        partitions: tuple[int, ...],
        cursor: str | None,
        limit: int,
        position: Position | None = None,
        wait_s: float,
    ) -> SessionsPage:
        """Waits for `position` where its partition is among `partitions`."""
        deadline_s = time.monotonic() + wait_s
        for partition in partitions:
            here = position is not None and position.partition == partition
            await self._freshness.ready(partition, position if here else None, deadline_s)
        place = None if cursor is None else ListingCursor.parse(cursor)
        return self._model.sessions(workspace_id, subject_id, partitions=partitions, cursor=place, limit=limit)
