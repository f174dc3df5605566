"""`python -m benchmarks.growth`: draws the curves, prints a table, writes the results."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks import agent_checkpoints, exports, machine, results
from benchmarks.bench import Options, opened
from benchmarks.growth import long
from benchmarks.growth.lines import LINES, Extent, Gathered
from benchmarks.growth.long import BROKER, LongRun

_BUNDLE_EVENTS: Final = 1_000_000
_RESULTS: Final = Path("build") / "bench-growth.json"
_AGENTS: Final = "agent-checkpoints"
_BUNDLE: Final = "bundle"
_LONG: Final = "long"
_ABOUT: Final = {
    _AGENTS: "rows of agents' checkpoints, saved over and read while there are few and many",
    _BUNDLE: "one session of a million events, exported and bundled: memory of gateway and verifier",
    _LONG: "ten million events through one authority, and their plot",
}


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    asked = parser.parse_args(arguments)
    known = [*LINES, _AGENTS, _BUNDLE, _LONG]
    wanted = [name for group in asked.only for name in group.split(",") if name] or known
    if unknown := set(wanted) - set(known):
        parser.error(f"no such line: {', '.join(sorted(unknown))} (there are {', '.join(known)})")
    extent = Extent(events=asked.events)
    run = LongRun(events=asked.long_events)
    if asked.quick:
        extent, run = extent.quick(), run.quick()
        asked.bundle_events = 2000
    print(machine.described(), flush=True)
    gathered = Gathered(asked.runs)
    with opened(Options(load_s=1.0, warm_s=0.4) if asked.quick else Options(), _say, BROKER) as bench:
        for name in (each for each in known if each in wanted):
            begun = time.monotonic()
            _say(f"{name}  (load {os.getloadavg()[0]:.1f})")
            if name == _LONG:
                for result in long.measure(bench, run, asked.json):
                    gathered.add(0, result)
            elif name == _AGENTS:
                for number in range(asked.runs):
                    for result in agent_checkpoints.grown(bench, extent.agent_rows):
                        gathered.add(number, result)
            elif name == _BUNDLE:
                for result in exports.grown(bench, asked.bundle_events):
                    bench.run[result.name] = result.value
                    gathered.add(0, result)
            else:
                for point in LINES[name].points(extent):
                    point.measure(bench, extent, gathered)
                    # After each, so that what is measured is kept whatever comes.
                    results.write(asked.json, results.summarise(gathered.runs))
            _say(f"{name}: {time.monotonic() - begun:.0f} s")
        results.write(asked.json, results.summarise(gathered.runs))
    print(results.table(results.summarise(gathered.runs)))
    _say(f"written to {asked.json}")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    about = {**{name: line.about for name, line in LINES.items()}, **_ABOUT}
    lines = "\n".join(f"  {name:<12} {text}" for name, text in about.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=__doc__,
        epilog=f"lines:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", default=[], metavar="LINE", help="one or more, with commas")
    parser.add_argument("--runs", type=int, default=1, help="passes over each point; told as median and range (not of the long run)")
    parser.add_argument("--quick", action="store_true", help="whether it works: too short for figures")
    parser.add_argument("--json", type=Path, default=_RESULTS, help="where the results go; the long run's samples and plot lie beside it")
    parser.add_argument("--events", type=int, default=Extent().events, help="of each pass (%(default)s)")
    parser.add_argument("--long-events", type=int, default=LongRun().events, help="of the long run (%(default)s)")
    parser.add_argument("--bundle-events", type=int, default=_BUNDLE_EVENTS, help="of the session that is bundled (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
