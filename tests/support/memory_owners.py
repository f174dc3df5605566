"""Owners of what a `MemoryLog` holds: what a gateway reads, without HTTP in between."""

import asyncio
import time
from collections.abc import Sequence

from streams.errors import Invalid, NotFound, StreamsError
from streams.log.position import Position
from streams.log.reader import Record
from streams.projections.checkpoints import CheckpointRow
from streams.projections.runs import LanePlace, RunRow
from streams.projections.sessions import SessionRow
from streams.query.graphs import GraphPage
from streams.query.pages import CheckpointsPage, EventsPage, SessionsPage, UnsettledPage
from tests.support.graphs import GraphStore
from tests.support.memory_log import MemoryLog


class MemoryOwners:
    """Reads what `MemoryLog` holds. A page waits for events as the owner does."""

    def __init__(self, log: MemoryLog) -> None:
        self.failure: StreamsError | None = None
        self.positions: list[Position | None] = []
        self._log = log

    async def session(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> SessionRow:  # fmt: skip
        self.positions.append(position)
        if self.failure is not None:
            raise self.failure
        row = self._log.rows.get(session_id)
        if position is not None and position.offset > 10**9:
            raise Invalid("position: beyond the end of the log", code="request.malformed")
        if row is None or row.workspace_id != workspace_id or subject_id not in (None, row.subject_id):
            raise NotFound(f"session {session_id}")
        return row

    async def sessions(
        self, workspace_id: str, *, subject_id: str | None = None, cursor: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> SessionsPage:  # fmt: skip
        rows = [row for row in self._log.rows.values() if row.workspace_id == workspace_id and subject_id in (None, row.subject_id)]
        rows.sort(key=lambda row: row.created_at, reverse=True)
        start = int(cursor or 0)
        more = len(rows) > start + limit
        return SessionsPage(tuple(rows[start : start + limit]), str(start + limit) if more else None)

    async def events(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        after: int, limit: int, max_bytes: int, wait_ms: int = 0,
        position: Position | None = None, wait_s: float = 5.0, at_end: bool = False,
    ) -> EventsPage:  # fmt: skip
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            row = await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
            if row.sequence > after or time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.01)
        values = self._log.events[session_id][after : after + limit]
        return EventsPage(row, tuple(values), (), after + len(values))

    async def event_named(
        self, workspace_id: str, session_id: str, event_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> int:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        found, _ = self._log.table.model.named_event(workspace_id, session_id, event_id, subject_id)
        if found is None:
            raise NotFound(f"session {session_id} has no event {event_id}")
        return found

    async def checkpoints(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, cursor: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointsPage:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        return self._log.table.model.checkpoints(workspace_id, session_id, subject_id, cursor=cursor, limit=limit)

    async def checkpoint(
        self, workspace_id: str, session_id: str, checkpoint_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointRow:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        return self._log.table.model.checkpoint(workspace_id, session_id, checkpoint_id, subject_id)

    async def run(
        self, workspace_id: str, session_id: str, run_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> RunRow:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        return self._log.table.model.run(workspace_id, session_id, run_id, subject_id)

    async def unsettled(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> UnsettledPage:  # fmt: skip
        await self.session(workspace_id, session_id, subject_id=subject_id, position=position)
        return self._log.table.model.unsettled(workspace_id, session_id, subject_id, limit=limit)

    async def claimable(
        self, workspace_id: str, lanes: Sequence[str], *, subject_id: str | None = None, limit: int = 10,
        start: LanePlace | None = None, wait_ms: int = 0, wait_s: float = 5.0,
    ) -> tuple[RunRow, ...]:  # fmt: skip
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            if self.failure is not None:
                raise self.failure
            found = self._log.table.model.claimable(workspace_id, lanes, subject_id, partitions=(0,), limit=limit, start=start)
            if found or time.monotonic() >= deadline:
                return found
            await asyncio.sleep(0.01)

    async def claimed(
        self, workspace_id: str, claim_digest: str, *, subject_id: str | None = None, wait_s: float = 5.0
    ) -> RunRow | None:  # fmt: skip
        if self.failure is not None:
            raise self.failure
        found = self._log.table.model.claimed(workspace_id, claim_digest, subject_id, partitions=(0,))
        return found[0] if found else None


class MemoryGraphOwners:
    """Folds what `MemoryLog` holds when it is asked, with the projection's own handler."""

    def __init__(self, log: MemoryLog) -> None:
        self.failure: StreamsError | None = None
        self._log = log

    async def graph(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        node_id: str | None, depth: int, nodes_max: int, items_max: int, position: Position | None = None, wait_s: float = 5.0,
    ) -> GraphPage:  # fmt: skip
        if self.failure is not None:
            raise self.failure
        table = GraphStore()
        values = self._log.events.get(session_id, [])
        table.apply([Record("sessions.events", 0, offset, session_id.encode(), value, 0) for offset, value in enumerate(values)])
        model = table.model()
        if node_id is not None:
            return model.around(workspace_id, session_id, node_id, subject_id, depth=depth, nodes_max=nodes_max)
        return model.graph(workspace_id, session_id, subject_id, items_max=items_max)
