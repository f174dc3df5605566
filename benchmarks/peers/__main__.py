"""`python -m benchmarks.peers`: measures the plain fold in each engine, prints a table, writes the results."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from msgspec import structs

from benchmarks import machine, results
from benchmarks.bench import Bench, Options, opened
from benchmarks.peers import restore, run
from benchmarks.peers.engines import ENGINES, chosen
from benchmarks.peers.source import Source, filled
from benchmarks.results import Result, ratio
from connectors.cli.console import INTERRUPTED
from connectors.cli.interrupts import Stopped, raising

_RESULTS: Final = Path("build") / "bench-peers.json"
_RESTORE: Final = "restore"


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    wanted = [name for group in asked.only for name in group.split(",") if name]
    restoring = not wanted or _RESTORE in wanted
    rest = [name for name in wanted if name != _RESTORE]
    names = chosen(rest) if rest or not wanted else []
    print(machine.described(), flush=True)
    try:
        # A signal unwinds what is open: processes, topics, and folders of gigabytes.
        with raising(lambda: None):
            runs = _measured(asked, names, restoring)
    except Stopped:
        return INTERRUPTED
    print(results.table(results.summarise(runs)))
    _say(f"written to {asked.json}")
    return 0


def _measured(asked: argparse.Namespace, names: list[str], restoring: bool) -> list[list[Result]]:
    runs: list[list[Result]] = []
    with opened(Options(), _say) as bench:
        sources = _Sources(bench, asked)
        for number in range(1, asked.runs + 1):
            runs.append([])
            for value_bytes in asked.value_bytes if names else []:
                for name in names:
                    _say(f"run {number} of {asked.runs}: {name}, {value_bytes} B  (load {os.getloadavg()[0]:.1f})")
                    _keep(runs, run.measured(bench, name, ENGINES[name], sources.of(name, value_bytes)), asked.json)
            if restoring:
                _say(f"run {number} of {asked.runs}: {_RESTORE}  (load {os.getloadavg()[0]:.1f})")
                for result in restore.measure(bench, asked.restored_keys):
                    _keep(runs, result, asked.json)
    return runs


class _Sources:
    """The inputs of all runs, each filled when it is first asked for."""

    def __init__(self, bench: Bench, asked: argparse.Namespace) -> None:
        self._bench, self._asked = bench, asked
        self._filled: dict[tuple[int, int], Source] = {}

    def of(self, name: str, value_bytes: int) -> Source:
        events = self._asked.few_events if ENGINES[name].few else self._asked.events
        if (events, value_bytes) not in self._filled:
            begun = time.monotonic()
            topic = f"bench.fold.input.{events}x{value_bytes}"
            self._filled[(events, value_bytes)] = filled(run.plain(self._bench), topic, events, value_bytes, self._asked.keys)
            _say(f"{topic} is filled: {time.monotonic() - begun:.0f} s")
        return self._filled[(events, value_bytes)]


def _keep(runs: list[list[Result]], result: Result, path: Path) -> None:
    """With ratios to the engines measured before it in the same run: of ours to each family's best."""
    compared = {}
    family, _, rest = result.name.partition("-")
    if family == "ours":
        line = rest.partition("_")[2]
        for other in dict.fromkeys(name.partition("-")[0] for name in ENGINES):
            fitting = [each.value for each in runs[-1] if each.name.startswith(f"{other}-") and each.name.endswith(f"_{line}")]
            found = ratio(result.value, (min if result.unit == "s" else max)(fitting, default=None))
            if other != family and found is not None:
                compared[other] = found
    runs[-1].append(structs.replace(result, ratios={**result.ratios, **compared}))
    _say(f"    {result.value:,.4g} {result.unit}")
    # After each, so that what is measured is kept whatever comes.
    results.write(path, results.summarise(runs))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<16} {engine.about}" for name, engine in ENGINES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        epilog=f"engines:\n{lines}\n  {_RESTORE:<16} a million keys from the changelog: Kafka Streams and our loop",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="engines or families (streams, quix, faust, ours), with commas"
    )
    parser.add_argument("--runs", type=int, default=1, help="of everything chosen; told as median and range")
    parser.add_argument("--events", type=int, default=500_000, help="of the input (%(default)s)")
    parser.add_argument("--few-events", type=int, default=20_000, help="of the input of an engine that is slow (%(default)s)")
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[1024, 380], help="of a value of the input; each is measured")
    parser.add_argument("--keys", type=int, default=10_000, help="drawn at random (%(default)s)")
    parser.add_argument("--restored-keys", type=int, default=1_000_000, help="(%(default)s)")
    parser.add_argument("--json", type=Path, default=_RESULTS, help="where the results go (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
