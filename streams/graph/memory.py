"""The graph of one session in memory: as it was at some sequence, or in a test."""

from collections import defaultdict
from collections.abc import Iterable

from streams.graph.items import Edge, Gap, Graph, Head, Item, Node, in_order, item_id
from streams.graph.rows import incident, made_node


class MemoryGraph:
    """`Rows` of one session, and its neighbourhoods."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._made_by: dict[str, str] = {}
        self._at: defaultdict[str, dict[tuple[int, str], None]] = defaultdict(dict)

    def head(self) -> Head | None:
        item = self.items.get("head")
        return item if isinstance(item, Head) else None

    def node(self, node_id: str) -> Node | None:
        item = self.items.get(node_id)
        return item if isinstance(item, Node) else None

    def edge(self, edge_id: str) -> Edge | None:
        item = self.items.get(edge_id)
        return item if isinstance(item, Edge) else None

    def gap(self, gap_id: str) -> Gap | None:
        item = self.items.get(gap_id)
        return item if isinstance(item, Gap) else None

    def made_by(self, event_id: str) -> str | None:
        return self._made_by.get(event_id)

    def put(self, item: Item) -> None:
        self.items[item_id(item)] = item
        made = made_node(item)
        if made is not None:
            self._made_by[made[0]] = made[1]
        for node_id, sequence in incident(item):
            self._at[node_id][(sequence, item_id(item))] = None

    def at(self, node_id: str, limit: int) -> list[str]:
        """Ids of the edges and gaps at a node, the oldest `limit`."""
        return [identifier for _, identifier in sorted(self._at.get(node_id, ()))[:limit]]

    def graph(self) -> Graph:
        """All of it. Raises LookupError before the first event."""
        return self.part(self.items)

    def part(self, identifiers: Iterable[str], *, truncated: bool = False) -> Graph:
        """Those items of it. Raises LookupError before the first event."""
        head = self.head()
        if head is None:
            raise LookupError("no event yet")
        return in_order(head, [self.items[identifier] for identifier in identifiers], truncated=truncated)
