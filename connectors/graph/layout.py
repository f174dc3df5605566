"""Where the nodes of a drawing stand: layers from left to right, found by a program that is ended when it takes too long."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from streams.errors import Invalid, StreamsError

TOO_LARGE: Final = "graph.too_large"
_MEMORY_BYTES: Final = 1 << 30
_START_S: Final = 1.0
"""What an interpreter may take to start on a busy machine."""


def layered(nodes: int, edges: Sequence[tuple[int, int]], *, seconds: float) -> list[tuple[float, float]]:
    """Layer and place in it of each node, both from 0. Blocks. Raises `Invalid` (graph.too_large) after `seconds`."""
    question = json.dumps({"nodes": nodes, "edges": list(edges), "seconds": seconds, "bytes": _MEMORY_BYTES})
    try:
        done = subprocess.run(
            [sys.executable, "-m", "connectors.graph.layout_worker"],
            input=question, capture_output=True, text=True, timeout=seconds + _START_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Invalid(f"laying out the graph takes more than {seconds:g} s", code=TOO_LARGE) from None
    if done.returncode < 0:
        raise Invalid(f"laying out the graph takes more than {seconds:g} s or {_MEMORY_BYTES >> 20} MiB", code=TOO_LARGE)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        raise StreamsError(f"the layout ended with status {done.returncode}: {''.join(last)}")
    return [(layer, place) for layer, place in json.loads(done.stdout)]
