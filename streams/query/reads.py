"""What the owner of a partition answers, waiting included: read your own writes, and no false "not found".

"Not found" is said only by a table that has everything which was in the log when the request came: a session that
another gateway created a moment ago is there.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from streams.errors import NotFound, Overloaded
from streams.log.position import Position
from streams.projections.checkpoints import CheckpointRow
from streams.projections.runs import LanePlace, RunRow, lane_name
from streams.projections.sessions import SessionRow
from streams.query.freshness import Freshness
from streams.query.pages import CheckpointsPage, EventsPage, ListingCursor, SessionsPage, UnsettledPage
from streams.query.queries import ReadModel

T = TypeVar("T")


class Reads:
    """Every read takes `wait_s`, its budget for waiting; raises `ProjectionBehind` at its end. In the serving loop only."""

    def __init__(self, model: ReadModel, freshness: Freshness) -> None:
        self._model = model
        self._freshness = freshness

    async def session(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, position: Position | None = None, wait_s: float
    ) -> SessionRow:
        """Raises `NotFound`, `Invalid` (position), `NotOwner`, `ProjectionBehind`, `Overloaded`, `BrokerUnavailable`."""
        return await self._read(session_id, position, wait_s, lambda: self._model.session(workspace_id, session_id, subject_id))

    async def _read(self, session_id: str, position: Position | None, wait_s: float, read: Callable[[], T]) -> T:
        """Reads what belongs to a session, and once more from a table at the log's end before it is said to be missing."""
        deadline_s = time.monotonic() + wait_s
        partition = self._model.partition(session_id)
        await self._freshness.ready(partition, position, deadline_s)
        try:
            return read()
        except NotFound:
            await self._freshness.at_end(partition, deadline_s)
            return read()

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

    async def event_named(
        self, workspace_id: str, session_id: str, event_id: str, *,
        subject_id: str | None = None, position: Position | None = None, wait_s: float,
    ) -> int:  # fmt: skip
        """The sequence of an event, looked for from the session's end backwards, a slice at a time, between which others are answered.

        Raises as `session`; `Overloaded` where the session is too long to be looked through within `wait_s`.
        """
        deadline_s = time.monotonic() + wait_s

        def look(through: int | None = None) -> tuple[int | None, int]:
            return self._model.named_event(workspace_id, session_id, event_id, subject_id, through=through)

        found, left = await self._read(session_id, position, wait_s, look)
        if found is None:
            # What the log holds by now may be what is looked for.
            await self._freshness.at_end(self._model.partition(session_id), deadline_s)
            found, left = look()
        while found is None and left:
            if time.monotonic() > deadline_s:
                raise Overloaded(f"session {session_id} is too long to look for {event_id} without its sequence", retry_after_s=1)
            await asyncio.sleep(0)
            found, left = look(left)
        if found is None:
            raise NotFound(f"session {session_id} has no event {event_id}")
        return found

    async def checkpoints(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, cursor: str | None, limit: int,
        position: Position | None = None, wait_s: float,
    ) -> CheckpointsPage:  # fmt: skip
        """Newest first. Raises as `session`."""

        def page() -> CheckpointsPage:
            return self._model.checkpoints(workspace_id, session_id, subject_id, cursor=cursor, limit=limit)

        return await self._read(session_id, position, wait_s, page)

    async def checkpoint(
        self, workspace_id: str, session_id: str, checkpoint_id: str, *,
        subject_id: str | None = None, position: Position | None = None, wait_s: float,
    ) -> CheckpointRow:  # fmt: skip
        """Raises as `session`."""
        return await self._read(
            session_id, position, wait_s, lambda: self._model.checkpoint(workspace_id, session_id, checkpoint_id, subject_id)
        )

    async def run(
        self, workspace_id: str, session_id: str, run_id: str, *,
        subject_id: str | None = None, position: Position | None = None, wait_s: float,
    ) -> RunRow:  # fmt: skip
        """Raises as `session`."""
        return await self._read(session_id, position, wait_s, lambda: self._model.run(workspace_id, session_id, run_id, subject_id))

    async def unsettled(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, limit: int,
        position: Position | None = None, wait_s: float,
    ) -> UnsettledPage:  # fmt: skip
        """As of all that the log held when this was asked. Raises as `session`."""
        deadline_s = time.monotonic() + wait_s
        partition = self._model.partition(session_id)
        await self._freshness.ready(partition, position, deadline_s)
        await self._freshness.at_end(partition, deadline_s)
        return self._model.unsettled(workspace_id, session_id, subject_id, limit=limit)

    async def claimable(
        self, workspace_id: str, lanes: tuple[str, ...], subject_id: str | None, *,
        partitions: tuple[int, ...], limit: int, start: LanePlace | None = None, follow_s: float = 0.0, wait_s: float,
    ) -> tuple[RunRow, ...]:  # fmt: skip
        """Runs of the lanes that may be claimed, oldest first, from `start` on; where there are none, waits up to `follow_s` for one.

        Another worker may claim any of them before the asker does: the authority decides. Raises as `sessions`.
        """
        deadline_s = time.monotonic() + wait_s
        for partition in self._model.checked(partitions):
            await self._freshness.ready(partition, None, deadline_s)

        def found() -> tuple[RunRow, ...]:
            return self._model.claimable(workspace_id, lanes, subject_id, partitions=partitions, limit=limit, start=start)

        rows, until_s = found(), time.monotonic() + follow_s
        while not rows and (left_s := until_s - time.monotonic()) > 0:
            with self._freshness.next_of(partitions, [lane_name(workspace_id, lane) for lane in lanes]) as new:
                rows = found()
                if not rows:
                    await asyncio.wait([new], timeout=left_s)
                    rows = found()
        return rows

    async def claimed(
        self, workspace_id: str, claim_digest: str, subject_id: str | None, *, partitions: tuple[int, ...], wait_s: float
    ) -> tuple[RunRow, ...]:
        """Runs whose live attempt has this digest, from tables that hold all that the log held when this was asked. Raises as
        `sessions`."""
        deadline_s = time.monotonic() + wait_s
        for partition in self._model.checked(partitions):
            await self._freshness.ready(partition, None, deadline_s)
        await self._freshness.all_at_end(partitions, deadline_s)
        return self._model.claimed(workspace_id, claim_digest, subject_id, partitions=partitions)
