"""One engine over one input: started, watched until its group has committed everything, stopped, and checked.

The input lies in Kafka before the engine starts, so that nobody competes with it but the broker.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

from confluent_kafka import KafkaException, Message, TopicPartition

from benchmarks.bench import MB, Bench, Cost, Progress, every_look, places
from benchmarks.peers import check, source
from benchmarks.peers.check import Audit, State, WrongOutput
from benchmarks.peers.engines import Engine, Task
from benchmarks.peers.source import Source
from benchmarks.results import Result
from connectors.cli.offspring import start_child
from streams.errors import BrokerUnavailable
from streams.log.client import consumer, translate
from streams.log.reader import end_offsets
from streams.settings import Settings

_WARM: Final = 0.1
_DEADLINE_S: Final = 600.0
_STOP_S: Final = 30.0
_numbers: Final = count(1)


@dataclass(frozen=True)
class _Look:
    """At one moment: records committed, CPU seconds of the engine's processes and of the broker."""

    at_s: float
    done: int
    engine_s: float
    broker_s: float


class Processes:
    """The processes of one engine."""

    def __init__(self, engine: Engine, task: Task) -> None:
        self._task = task
        self._started = []
        for process in range(engine.processes):
            start = engine.family.start(task, process)
            child = start_child(start.argv, output=task.log(process), environment={**os.environ, **start.environment})
            self._started.append(child)

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._started]

    def check(self) -> None:
        """Raises RuntimeError, with its last lines, once one has ended."""
        for process, child in enumerate(self._started):
            if child.poll() is not None:
                said = self._task.log(process).read_text().splitlines()[-25:]
                raise RuntimeError(f"{self._task.name} ended with status {child.returncode}:\n" + "\n".join(said))

    def stop(self) -> None:
        """All at once; whoever is left after a while is killed."""
        deadline = time.monotonic() + _STOP_S
        for child in self._started:
            child.terminate()
        while any(child.poll() is None for child in self._started) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.kill()

    def kill(self) -> None:
        for child in self._started:
            if child.poll() is None:
                child.kill()
                child.wait()


@contextmanager
def task_of(bench: Bench, engine: Engine, name: str, topic: str) -> Iterator[Task]:
    """With the topics that the engine does not make itself; its folder and topics are gone behind it."""
    settings = plain(bench)
    unique = f"{name}.{next(_numbers)}"
    task = Task(bench.kafka.bootstrap, unique, topic, f"bench.fold.output.{unique}", bench.folder / unique)
    task.folder.mkdir(parents=True)
    made = {task.output: source.STAMPED, **engine.family.topics(task)}
    source.create(settings, made)
    try:
        yield task
    finally:
        source.delete(settings, [*{*made, engine.family.changelog(task)}])
        shutil.rmtree(task.folder)


def plain(bench: Bench) -> Settings:
    """Names as they are: nothing is put before them."""
    return Settings(bootstrap=bench.kafka.bootstrap)


def measured(bench: Bench, name: str, engine: Engine, given: Source) -> Result:
    """Events a second from the first tenth of the outputs to the last. Raises `WrongOutput`, RuntimeError, TimeoutError."""
    with task_of(bench, engine, name, given.topic) as task:
        processes = Processes(engine, task)
        try:
            looks, rss = _watched(bench, processes, engine.family.group(task), given)
            processes.stop()
        finally:
            processes.kill()
        stamps, duplicates = _outputs(plain(bench), task.output, given, exactly_once=engine.exactly_once)
        check.compare(_states(plain(bench), engine, task), given.expected, "changelog")
    return Result(
        name=f"{name}_{given.value_bytes}_B_events_per_s",
        value=check.rate_per_s(stamps, _WARM),
        unit="events/s",
        details={
            "second_half_per_s": check.rate_per_s(stamps, 0.5),
            **_spent(looks, given.events),
            "rss_max_mb": rss / MB,
            "duplicates": duplicates,
            "events": given.events,
        },
    )


def _watched(bench: Bench, processes: Processes, group: str, given: Source) -> tuple[list[_Look], int]:
    """Until the group has committed the whole input; and the most memory that the engine took, all processes together."""
    progress = Progress(plain(bench), group, given.topic)
    cost = Cost({str(pid): pid for pid in processes.pids} | {"broker": bench.broker_pid()})
    looks = []
    for now in every_look(_DEADLINE_S, f"{group} over {given.topic}"):
        processes.check()
        spent = cost.cpu_s()
        broker_s = spent.pop("broker")
        looks.append(_Look(now, _done(progress), sum(spent.values()), broker_s))
        if looks[-1].done >= given.events:
            break
    progress.close()
    return looks, sum(most for name, most in cost.rss_max.items() if name != "broker")


def _done(progress: Progress) -> int:
    """Records committed; 0 while the broker is still making room for the first group of all."""
    try:
        return progress.committed()
    except KafkaException as error:
        if not isinstance(translate(error, "reading committed offsets"), BrokerUnavailable):
            raise
        return 0


def _outputs(settings: Settings, topic: str, given: Source, *, exactly_once: bool) -> tuple[list[int], int]:
    """The broker's stamps (ms) of all outputs, in order of time, and how many were doubled. Raises `WrongOutput`."""
    audit = Audit(given.expected, duplicates_allowed=not exactly_once)
    stamps = []
    for message in committed(settings, topic):
        key, value = message.key(), message.value()
        if key is None or value is None or len(value) != given.value_bytes + 40:
            raise WrongOutput(f"{topic}: an output without key or value, or of another size")
        audit.add(key, value)
        stamps.append(message.timestamp()[1])
    audit.finish()
    return sorted(stamps), audit.duplicates


def _states(settings: Settings, engine: Engine, task: Task) -> dict[bytes, State]:
    """What a restore from the changelog would come to."""
    states: dict[bytes, State] = {}
    for message in committed(settings, engine.family.changelog(task)):
        key, value = message.key(), message.value()
        if key is None or value is None:
            raise WrongOutput("a record of the changelog without key or value")
        whose, packed = engine.family.state(key, value)
        states[whose] = check.state_of(packed)
    return states


def committed(settings: Settings, topic: str) -> Iterator[Message]:
    """Everything that is committed, partition by partition in order. Raises TimeoutError."""
    ends = end_offsets(settings, places(settings, topic), committed=False)
    receiver = consumer(settings, "bench", {"enable.partition.eof": True})
    receiver.assign([TopicPartition(topic, partition, 0) for _, partition in ends])
    left = {partition for (_, partition), end in ends.items() if end > 0}
    deadline = time.monotonic() + _DEADLINE_S
    try:
        while left:
            for message in receiver.consume(5000, 0.1):
                partition = message.partition()
                if message.error() is None:
                    yield message
                elif partition is not None:
                    left.discard(partition)
            if time.monotonic() > deadline:
                raise TimeoutError(f"reading {topic}")
    finally:
        receiver.close()


def _spent(looks: Sequence[_Look], events: int) -> Mapping[str, float]:
    """CPU seconds a million events behind the first tenth."""
    steady = [look for look in looks if look.done >= _WARM * events]
    first, last = (steady[0], steady[-1]) if len(steady) > 1 else (looks[0], looks[-1])
    millions = max(1, last.done - first.done) / 1e6
    wall = max(0.001, last.at_s - first.at_s)
    return {
        "cpu_s_per_million": (last.engine_s - first.engine_s) / millions,
        "broker_cpu_s_per_million": (last.broker_s - first.broker_s) / millions,
        "cores": (last.engine_s - first.engine_s) / wall,
        "broker_cores": (last.broker_s - first.broker_s) / wall,
    }
