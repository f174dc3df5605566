"""`python -m benchmarks`: measures, prints a table, writes the results."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from msgspec import structs

from benchmarks import machine, results
from benchmarks.bench import Bench, Options, opened
from benchmarks.measures import MEASURES, chosen
from benchmarks.results import Result

_RESULTS: Final = Path("build") / "bench.json"


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    asked = parser.parse_args(arguments)
    options = Options(
        event_bytes=asked.event_bytes, sessions=asked.sessions, events=asked.events, restored_sessions=asked.restored_sessions,
        rows=tuple(asked.rows),
    )  # fmt: skip
    if asked.quick:
        options = options.quick()
    only = [name for group in asked.only for name in group.split(",") if name]
    if unknown := [name for name in only if name not in MEASURES]:
        parser.error(f"no such measure: {', '.join(unknown)} (there are {', '.join(MEASURES)})")
    names = chosen(only)
    print(machine.described(), flush=True)
    runs: list[list[Result]] = []
    with opened(options, _say) as bench:
        for number in range(1, asked.runs + 1):
            runs.append([])
            bench.run.clear()
            for name in names:
                _say(f"run {number} of {asked.runs}: {name}  (load {os.getloadavg()[0]:.1f})")
                _measure(bench, name, runs[-1])
                # After each, so that what is measured is kept whatever comes.
                results.write(asked.json, results.summarise(runs))
    print(results.table(results.summarise(runs)))
    _say(f"written to {asked.json}")
    return 0


def _measure(bench: Bench, name: str, into: list[Result]) -> None:
    load = os.getloadavg()[0]
    begun = time.monotonic()
    for result in MEASURES[name].run(bench):
        bench.run[result.name] = result.value
        settings = {"event_bytes": bench.options.event_bytes, **result.settings}
        into.append(structs.replace(result, details={**result.details, "load_before": load}, settings=settings))
    _say(f"{name}: {time.monotonic() - begun:.0f} s")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<10} {measure.about}" for name, measure in MEASURES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, epilog=f"measures:\n{lines}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    plain = Options()
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="one or more, with commas; their limits come along")
    parser.add_argument("--runs", type=int, default=1, help="of everything chosen; told as median and range")
    parser.add_argument("--quick", action="store_true", help="whether it works: too short for figures")
    parser.add_argument("--json", type=Path, default=_RESULTS, help="where the results go (%(default)s)")
    parser.add_argument("--event-bytes", type=int, default=plain.event_bytes, help="of an event in the log (%(default)s)")
    parser.add_argument("--sessions", type=int, default=plain.sessions, help="of the authority's lines (%(default)s)")
    parser.add_argument("--events", type=int, default=plain.events, help="of the authority's lines (%(default)s)")
    parser.add_argument("--restored-sessions", type=int, default=plain.restored_sessions, help="(%(default)s)")
    parser.add_argument("--rows", type=int, nargs="+", default=list(plain.rows), help="of the tables that point reads go to")
    return parser


if __name__ == "__main__":
    sys.exit(main())
