"""What the fold reads and writes, and where each item is found again beside its own id."""

from typing import Protocol

from streams.graph.items import ACTOR, SESSION, Edge, Gap, Head, Item, Node


class Rows(Protocol):
    """The items of one session as the fold sees them: what is put is read back at once."""

    def head(self) -> Head | None: ...

    def node(self, node_id: str) -> Node | None: ...

    def edge(self, edge_id: str) -> Edge | None: ...

    def gap(self, gap_id: str) -> Gap | None: ...

    def made_by(self, event_id: str) -> str | None:
        """The id of the node that this event made, if it made one."""

    def put(self, item: Item) -> None: ...


def made_node(item: Item) -> tuple[str, str] | None:
    """The event that made a node, and the node: one for an event. The session and its actors are made by whatever event
    names them first, which is about something else; a fork is what the event that made it is about."""
    if not isinstance(item, Node) or (item.type in (SESSION, ACTOR) and item.fork_id is None):
        return None
    return item.created_event_id, item.id


def incident(item: Item) -> list[tuple[str, int]]:
    """The nodes at which an edge or a gap is found, and its place in the order there."""
    if isinstance(item, Edge):
        return [(item.source, item.created_sequence), (item.target, item.created_sequence)]
    return [(item.node_id, item.first_sequence)] if isinstance(item, Gap) else []
