"""The layered layout (Sugiyama), as a program: JSON on stdin, JSON on stdout. The only importer of fast_sugiyama.

A layout cannot be interrupted, and its time and memory follow from the graph's shape, not only from its size: whoever
wants one starts this program, and ends it when it takes too long.

    {"nodes": n, "edges": [[source, target], ...], "seconds": s, "bytes": b}  ->  [[layer, place], ...]     a pair a node
"""

import json
import math
import resource
import sys
from collections.abc import Sequence

from fast_sugiyama import from_edges

_SPACING = 1.0


def layered(nodes: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Layer and place within it of each node, both from 0; parts that do not hang together lie one behind the other."""
    distinct = sorted({(source, target) for source, target in edges if source != target})
    placed: dict[int, tuple[float, float]] = {}
    beginning = 0.0
    if distinct:
        for positions, *_ in from_edges(distinct, vertex_spacing=_SPACING, minimum_length=1, check_layout=False):
            first = min(x for _, (x, _) in positions)
            top = max(y for _, (_, y) in positions)
            for node, (x, y) in positions:
                placed[int(node)] = ((top - y) / _SPACING, beginning + (x - first) / _SPACING)
            beginning = max(place for _, place in placed.values()) + 1
    for node in range(nodes):
        if node not in placed:
            placed[node] = (0.0, beginning)
            beginning += 1
    return [placed[node] for node in range(nodes)]


def main() -> None:
    asked = json.load(sys.stdin)
    seconds = math.ceil(asked["seconds"])
    # Also where nobody is left who could end it.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 2))
    resource.setrlimit(resource.RLIMIT_AS, (asked["bytes"], asked["bytes"]))
    json.dump(layered(asked["nodes"], [(source, target) for source, target in asked["edges"]]), sys.stdout)


if __name__ == "__main__":
    main()
