"""`graph`: the execution graph of a session, as the gateway tells or draws it."""

import json
from pathlib import Path
from typing import Final

from msgspec import Struct

from connectors.cli.console import remark
from session_streams import Client

FORMATS: Final = ("json", "mermaid", "dot", "svg")


class GraphOptions(Struct, frozen=True, kw_only=True):
    """`through`: as it was at that sequence. `around`: only what lies within `depth` edges of a node."""

    format: str = "json"
    through: int | None = None
    around: str | None = None
    depth: int = 2


def read_graph(client: Client, session_id: str, options: GraphOptions) -> str:
    """The text of the answer. Raises as the client does."""
    given = {"format": options.format, "through_sequence": options.through, "around": options.around}
    if options.around is not None:
        given["depth"] = options.depth
    params = {name: str(value) for name, value in given.items() if value is not None}
    answer = client.request("GET", f"/v1/sessions/{session_id}/graph", params=params).body.decode()
    return json.dumps(json.loads(answer), indent=1) + "\n" if options.format == "json" else answer


def show_graph(client: Client, session_id: str, options: GraphOptions, output: Path | None) -> None:
    """To a file, else to standard output."""
    text = read_graph(client, session_id, options)
    if output is None:
        print(text, end="")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text)
    remark(f"wrote {output} ({len(text):,} characters)")


def show_in_demo(client: Client, session_id: str, drawing: Path) -> None:
    """The graph as Mermaid on standard output, and drawn in a file."""
    show_graph(client, session_id, GraphOptions(format="mermaid"), None)
    show_graph(client, session_id, GraphOptions(format="svg"), drawing)
