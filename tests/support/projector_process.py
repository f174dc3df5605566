"""A projector as a process of its own, which tests stop and kill; and the log that it reads, written without an authority."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from streams.log.log import KafkaLog, Reader
from streams.log.partitioner import partition_of
from streams.log.reader import Record
from streams.log.topics import Topics
from streams.log.transaction import TransactionalProducer
from streams.projections.fold import Fold
from streams.projections.projector import ROLE
from streams.projections.tables import Tables
from streams.settings import Settings
from streams.store.memory import MemoryStore
from streams.store.store import Store
from streams.store.table import StoreIdentity
from tests.support.event_log import EventLog, session_id

_PROGRAM = """
import signal, sys, threading
import structlog
from connectors.owner.projector import run_projector
from streams.settings import Settings
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run_projector(Settings.from_environment(), "127.0.0.1", int(sys.argv[1]), stop, on_listening=lambda port: print(port, flush=True))
"""


def until(condition: Callable[[], bool], seconds: float = 60, what: str = "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class ProjectorProcess:
    """Started at once; `address` is known when the server listens, which may be long before it may answer.

    One that is started again on the same port is the same member of its group, and goes on at once.
    """

    def __init__(self, settings: Settings, log_path: Path, port: int = 0) -> None:
        self._output = log_path.open("ab")
        self.log_path = log_path
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(port)],
            stdout=subprocess.PIPE, stderr=self._output,
            env={**os.environ, **settings.environment(), "PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip

    @property
    def address(self) -> str:
        if not hasattr(self, "_address"):
            assert self.process.stdout is not None
            self._address = f"127.0.0.1:{int(self.process.stdout.readline())}"
        return self._address

    def get(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=5) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def ready(self) -> bool:
        """Joined, and at the end of every partition that it owns."""
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def serving(self) -> set[int]:
        try:
            state = json.loads(self.get("/readyz")[1])
        except OSError:
            return set()
        return {int(partition) for partition, each in state["partitions"].items() if each["serving"]}

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def end(self) -> int:
        """SIGTERM; its exit code."""
        self.process.terminate()
        return self._reap()

    def _reap(self) -> int:
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._output.close()
        return code


class WrittenLog:
    """Event partitions with sessions in them, and what an undisturbed table of each is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = Topics(settings.topic_prefix).events
        self.logs = [EventLog(partition) for partition in range(settings.partitions)]
        self.sessions: list[str] = []
        self._written = [0] * settings.partitions
        self._producer = TransactionalProducer(settings, "writer")
        self._producer.initialise()

    def create(self, count: int, **more: object) -> None:
        for _ in range(count):
            label = f"session {len(self.sessions)}"
            self.log_of(session_id(label)).create(label, **more)  # type: ignore[arg-type]
            self.sessions.append(session_id(label))

    def log_of(self, session: str) -> EventLog:
        return self.logs[partition_of(session.encode(), self._settings.partitions)]

    def say(self, session: str, count: int = 1, **more: object) -> None:
        self.log_of(session).say(session, count, **more)  # type: ignore[arg-type]

    def write(self, *, abort: bool = False) -> None:
        """Everything new, in one transaction."""
        self._producer.begin()
        for partition, log in enumerate(self.logs):
            for record in log.records[self._written[partition] :]:
                assert record.key is not None
                self._producer.produce(self._topic, partition, record.key, record.value)
            if abort:
                del log.records[self._written[partition] :]
            self._written[partition] = len(log.records)
        if abort:
            self._producer.abort()
        else:
            self._producer.commit()

    def begin(self) -> None:
        """Leaves a transaction open over every partition, with a record in it; `finish` aborts it."""
        self._producer.begin()
        for partition in range(len(self.logs)):
            self._producer.produce(self._topic, partition, session_id("open").encode(), b"\x00")
        self._producer._producer.flush(10)

    def finish(self) -> None:
        self._producer.abort()

    def close(self) -> None:
        self._producer.close()

    def expected(self) -> list[str]:
        """The digests of undisturbed tables, by partition: the log read once, whole, and folded in memory."""
        log = KafkaLog(self._settings)
        places = [(self._topic, partition) for partition in range(self._settings.partitions)]
        ends = log.end_offsets(places, committed=True)
        reader = log.reader("expected", log.log_start_offsets(places))
        found: dict[int, list[Record]] = {partition: [] for _, partition in places}
        until(lambda: _read(reader, found) or all(reader.position(*place) >= ends[place] for place in places), what="the log's end")
        reader.close()
        digests = []
        for partition, records in found.items():
            table = Tables(10).add(partition, MemoryStore())
            if records:
                Fold().apply(table, records)
            digests.append(table.store.digest())
        return digests


def _read(reader: Reader, found: dict[int, list[Record]]) -> bool:
    for record in reader.read(5000, 0.1):
        found[record.partition].append(record)
    return False


def stored_digests(settings: Settings, partitions: Sequence[int] | None = None) -> list[str]:
    """Of the stores that a projector left; none of them may be in use."""
    log, topic = KafkaLog(settings), Topics(settings.topic_prefix).events
    cluster_id, topic_id = log.cluster_id(), log.topic_id(topic)
    digests = []
    for partition in range(settings.partitions) if partitions is None else partitions:
        path = settings.store_path(ROLE, partition)
        store = Store.open(path, StoreIdentity(ROLE, Fold().version, cluster_id, topic_id, partition))
        digests.append(store.digest())
        store.close()
    return digests
