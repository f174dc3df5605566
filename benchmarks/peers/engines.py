"""What is started for each engine, with every setting that is not its default. README.md gives the reasons.

An engine is one way to run the fold; several of one family differ in a setting or in the number of processes.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from benchmarks.bench import PARTITIONS, environment
from benchmarks.peers import environments
from benchmarks.peers.ours import ROLE
from benchmarks.peers.source import COMPACTED
from connectors.cli.kafka.jars import java
from streams.settings import Settings

COMMIT_S: Final = 0.1
_ROOT: Final = Path(__file__).parents[2]
_MB: Final = 1024 * 1024


@dataclass(frozen=True)
class Task:
    """One engine over one input. `name` is new for each, and what its groups, ids and topics are called by."""

    bootstrap: str
    name: str
    source: str
    output: str
    folder: Path

    def state_dir(self, process: int) -> Path:
        return self.folder / f"state-{process}"

    def log(self, process: int) -> Path:
        """What the process says, one file each."""
        return self.folder / f"said-{process}.txt"


@dataclass(frozen=True)
class Start:
    """A command and what it finds in its environment beside ours."""

    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)


class Family(Protocol):
    """How an engine is started, and where it keeps what. Topics that it does not make itself are in `topics`."""

    def start(self, task: Task, process: int) -> Start:
        """Builds what is missing first; raises RuntimeError with the builder's words."""

    def group(self, task: Task) -> str: ...

    def changelog(self, task: Task) -> str: ...

    def topics(self, task: Task) -> dict[str, dict[str, str]]: ...

    def state(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        """Key and 40 bytes of state in a record of the changelog."""


@dataclass(frozen=True)
class Streams:
    """Kafka Streams."""

    threads: int
    caching: bool
    collector: str = "ParallelGC"

    def settings(self, task: Task, process: int) -> dict[str, str]:
        return {
            "fold.input": task.source,
            "fold.output": task.output,
            "fold.caching": str(self.caching).lower(),
            "bootstrap.servers": task.bootstrap,
            "application.id": task.name,
            "state.dir": str(task.state_dir(process)),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": str(int(COMMIT_S * 1000)),
            "num.stream.threads": str(self.threads),
            "statestore.cache.max.bytes": str(64 * _MB if self.caching else 0),
            "buffered.records.per.partition": "10000",
            "replication.factor": "1",
            "consumer.auto.offset.reset": "earliest",
            "main.consumer.max.poll.records": "5000",
            "main.consumer.max.partition.fetch.bytes": str(8 * _MB),
            "restore.consumer.max.poll.records": "10000",
            "restore.consumer.max.partition.fetch.bytes": str(8 * _MB),
            "producer.linger.ms": "10",
            "producer.batch.size": str(256 * 1024),
            "producer.buffer.memory": str(128 * _MB),
            "enable.metrics.push": "false",
        }

    def start(self, task: Task, process: int) -> Start:
        path = task.folder / f"streams-{process}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings(task, process).items()))
        options = ["-Xms1g", "-Xmx1g", f"-XX:+Use{self.collector}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return Start([str(java()), *options, "-cp", environments.classpath(), "bench.Fold", str(path)])

    def group(self, task: Task) -> str:
        return task.name

    def changelog(self, task: Task) -> str:
        return f"{task.name}-fold-changelog"

    def topics(self, task: Task) -> dict[str, dict[str, str]]:
        return {}

    def state(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        return key, value


@dataclass(frozen=True)
class Quix:
    """Quix Streams. Its client is ours (librdkafka), and gets the settings that help ours."""

    commit_s: float = COMMIT_S

    def start(self, task: Task, process: int) -> Start:
        settings = {
            "application": {"commit_interval": self.commit_s},
            "consumer": {"fetch.queue.backoff.ms": 2, "queued.min.messages": 100_000, "queued.max.messages.kbytes": 64 * 1024},
            "producer": {
                "linger.ms": 5,
                "retry.backoff.ms": 1,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 256 * 1024,
            },
        }
        return _script(task, process, environments.python("quix"), "quix.py", settings)

    def group(self, task: Task) -> str:
        return task.name

    def changelog(self, task: Task) -> str:
        return f"changelog__{task.name}--{task.source}--default"

    def topics(self, task: Task) -> dict[str, dict[str, str]]:
        return {}

    def state(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        # Its keys are prefix|name, its values have a stamp of their expiry in front.
        return key.partition(b"|")[0], value[-40:]


@dataclass(frozen=True)
class Faust:
    """Faust, at least once."""

    def start(self, task: Task, process: int) -> Start:
        settings = {
            "application": {
                "store": "rocksdb://?driver=rocksdict",
                "broker_commit_interval": COMMIT_S,
                "broker_commit_every": 1_000_000,
                "consumer_auto_offset_reset": "earliest",
                "consumer_max_fetch_size": 8 * _MB,
                "producer_linger": 0.005,
                "producer_max_batch_size": 256 * 1024,
                "stream_wait_empty": False,
                "stream_recovery_delay": 0.0,
                "table_standby_replicas": 0,
                "topic_disable_leader": True,
                "web_enabled": False,
            }
        }
        return _script(task, process, environments.python("faust"), "faust_.py", settings)

    def group(self, task: Task) -> str:
        return task.name

    def changelog(self, task: Task) -> str:
        return f"{task.name}-fold-changelog"

    def topics(self, task: Task) -> dict[str, dict[str, str]]:
        return {}

    def state(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        return key, value


@dataclass(frozen=True)
class Ours:
    """Our loop, as roles run it; it commits as often as it does by itself."""

    def start(self, task: Task, process: int) -> Start:
        settings = {"prefix": f"{task.name}.", "changelog": self.changelog(task), "log": str(task.folder / f"log-{process}.jsonl")}
        return _script(task, process, Path(sys.executable), "ours.py", settings, environment(Settings()))

    def group(self, task: Task) -> str:
        return f"{task.name}.{ROLE}"

    def changelog(self, task: Task) -> str:
        return f"{task.name}.changelog"

    def topics(self, task: Task) -> dict[str, dict[str, str]]:
        return {self.changelog(task): COMPACTED}

    def state(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        return key, value


@dataclass(frozen=True)
class Engine:
    """`few`: too slow for the whole input; it gets a shorter one."""

    family: Family
    about: str
    processes: int = 1
    exactly_once: bool = True
    few: bool = False


ENGINES: Final[Mapping[str, Engine]] = {
    "streams-1": Engine(Streams(1, True), "Kafka Streams, one thread, record cache on"),
    "streams-2": Engine(Streams(2, True), "Kafka Streams, two threads, record cache on"),
    "streams-1-plain": Engine(Streams(1, False), "Kafka Streams, one thread, record cache off"),
    "streams-2-plain": Engine(Streams(2, False), "Kafka Streams, two threads, record cache off"),
    "streams-1-serial": Engine(Streams(1, True, collector="SerialGC"), "Kafka Streams, one thread, record cache on, another collector"),
    "streams-2-serial": Engine(Streams(2, True, collector="SerialGC"), "Kafka Streams, two threads, record cache on, another collector"),
    "quix-1": Engine(Quix(), "Quix Streams, one process"),
    "quix-2": Engine(Quix(), "Quix Streams, two processes", processes=2),
    "faust-1": Engine(Faust(), "Faust, one process, at least once", exactly_once=False, few=True),
    "ours-1": Engine(Ours(), "our loop, one process"),
    "ours-2": Engine(Ours(), "our loop, two processes", processes=2),
}
"""In the order of measuring: ours last, since its ratios are to the others."""


def chosen(names: list[str]) -> list[str]:
    """Engines by name or by family (`streams` for all of its kind); all where there are none. Raises KeyError for an unknown one."""
    found: set[str] = set()
    for name in names or list(ENGINES):
        fitting = {each for each in ENGINES if name in (each, each.partition("-")[0])}
        if not fitting:
            raise KeyError(name)
        found |= fitting
    return [each for each in ENGINES if each in found]


def _script(
    task: Task, process: int, python: Path, name: str, settings: dict[str, Any], given_environment: Mapping[str, str] | None = None
) -> Start:
    """A script of this folder, with a JSON file that says what it is started for (`fold.task`)."""
    path = task.folder / f"task-{process}.json"
    common = {
        "bootstrap": task.bootstrap, "name": task.name, "input": task.source, "output": task.output, "partitions": PARTITIONS,
        "state_dir": str(task.state_dir(process)), "process": process,
    }  # fmt: skip
    path.write_bytes(msgspec.json.encode(common | settings))
    return Start([str(python), str(environments.HERE / name), str(path)], dict(given_environment or {"PYTHONPATH": str(_ROOT)}))
