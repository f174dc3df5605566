"""How an erasure goes, as the driver of this process keeps it. In the serving loop only."""

import time

from streams.log.retention import RetentionRow
from streams.projections.tables import Tables
from streams.query.freshness import Freshness
from streams.retention import entries

_PARTITION = 0


class ErasureReads:
    """Raises `NotOwner`, `ProjectionBehind` and `Overloaded`; `wait_s` is how long to wait for a commit, or a first lease."""

    def __init__(self, tables: Tables, freshness: Freshness) -> None:
        self._tables, self._freshness = tables, freshness

    async def erasure(self, workspace_id: str, erasure_id: str, wait_s: float) -> RetentionRow | None:
        """None where the workspace has no such erasure."""
        deadline_s = time.monotonic() + wait_s
        await self._freshness.caught_up(_PARTITION, deadline_s)
        key = entries.erasure_key(erasure_id)
        committing = self._tables.serving(_PARTITION).committing
        if key in committing.keys:
            await self._freshness.reached(_PARTITION, committing.position, deadline_s)
        with self._tables.reading(_PARTITION) as table:
            value = table.store.get(key)
        row = None if value is None else entries.erasure_in(value)
        return row if row is not None and row.workspace_id == workspace_id else None
