"""Mermaid: text that many sites and editors draw (`text/vnd.mermaid`). Viewers draw 500 edges unless told otherwise."""

from connectors.graph import labels
from streams.graph.items import Graph

MEDIA_TYPE = "text/vnd.mermaid"


def mermaid(graph: Graph) -> str:
    """A flowchart from left to right, in order of creation."""
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        state = labels.state(node)
        lines.append(f'    {names[node.id]}["{labels.title(node)}{f"<br/>{state}" if state else ""}"]:::{labels.plain(node.type)}')
    for edge in graph.edges:
        if edge.source in names and edge.target in names:
            lines.append(f"    {names[edge.source]} -->|{labels.plain(edge.type)}| {names[edge.target]}")
    for number, gap in enumerate(graph.gaps):
        lines.append(f'    g{number}["gap: {labels.plain(gap.reason)}"]:::gap')
        if gap.node_id in names:
            lines.append(f"    {names[gap.node_id]} -.- g{number}")
    for node_type in sorted({node.type for node in graph.nodes}):
        lines.append(f"    classDef {labels.plain(node_type)} fill:{labels.fill(node_type)},stroke:#495057,color:#212529")
    if graph.gaps:
        lines.append("    classDef gap fill:#ffffff,stroke:#e03131,stroke-dasharray:3 3,color:#e03131")
    return "\n".join(lines) + "\n"
