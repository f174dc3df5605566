"""The lines that can be chosen, in the order of measuring, and what each must have beside it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks import (
    agent_checkpoints,
    append,
    authority,
    checkpoints,
    claims,
    erasures,
    exports,
    history,
    limits,
    reads,
    restore,
    snapshots,
    store,
)
from benchmarks.bench import Bench
from benchmarks.results import Result


@dataclass(frozen=True)
class Measure:
    """`needs`: measured before it in the same run, since its ratios are to them."""

    run: Callable[[Bench], Iterator[Result]]
    needs: tuple[str, ...]
    about: str


MEASURES: Final = {
    "limits": Measure(limits.measure, (), "raw produce, raw consume, one raw transaction"),
    "authority": Measure(authority.measure, ("limits",), "events a second through one authority, straight through Kafka"),
    "store": Measure(store.measure, (), "what a row costs in the local store, by thread time"),
    "restore": Measure(restore.measure, (), "an authority's state from its changelog"),
    "append": Measure(append.single, ("limits",), "single appends over HTTP: latency and requests a second at 1, 16, 64, 256 callers"),
    "batch": Measure(append.batches, ("limits", "authority"), "NDJSON batches of 500 over HTTP, 4 callers"),
    "overload": Measure(append.overload, (), "single appends that come at four times the rate that gets through"),
    "reads": Measure(reads.measure, (), "point reads over HTTP: a session, a page of a transcript"),
    "claims": Measure(claims.measure, (), "claims over HTTP: by lane and of named Runs, by 1, 16 and 64 workers, beside appends"),
    "checkpoints": Measure(checkpoints.measure, (), "checkpoints over HTTP: told of, listed while others have few or many, read"),
    "agent-checkpoints": Measure(
        agent_checkpoints.measure, (), "agents' checkpoints over HTTP: saved and read by 1, 16, 64, 256 callers, over a thousand rows"
    ),
    "snapshots": Measure(snapshots.measure, (), "what a worker retains, up and down, beside a copy that seals"),
    "erasure": Measure(
        erasures.measure,
        (),
        "erasures over HTTP: until each is enforced, how many a second; days and checkpoints that expire; appends beside them",
    ),
    "bundle": Measure(
        exports.measure, (), "a session's export and bundle over HTTP beside zstd of the same bytes, and their checks offline"
    ),
    "history": Measure(history.measure, ("limits",), "a claim in a short and in a long session, and the long one's conversation"),
}


def chosen(names: Iterable[str]) -> list[str]:
    """`names`, or all where there are none, with what they need, in the order of measuring. Raises `KeyError` for an unknown one."""
    wanted = list(names) or list(MEASURES)
    for name in wanted:
        wanted.extend(MEASURES[name].needs)  # grows while it is walked, until nothing more is needed
    return [name for name in MEASURES if name in wanted]
