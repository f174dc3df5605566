"""What lies around a node: breadth first, edges taken in both directions, the oldest first, and never more than a limit.

A node with a hundred thousand neighbours costs no more than one with a hundred: `at` is asked for so many and no more.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from streams.graph.items import edge_ends

_MORE_THAN_NODES: Final = 4
"""Edges and gaps looked at for each node that may still be taken: several may lead to the same one."""

At = Callable[[str, int], list[str]]
"""Ids of the edges and gaps at a node, the oldest so many."""


class Neighbourhood(Struct, frozen=True):
    """Ids. The edges are those that were walked: at nodes nearer than the depth, between two nodes of the neighbourhood."""

    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    gaps: tuple[str, ...]
    truncated: bool


def around(centre: str, depth: int, nodes_max: int, at: At) -> Neighbourhood:
    """The nodes within `depth` edges of `centre`, which is taken to exist, and at most `nodes_max` of them."""
    found: dict[str, None] = {centre: None}
    edges: dict[str, None] = {}
    gaps: dict[str, None] = {}
    truncated = False
    layer = [centre]
    for distance in range(depth + 1):
        following: list[str] = []
        for node_id in layer:
            limit = max(1, nodes_max - len(found)) * _MORE_THAN_NODES
            looked_at = at(node_id, limit + 1)
            truncated = truncated or (distance < depth and len(looked_at) > limit)
            for identifier in looked_at[:limit]:
                ends = edge_ends(identifier)
                if ends is None:
                    gaps[identifier] = None
                    continue
                other = ends[1] if ends[0] == node_id else ends[0]
                if distance == depth:
                    continue
                if other not in found:
                    if len(found) >= nodes_max:
                        truncated = True
                        continue
                    found[other] = None
                    following.append(other)
                edges[identifier] = None
        layer = following
    return Neighbourhood(tuple(found), tuple(edges), tuple(gaps), truncated)
