"""Questions to the agent-checkpoint tables of this process: by scope, by id, and the versions before. In the serving loop only.

An answer holds whole values of `agents.checkpoints`; whether they may be shown (time, agent, subject) is for who asked to say. Each
question costs a bounded number of look-ups, however many rows there are. What was acknowledged before a question is in its answer.
"""

import time
from typing import Final

from streams.agents import rows
from streams.agents.ids import partition_of_id
from streams.log.partitioner import partition_of
from streams.projections.tables import Tables
from streams.query.freshness import Freshness

VERSIONS_MAX: Final = 101
"""Of one answer: a page of a hundred, and one more that tells whether others follow."""


class AgentReads:
    """All raise `NotOwner`, `ProjectionBehind` and `Overloaded`; `wait_s` is how long to wait for a commit, or a first lease."""

    def __init__(self, tables: Tables, freshness: Freshness, partitions: int) -> None:
        self._tables, self._freshness, self._partitions = tables, freshness, partitions

    async def by_scope(self, scope_key: str, wait_s: float) -> bytes | None:
        """The head of a scope: one look-up."""
        partition, deadline_s = partition_of(scope_key.encode(), self._partitions), time.monotonic() + wait_s
        await self._freshness.caught_up(partition, deadline_s)
        return await self._row(partition, rows.head_key(scope_key), deadline_s)

    async def by_id(self, workspace_id: str, checkpoint_id: str, wait_s: float) -> bytes | None:
        """The head that has the id, in this workspace."""
        found = await self._named(workspace_id, checkpoint_id, time.monotonic() + wait_s)
        return None if found is None else found[2]

    async def history(
        self, workspace_id: str, checkpoint_id: str, *, limit: int, before: int | None, wait_s: float
    ) -> tuple[bytes, ...] | None:
        """At most `limit` versions of the row that has the id, newest first, from below the version `before` on; None: no such row.

        The head is the first of them, where `before` does not leave it out.
        """
        found = await self._named(workspace_id, checkpoint_id, time.monotonic() + wait_s)
        if found is None:
            return None
        partition, key, value = found
        head = rows.stored(value)
        below = head.version if before is None else min(before, head.version)
        wanted = limit - 1 if before is None or before > head.version else limit
        with self._tables.reading(partition) as table:
            numbers = range(below - 1, head.oldest_version - 1, -1)
            there = [each for each in table.store.get_many([rows.version_key(key.decode(), n) for n in numbers]) if each is not None]
        # A version that expired is gone, so that fewer may be there than there are numbers.
        older = tuple(there[:wanted])
        return (value, *older) if wanted < limit else older

    async def _named(self, workspace_id: str, checkpoint_id: str, deadline_s: float) -> tuple[int, bytes, bytes] | None:
        """Partition, key and value of the head that has the id."""
        partition = partition_of_id(checkpoint_id, self._partitions)
        if partition is None:
            return None
        await self._freshness.caught_up(partition, deadline_s)
        key = await self._row(partition, rows.id_key(checkpoint_id), deadline_s)
        if key is None or not key.startswith(workspace_id.encode() + b"/"):
            return None
        value = await self._row(partition, key, deadline_s)
        return None if value is None else (partition, key, value)

    async def _row(self, partition: int, key: bytes, deadline_s: float) -> bytes | None:
        committing = self._tables.serving(partition).committing
        if key in committing.keys:
            await self._freshness.reached(partition, committing.position, deadline_s)
        with self._tables.reading(partition) as table:
            return table.store.get(key)
