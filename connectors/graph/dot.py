"""Graphviz DOT (`text/vnd.graphviz`)."""

from connectors.graph import labels
from streams.graph.items import Graph

MEDIA_TYPE = "text/vnd.graphviz"


def dot(graph: Graph) -> str:
    """A digraph from left to right, in order of creation; nodes are named by their whole ids."""
    known = {node.id for node in graph.nodes}
    lines = [
        "digraph session {",
        "    rankdir=LR;",
        '    node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        '    edge [fontname="sans-serif", fontsize=8, color="#868e96"];',
    ]
    for node in graph.nodes:
        state = labels.state(node)
        label = labels.title(node) + (f"\\n{state}" if state else "")
        lines.append(f'    {_quoted(node.id)} [label="{label}", fillcolor="{labels.fill(node.type)}"];')
    for edge in graph.edges:
        if edge.source in known and edge.target in known:
            lines.append(f'    {_quoted(edge.source)} -> {_quoted(edge.target)} [label="{labels.plain(edge.type)}"];')
    for number, gap in enumerate(graph.gaps):
        lines.append(f'    gap{number} [label="gap: {labels.plain(gap.reason)}", style=dashed, color="#e03131", fontcolor="#e03131"];')
        if gap.node_id in known:
            lines.append(f"    {_quoted(gap.node_id)} -> gap{number} [style=dashed, arrowhead=none];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
