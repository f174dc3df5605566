"""What every measurement stands on: one local Kafka, topics of its own, role processes, and what a process costs.

Whatever happens, nothing of it is left running: children end with this process (`connectors.cli.offspring`).
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from connectors.cli.kafka import LocalKafka
from connectors.cli.offspring import start_child
from streams.log import topics
from streams.log.client import admin, consumer
from streams.log.reader import Place, end_offsets
from streams.log.topics import Topics
from streams.settings import Settings

MB: Final = 1024 * 1024
PARTITIONS: Final = 4
_LOOK_EVERY_S: Final = 0.25
_STOP_S: Final = 30


@dataclass(frozen=True, kw_only=True)
class Options:
    """How much is measured. Durations in seconds."""

    event_bytes: int = 1024
    """Of an event as it stands in `sessions.events`, and of a raw record."""
    raw_records: int = 300_000
    raw_transactions: int = 400
    sessions: int = 10_000
    events: int = 200_000
    """Decided by the authority in each of its lines."""
    restored_sessions: int = 100_000
    store_sessions: int = 200_000
    """In the store whose rows are read and written one by one."""
    rows: tuple[int, ...] = (1000,)
    """Sessions in the tables that point reads go to; each number is measured."""
    claims: int = 2000
    """Of 64 workers; of fewer workers a part of it."""
    checkpoints: int = 100_000
    """Of other sessions than the one that is listed."""
    long_events: int = 100_000
    """Of the long one of two sessions."""
    snapshot_mb: int = 64
    export_events: int = 50_000
    """Of the session that is exported and bundled."""
    erasures: int = 400
    """At once; a quarter of them one by one."""
    expiries: int = 5000
    """Of days, and of checkpoints."""
    load_s: float = 8.0
    warm_s: float = 2.0

    def quick(self) -> "Options":
        """A look whether everything works; too short for figures."""
        return replace(
            self, raw_records=10_000, raw_transactions=30, sessions=200, events=5_000, restored_sessions=1000, store_sessions=5000,
            rows=(100,), claims=160, checkpoints=400, long_events=1000, snapshot_mb=4, export_events=1000, erasures=20,
            expiries=200, load_s=1.0, warm_s=0.3,
        )  # fmt: skip


class Cost:
    """CPU seconds and memory of processes, looked at from outside. Not of their children."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self.rss = dict.fromkeys(pids, 0)
        """In bytes, when last looked at."""
        self.rss_max = dict.fromkeys(pids, 0)

    def cpu_s(self) -> dict[str, float]:
        """Each one's so far; also notes its memory."""
        spent = {}
        for name, process in self._processes.items():
            with process.oneshot():
                times = process.cpu_times()
                self.rss[name] = process.memory_info().rss
            self.rss_max[name] = max(self.rss_max[name], self.rss[name])
            spent[name] = times.user + times.system
        return spent


