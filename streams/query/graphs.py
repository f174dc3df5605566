"""Questions to the graph tables of this process: a whole graph, or what lies around one of its nodes.

- A whole graph is read in one scan, which is a snapshot, and is bounded by its number of items.
- A neighbourhood is bounded however large its session is; it is read again where its session moved on meanwhile.
- Answers carry items as they lie in the table, in no order: whoever asked decodes and orders them.
"""

import asyncio
import time
from itertools import islice
from typing import Final

from msgspec import Struct

from streams.errors import Invalid, NotFound
from streams.graph.items import HEAD_ID, Head
from streams.graph.neighbourhood import around
from streams.log.partitioner import partition_of
from streams.log.position import Position
from streams.projections.graph.encoding import at_prefix, decode_item, item_at, item_key, session_prefix
from streams.projections.tables import OwnedTable, Tables
from streams.query.freshness import Freshness

TOO_LARGE: Final = "graph.too_large"
_READS_OF_A_MOVING_SESSION: Final = 3
_READING_AT_ONCE: Final = 2


class GraphPage(Struct, frozen=True):
    """`items`: values of nodes, edges and gaps (`streams.projections.graph.encoding.decode_item`)."""

    head: Head
    items: tuple[bytes, ...]
    truncated: bool = False


class GraphModel:
    """Blocking, from memory or local disk; safe from any thread."""

    def __init__(self, tables: Tables, partitions: int) -> None:
        self._tables = tables
        self._partitions = partitions

    def partition(self, session_id: str) -> int:
        return partition_of(session_id.encode(), self._partitions)

    def graph(self, workspace_id: str, session_id: str, subject_id: str | None = None, *, items_max: int) -> GraphPage:
        """`subject_id`: as `ReadModel` has it. Raises `NotFound`, `NotOwner`, `ProjectionBehind`, `Invalid` (graph.too_large)."""
        head_key = item_key(session_id, HEAD_ID)
        with self._tables.reading(self.partition(session_id)) as table:
            head: Head | None = None
            items: list[bytes] = []
            with table.store.scan(session_prefix(session_id)) as pairs:
                for key, value in islice(pairs, items_max + 2):
                    if key == head_key:
                        head = _head(value)
                    else:
                        items.append(value)
            if len(items) > items_max:
                # The head may lie behind what was read.
                head = _head(table.store.get(head_key))
            _require_sight(head, workspace_id, session_id, subject_id)
            assert head is not None
            if len(items) > items_max:
                raise Invalid(f"the graph has more than {items_max} nodes, edges and gaps", code=TOO_LARGE)
            return GraphPage(head, tuple(items))

    def around(
        self, workspace_id: str, session_id: str, node_id: str, subject_id: str | None = None, *, depth: int, nodes_max: int
    ) -> GraphPage:
        """Raises as `graph`, `NotFound` for a node that is not there included."""
        with self._tables.reading(self.partition(session_id)) as table:
            head_key = item_key(session_id, HEAD_ID)
            for _ in range(_READS_OF_A_MOVING_SESSION):
                before = table.store.get(head_key)
                head = _head(before)
                _require_sight(head, workspace_id, session_id, subject_id)
                assert head is not None
                page = _around(table, head, node_id, depth, nodes_max)
                if table.store.get(head_key) == before:
                    break
            return page


def _head(value: bytes | None) -> Head | None:
    item = None if value is None else decode_item(value)
    return item if isinstance(item, Head) else None


def _require_sight(head: Head | None, workspace_id: str, session_id: str, subject_id: str | None) -> None:
    """In the same words where it belongs to another workspace or subject and where it does not exist."""
    if head is None or head.workspace_id != workspace_id or subject_id not in (None, head.subject_id):
        raise NotFound(f"session {session_id}")


def _around(table: OwnedTable, head: Head, node_id: str, depth: int, nodes_max: int) -> GraphPage:
    session_id = head.session_id

    def at(node: str, limit: int) -> list[str]:
        prefix = at_prefix(session_id, node)
        with table.store.scan(prefix) as pairs:
            return [item_at(prefix, key) for key, _ in islice(pairs, limit)]

    if table.store.get(item_key(session_id, node_id)) is None:
        raise NotFound(f"session {session_id} has no node {node_id}")
    found = around(node_id, depth, nodes_max, at)
    keys = [item_key(session_id, identifier) for identifier in (*found.nodes, *found.edges, *found.gaps)]
    values = table.store.get_many(keys)
    return GraphPage(head, tuple([value for value in values if value is not None]), found.truncated)


class GraphReads:
    """As `streams.query.reads.Reads`, of graphs. In the serving loop only; large graphs are read in a thread."""

    def __init__(self, model: GraphModel, freshness: Freshness) -> None:
        self._model = model
        self._freshness = freshness
        self._turns = asyncio.Semaphore(_READING_AT_ONCE)

    async def graph(
        self,
        workspace_id: str,
        session_id: str,
        *,
        subject_id: str | None = None,
        node_id: str | None,
        depth: int,
        nodes_max: int,
        items_max: int,
        position: Position | None = None,
        wait_s: float,
    ) -> GraphPage:
        """Around `node_id`, or the whole. Raises as `Reads.session`, and `Invalid` (graph.too_large)."""
        deadline_s = time.monotonic() + wait_s
        partition = self._model.partition(session_id)
        await self._freshness.ready(partition, position, deadline_s)

        def page() -> GraphPage:
            if node_id is not None:
                return self._model.around(workspace_id, session_id, node_id, subject_id, depth=depth, nodes_max=nodes_max)
            return self._model.graph(workspace_id, session_id, subject_id, items_max=items_max)

        async with self._turns:
            try:
                return await asyncio.to_thread(page)
            except NotFound:
                await self._freshness.at_end(partition, deadline_s)
                return await asyncio.to_thread(page)
