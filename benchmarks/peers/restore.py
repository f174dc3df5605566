"""A million keys from the changelog into an empty store: Kafka Streams and our loop.

Both restore equally many records of equal bytes, put into their changelog beforehand; the input is empty. The seconds go
from the moment at which the first partition's restore begins (by the engine's own word: Kafka Streams' listener, our loop's
log) to the end of the last one's.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.bench import MB, PARTITIONS, Bench, Cost, every_look
from benchmarks.peers import run, source
from benchmarks.peers.engines import ENGINES, Ours, Task
from benchmarks.peers.fold import STATE_BYTES
from benchmarks.peers.run import Processes
from benchmarks.results import Result
from benchmarks.traffic import Keyed, produce, sender

_DEADLINE_S: Final = 300.0
_NAMES: Final = ("streams-1", "streams-2", "ours-1")

Spans = Mapping[int, tuple[float, float]]
"""Of partitions that are restored: begin and end, seconds."""


def measure(bench: Bench, keys: int) -> Iterator[Result]:
    """<engine>_restore_s."""
    topic = "bench.fold.input.empty"
    source.create(run.plain(bench), {topic: {}})
    try:
        for name in _NAMES:
            yield _measured(bench, name, topic, keys)
    finally:
        source.delete(run.plain(bench), [topic])


def _measured(bench: Bench, name: str, topic: str, keys: int) -> Result:
    engine = ENGINES[name]
    with run.task_of(bench, engine, name, topic) as task:
        changelog = engine.family.changelog(task)
        if changelog not in engine.family.topics(task):
            source.create(run.plain(bench), {changelog: source.COMPACTED})
        produce(sender(run.plain(bench)), changelog, PARTITIONS, _states(keys))
        processes = Processes(engine, task)
        try:
            cost = Cost({"engine": processes.pids[0]})
            for _ in every_look(_DEADLINE_S, f"{name}: restoring"):
                processes.check()
                cost.cpu_s()
                spans = _ours(task.folder / "log-0.jsonl") if isinstance(engine.family, Ours) else _streams(task)
                if len(spans) == PARTITIONS:
                    break
            cpu_s = cost.cpu_s()["engine"]
            processes.stop()
        finally:
            processes.kill()
    seconds = max(end for _, end in spans.values()) - min(begin for begin, _ in spans.values())
    return Result(
        name=f"{name}_restore_s",
        value=seconds,
        unit="s",
        details={"keys": keys, "keys_per_s": keys / seconds, "cpu_s_with_start": cpu_s, "rss_max_mb": cost.rss_max["engine"] / MB},
    )


def _states(keys: int) -> Iterator[Keyed]:
    random = Random(2)
    for _ in range(keys):
        yield f"sess_{random.getrandbits(128):032x}".encode(), random.randbytes(STATE_BYTES)


def _streams(task: Task) -> Spans:
    """Lines of `event partition records milliseconds`; a line that is being written is not one yet."""
    begun, spans = {}, {}
    for line in _whole_lines(task.log(0)):
        words = line.split()
        if words[:1] == ["restore_started"]:
            begun[int(words[1])] = int(words[3]) / 1000
        elif words[:1] == ["restore_ended"]:
            spans[int(words[1])] = (begun[int(words[1])], int(words[3]) / 1000)
    return spans


def _ours(log: Path) -> Spans:
    spans = {}
    for line in map(json.loads, _whole_lines(log)):
        if line["event"] == "store_restored":
            end = datetime.fromisoformat(line["timestamp"]).timestamp()
            spans[int(line["partition"])] = (end - line["seconds"], end)
    return spans


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