class Role:
    """One role as a process of its own. `log` holds its JSON lines."""

    def __init__(self, settings: Settings, role: str, *arguments: str, under: tuple[str, ...] = ()) -> None:
        """`under` is a command that runs it (a profiler)."""
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.name = role
        self.log = settings.data_dir / f"{role}.log"
        self.log.unlink(missing_ok=True)
        argv = [*under, sys.executable, "-m", "connectors.cli", role, *arguments, "--log-file", str(self.log)]
        self._output = settings.data_dir / f"{role}.out"
        self.process = start_child(argv, output=self._output, environment={**os.environ, **environment(settings)})

    def check(self) -> None:
        """Raises RuntimeError, with its last lines, once it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the {self.name} ended with status {self.process.returncode}:\n{self._tail()}")

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far; a line that is being written is not one yet."""
        text = self.log.read_text() if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(_STOP_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _tail(self) -> str:
        return "\n".join(line for path in (self.log, self._output) if path.exists() for line in path.read_text().splitlines()[-15:])


@dataclass
class Bench:
    """What the measurements of one run share; `run` holds what was measured so far in it."""

    kafka: LocalKafka
    folder: Path
    options: Options
    say: Callable[[str], None]
    run: dict[str, float] = field(default_factory=dict)
    _made: int = 0

    def known(self, name: str) -> float | None:
        """A figure of this run, to be put in a ratio."""
        return self.run.get(name)

    def settings(self, purpose: str, **changes: Any) -> Settings:
        """Of an installation of its own, whose topics are in place."""
        self._made += 1
        given: dict[str, Any] = {
            "bootstrap": self.kafka.bootstrap,
            "topic_prefix": f"{purpose}{self._made}.",
            "partitions": PARTITIONS,
            "data_dir": self.folder / f"{purpose}-{self._made}",
            **changes,
        }
        settings = Settings(**given)
        topics.apply(settings)
        stamp_on_append(settings, Topics(settings.topic_prefix).events)
        return settings

    def topic(self, purpose: str, partitions: int) -> tuple[Settings, str]:
        """A plain topic, stamped by the broker, and settings to reach it with."""
        self._made += 1
        settings = Settings(bootstrap=self.kafka.bootstrap, topic_prefix=f"{purpose}{self._made}.", partitions=partitions)
        name = f"{settings.topic_prefix}records"
        client = admin(settings)  # kept until the answer is in
        for future in client.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        # Until its partitions have leaders.
        end_offsets(settings, places(settings, name), committed=False)
        return settings, name

    def broker_pid(self) -> int:
        return self.kafka.pid(1)

    def forget(self, settings: Settings) -> None:
        """Frees the disk of an installation that is done with."""
        shutil.rmtree(settings.data_dir, ignore_errors=True)
        names = [spec.name for spec in topics.declared(settings)]
        client = admin(settings)
        for future in client.delete_topics(names).values():
            future.result(30)


@contextmanager
def opened(options: Options, say: Callable[[str], None], broker: Mapping[str, str] | None = None) -> Iterator[Bench]:
    """A bench with a Kafka of its own in a temporary folder. `broker` are further settings of it.

    SIGTERM ends it in order from now on, or its folders would stay.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="session-streams-bench-"))
    try:
        with LocalKafka.start(overrides=broker) as kafka:
            yield Bench(kafka, folder, options, say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(settings: Settings) -> dict[str, str]:
    """The settings as a role reads them."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(root), str(root / "connectors" / "client" / "src"), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, **settings.environment()}


def stamp_on_append(settings: Settings, topic: str) -> None:
    """The broker's clock stamps each record, so that a rate is not taken from the word of whoever wrote it."""
    configure(settings, topic, {"message.timestamp.type": "LogAppendTime"})


def configure(settings: Settings, topic: str, config: Mapping[str, str]) -> None:
    """Changes settings of a topic that is there."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    client = admin(settings)
    for future in client.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]).values():
        future.result(30)


def places(settings: Settings, topic: str) -> list[Place]:
    return [(topic, partition) for partition in range(settings.partitions)]


def total(offsets: Mapping[Place, int]) -> int:
    return sum(offsets.values())


class Progress:
    """How far a group has come in a topic. `committed` waits out a transaction that is about to move it."""

    def __init__(self, settings: Settings, group: str, topic: str) -> None:
        self._places = [TopicPartition(topic, partition) for partition in range(settings.partitions)]
        # The offsets of a group are asked for as one of it; nothing is subscribed, so no member joins.
        self._consumer = consumer(settings, group)

    def committed(self) -> int:
        return sum(max(0, place.offset) for place in self._consumer.committed(self._places, 10))

    def close(self) -> None:
        self._consumer.close()


def every_look(deadline_s: float, what: str, pause_s: float = _LOOK_EVERY_S) -> Iterator[float]:
    """Times at which to look, until the caller stops asking. Raises TimeoutError at the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        yield time.monotonic()
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        time.sleep(pause_s)
