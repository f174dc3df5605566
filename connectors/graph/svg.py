"""SVG (`image/svg+xml`): one drawing that needs no script, no font and nothing from elsewhere. Its bytes follow from the graph."""

from collections.abc import Callable, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from connectors.graph import labels
from streams.errors import Invalid
from streams.graph.items import Edge, Gap, Graph, Node

MEDIA_TYPE: Final = "image/svg+xml"
TOO_LARGE: Final = "graph.too_large"

_WIDTH, _HEIGHT = 138, 34
_COLUMN, _LINE = 230, 48
_MARGIN = 24
_STYLE: Final = (
    "text{font:10px sans-serif;fill:#212529}.s{fill:#495057;font-size:9px}"
    "rect{stroke:#495057;stroke-width:1}path{fill:none;stroke:#adb5bd}.e{fill:#868e96;font-size:8px}"
    ".g{stroke:#e03131;stroke-dasharray:3 3}.w{fill:#e03131;font-size:9px}"
)

Layout = Callable[[int, Sequence[tuple[int, int]]], list[tuple[float, float]]]
"""Layer and place in it of so many nodes with these edges (`connectors.graph.layout.layered`)."""


def svg(graph: Graph, layout: Layout, *, nodes_max: int, edges_max: int) -> str:
    """Raises `Invalid` (graph.too_large) beyond the limits, and what `layout` raises."""
    if len(graph.nodes) > nodes_max or len(graph.edges) > edges_max:
        raise Invalid(
            f"a drawing has at most {nodes_max} nodes and {edges_max} edges, this one {len(graph.nodes)} and {len(graph.edges)}",
            code=TOO_LARGE,
        )
    numbers = {node.id: number for number, node in enumerate(graph.nodes)}
    drawn = [edge for edge in graph.edges if edge.source in numbers and edge.target in numbers]
    downwards = [(numbers[first], numbers[second]) for first, second in map(labels.downwards, drawn)]
    places = layout(len(graph.nodes), downwards)
    corners = [(_MARGIN + layer * _COLUMN, _MARGIN + place * _LINE) for layer, place in places]
    parts = [_edge(edge, corners[numbers[edge.source]], corners[numbers[edge.target]]) for edge in drawn]
    gaps = _gaps_at(graph.gaps)
    parts += [_node(node, corner, gaps.get(node.id, [])) for node, corner in zip(graph.nodes, corners, strict=True)]
    width = _MARGIN + _WIDTH + max((x for x, _ in corners), default=0)
    height = _MARGIN + _HEIGHT + max((y for _, y in corners), default=0)
    session = quoteattr(f"Execution graph of {graph.head.session_id} through sequence {graph.head.sequence}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' role="img" aria-label={session}><style>{_STYLE}</style>'
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#868e96;stroke:none"/></marker></defs>' + "".join(parts) + "</svg>\n"
    )


def _gaps_at(gaps: Sequence[Gap]) -> dict[str, list[Gap]]:
    at: dict[str, list[Gap]] = {}
    for gap in gaps:
        at.setdefault(gap.node_id, []).append(gap)
    return at


def _node(node: Node, corner: tuple[float, float], gaps: Sequence[Gap]) -> str:
    x, y = corner
    told = f"{node.type} {node.id}\nmade by event {node.created_sequence}, last changed by event {node.changed_sequence}"
    told += "".join(f"\ngap at event {gap.first_sequence}: {gap.reason}" for gap in gaps)
    state = labels.state(node)
    outlined = ' class="g"' if gaps else ""
    warned = f'<text class="w" x="{x + _WIDTH - 6:.0f}" y="{y + 29:.0f}" text-anchor="end">{_counted(gaps)}</text>' if gaps else ""
    return (
        f"<g><title>{escape(told)}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"{outlined}'
        f' fill="{labels.fill(node.type)}"/>'
        f'<text x="{x + 8:.0f}" y="{y + 14:.0f}">{escape(labels.title(node))}</text>'
        f'<text class="s" x="{x + 8:.0f}" y="{y + 27:.0f}">{escape(state)}</text>{warned}</g>'
    )


def _counted(gaps: Sequence[Gap]) -> str:
    return "gap" if len(gaps) == 1 else f"{len(gaps)} gaps"


def _edge(edge: Edge, source: tuple[float, float], target: tuple[float, float]) -> str:
    forward = target[0] >= source[0]
    x1, y1 = source[0] + (_WIDTH if forward else 0), source[1] + _HEIGHT / 2
    x2, y2 = target[0] + (0 if forward else _WIDTH), target[1] + _HEIGHT / 2
    bend = max(30.0, abs(x2 - x1) / 2) * (1 if forward else -1)
    title = f"{edge.source} {edge.type} {edge.target}\nmade by event {edge.created_sequence}"
    word = escape(labels.plain(edge.type))
    return (
        f"<g><title>{escape(title)}</title>"
        f'<path d="M{x1:.0f} {y1:.0f}C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}" marker-end="url(#a)"/>'
        f'<text class="e" x="{(x1 + x2) / 2:.0f}" y="{(y1 + y2) / 2 - 3:.0f}" text-anchor="middle">{word}</text></g>'
    )
