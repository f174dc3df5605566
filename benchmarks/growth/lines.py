"""The curves: which shapes a line goes through, and what is told of each.

All of a line's passes are of commands of one event, then of ten. A point is told in parts of the first of its line.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.bench import PARTITIONS, Bench
from benchmarks.deciding import Pass, Shape, prepared
from benchmarks.results import Result, ratios
from benchmarks.steady import TooShort

_KINDS: Final = {1: "", 10: "_of_10"}
"""Events a command, and how a name tells it."""
_GB: Final = 10**9


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How far the lines go. Counts of a pass, of shapes, and the bytes of events that a pass has at most."""

    events: int = 300_000
    bytes: int = _GB
    sessions: tuple[int, ...] = (1000, 10_000, 100_000, 1_000_000)
    usual_sessions: int = 10_000
    sizes: tuple[int, ...] = (1024, 4096, 16_384, 65_536)
    usual_size: int = 1024
    partitions: tuple[int, ...] = (1, 4, 16)
    authorities: tuple[int, ...] = (1, 2)
    agent_rows: tuple[int, ...] = (1000, 1_000_000)
    """Of agents' checkpoints in the tables; the first is of the scopes that are saved over and read."""
    short: bool = False
    """Whether a pass may be too short for figures."""

    def quick(self) -> "Extent":
        """A look whether everything works; too short for figures."""
        return replace(
            self, events=10_000, sessions=(100, 300), usual_sessions=200, sizes=(1024, 4096), partitions=(1, 4), agent_rows=(100, 2000),
            short=True,
        )  # fmt: skip

    def events_of(self, event_bytes: int) -> int:
        """Of a pass, whole commands of ten."""
        return min(self.events, self.bytes // event_bytes) // 10 * 10


class Gathered:
    """Results by run; knows the first figure of each line, run and kind of command."""

    def __init__(self, runs: int) -> None:
        self.runs: list[list[Result]] = [[] for _ in range(runs)]
        self._firsts: dict[tuple[int, str, str], float] = {}

    def add(self, run: int, result: Result) -> None:
        self.runs[run].append(result)

    def first(self, run: int, line: str, figure: str, value: float) -> float:
        """What the first point of the line had; `value` where this is it."""
        return self._firsts.setdefault((run, line, figure), value)


@dataclass(frozen=True)
class Point:
    """One shape of a line."""

    line: str
    at: int
    shape: Shape

    def measure(self, bench: Bench, extent: Extent, into: Gathered) -> None:
        """Passes over one ground, as many as there are runs."""
        events = extent.events_of(self.shape.event_bytes) * self.shape.authorities
        with prepared(bench, self.shape) as ground:
            for run in range(len(into.runs)):
                for events_a_command in _KINDS:
                    name = f"{self.line} {self.at}, run {run + 1}, commands of {events_a_command}"
                    try:
                        taken = ground.measured(events_a_command, events)
                    except TooShort as short:
                        if not extent.short:
                            raise
                        bench.say(f"{name}: {short}")
                        continue
                    bench.say(f"{name}: {taken.events_per_s:,.0f} events/s, {taken.cpu_s_per_million or 0:.3g} CPU s a million")
                    for result in self.told(run, events_a_command, events, taken, into):
                        into.add(run, result)

    def told(self, run: int, events_a_command: int, events: int, taken: Pass, among: Gathered) -> Iterator[Result]:
        """<line>_<at>[_of_10]_events_per_s, .._cpu_s_per_million, and of sizes .._cpu_s_per_gb."""
        kind = _KINDS[events_a_command]
        shape = self.shape
        settings = {
            "sessions": shape.sessions, "event_bytes": shape.event_bytes, "partitions": shape.partitions,
            "authorities": shape.authorities, "events": events, "events_a_command": events_a_command,
        }  # fmt: skip
        figures = [("events_per_s", "events/s", taken.events_per_s)]
        if taken.cpu_s_per_million is not None:
            figures.append(("cpu_s_per_million", "CPU s", taken.cpu_s_per_million))
            if self.line == "sizes":
                figures.append(("cpu_s_per_gb", "CPU s", taken.cpu_s_per_million * _GB / 1e6 / shape.event_bytes))
        for figure, unit, value in figures:
            first = among.first(run, self.line, f"{kind}_{figure}", value)
            yield Result(
                name=f"{self.line}_{self.at}{kind}_{figure}", value=value, unit=unit, ratios=ratios(value, first=first),
                details=taken.details() if figure == "events_per_s" else {}, settings=settings,
            )  # fmt: skip


@dataclass(frozen=True)
class Line:
    """What can be chosen by name."""

    about: str
    points: Callable[[Extent], list[Point]]


def _points(
    line: str, steps: Callable[[Extent], tuple[int, ...]], shape: Callable[[Extent, int], Shape]
) -> Callable[[Extent], list[Point]]:
    return lambda extent: [Point(line, step, shape(extent, step)) for step in steps(extent)]


def _shape(extent: Extent, *, sessions: int = 0, event_bytes: int = 0, partitions: int = PARTITIONS, authorities: int = 1) -> Shape:
    return Shape(
        sessions=sessions or extent.usual_sessions, event_bytes=event_bytes or extent.usual_size, partitions=partitions,
        authorities=authorities,
    )  # fmt: skip


LINES: Final = {
    "sessions": Line(
        "sessions that the commands go to, each as likely as any other",
        _points("sessions", lambda extent: extent.sessions, lambda extent, step: _shape(extent, sessions=step)),
    ),
    "sizes": Line(
        "bytes of an event",
        _points("sizes", lambda extent: extent.sizes, lambda extent, step: _shape(extent, event_bytes=step)),
    ),
    "partitions": Line(
        "partitions, all of one authority",
        _points("partitions", lambda extent: extent.partitions, lambda extent, step: _shape(extent, partitions=step)),
    ),
    "authorities": Line(
        f"authority processes that share {PARTITIONS} partitions",
        _points("authorities", lambda extent: extent.authorities, lambda extent, step: _shape(extent, authorities=step)),
    ),
}
