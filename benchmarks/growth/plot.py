"""The long run as a picture: events a second and memory, over the events decided. The one importer of matplotlib."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.growth.samples import Sample, stretches

_RATE, _MEMORY, _QUIET = "#1f5fa8", "#b3541e", "#666666"


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Writes an SVG. `samples`: at least two."""
    found = stretches(samples)
    events = [stretch.events / 1e6 for stretch in found]
    # Text stays text: small, sharp, and found by a search; no time of drawing, so that equal samples give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "long", "font.family": "sans-serif", "font.size": 10}):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        rate, memory = figure.subplots(2, 1, sharex=True)
        _line(rate, events, [stretch.per_s / 1000 for stretch in found], "thousand events/s", _RATE)
        _line(memory, events, [stretch.rss_mb for stretch in found], "memory (RSS), MB", _MEMORY)
        memory.set_xlabel("events decided, millions")
        memory.set_xlim(0, max(events))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _line(axes: Axes, events: list[float], values: list[float], name: str, colour: str) -> None:
    """Upwards from zero, so that flat looks flat."""
    axes.plot(events, values, color=colour, linewidth=1.6)
    axes.set_ylim(0, max(values) * 1.15)
    axes.set_ylabel(name, color=colour)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.tick_params(colors=_QUIET, length=0, pad=6)
    for side in axes.spines.values():
        side.set_visible(False)
