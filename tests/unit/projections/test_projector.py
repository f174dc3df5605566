"""The projector on a simulated log: takes over, starts again, rebuilds, and gives up what is not its own."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from streams.log.topics import Topics
from streams.projections.fold import COMMANDS, EVENTS, Fold
from streams.projections.keeper import LeaseKeeper
from streams.projections.projector import ROLE, Projector, _Progress
from streams.projections.tables import OwnedTable, Tables
from streams.settings import Settings
from streams.store.memory import MemoryStore
from streams.store.store import Store
from streams.store.table import StoreIdentity
from tests.simulator.cluster import Cluster, State, Transaction
from tests.simulator.log import SimulatedLog, SimulatedMember
from tests.support.event_log import EventLog, in_partition

PARTITIONS = 2
TOPIC = Topics("").events


class Log:
    """A cluster, what is to be in its event partitions, and what an undisturbed table of each would be."""

    def __init__(self) -> None:
        self.cluster = Cluster(PARTITIONS)
        self.logs = [EventLog(partition) for partition in range(PARTITIONS)]
        self.sessions = [log.create(in_partition(partition, PARTITIONS)) for partition, log in enumerate(self.logs)]
        self._written = [0] * PARTITIONS

    def write(self, state: State = State.COMMITTED) -> None:
        """Puts what is new into the cluster, in one transaction for each partition."""
        for partition, log in enumerate(self.logs):
            new = log.records[self._written[partition] :]
            if new:
                transaction = Transaction()
                for record in new:
                    self.cluster.append((TOPIC, partition), record.key, record.value, transaction)
                if state is not State.OPEN:
                    self.cluster.end(transaction, state)
                if state is State.ABORTED:
                    del log.records[self._written[partition] :]
                self._written[partition] = len(log.records)

    def expected(self, partition: int) -> str:
        table = Tables(10).add(partition, MemoryStore())
        Fold().apply(table, self.logs[partition].records)
        return table.store.digest()

    def end(self, partition: int) -> int:
        return self.cluster.high_watermark((TOPIC, partition))


class Ends:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def query(self, places: Collection[tuple[str, int]], *, committed: bool, timeout_s: float = 5) -> dict[tuple[str, int], int]:
        return {place: self._cluster.stable_offset(place) if committed else self._cluster.high_watermark(place) for place in places}


class Heard:
    def __init__(self) -> None:
        self.advanced_to: dict[int, list[int]] = {}
        self.gone_from: list[int] = []

    def advanced(self, table: OwnedTable, awaited: Collection[str]) -> None:
        self.advanced_to.setdefault(table.partition, []).append(table.position)

    def gone(self, partitions: Collection[int]) -> None:
        self.gone_from += partitions


class Running:
    """One projector in a thread of its own."""

    def __init__(self, log: Log, path: Path, instance: str = "0", lease_s: float = 10) -> None:
        settings = Settings(partitions=PARTITIONS, data_dir=path, instance=instance, lease_s=lease_s)
        self.log = SimulatedLog(log.cluster, instance)
        self.tables = Tables(lease_s)
        self.heard = Heard()
        self.keeper = LeaseKeeper(self.tables, Ends(log.cluster), TOPIC, lease_s=lease_s)
        self.projector = Projector(settings, self.log, self.tables, self.keeper, self.heard, client_id=f"projector@h:{instance}")
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.projector.run(self.stop)
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        self.stop.set()
        self.keeper.close()
        self.thread.join(10)
        assert not self.thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def owns(self, *partitions: int) -> bool:
        return sorted(self.tables.owned) == sorted(partitions)

    def at_end(self, log: Log) -> bool:
        return bool(self.tables.owned) and all(
            table.position >= log.end(partition) and table.lease.held for partition, table in self.tables.owned.items()
        )


@contextmanager
def running(log: Log, path: Path, instance: str = "0", lease_s: float = 10) -> Iterator[Running]:
    projector = Running(log, path, instance, lease_s)
    projector.thread.start()
    projector.keeper.start()
    try:
        yield projector
    finally:
        projector.end()


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


def digests(path: Path, instance: str = "0") -> list[str]:
    """Of the stores on disk, in the order of their partitions."""
    found = []
    for partition in range(PARTITIONS):
        directory = path / "stores" / "projector" / instance / str(partition)
        store = Store.open(directory, identity_of(partition))
        found.append(store.digest())
        store.close()
    return found


def identity_of(partition: int) -> StoreIdentity:
    return StoreIdentity(ROLE, Fold().version, "simulated", TOPIC, partition)


@pytest.fixture
def log() -> Log:
    log = Log()
    for session, events in zip(log.sessions, log.logs, strict=True):
        events.say(session, 5)
    log.write()
    return log


def expected(log: Log) -> list[str]:
    return [log.expected(partition) for partition in range(PARTITIONS)]


def test_tables_follow_the_log_and_serve_at_its_end(log: Log, tmp_path: Path) -> None:
    with running(log, tmp_path) as projector:
        until(lambda: projector.owns(0, 1) and projector.at_end(log))
        log.logs[0].say(log.sessions[0], 3)
        log.write()
        until(lambda: projector.at_end(log))
        assert projector.heard.advanced_to[0][-1] == log.end(0)
    assert digests(tmp_path) == expected(log)


def test_an_open_transaction_keeps_its_events_back_and_an_aborted_one_for_good(log: Log, tmp_path: Path) -> None:
    before = expected(log)
    with running(log, tmp_path) as projector:
        until(lambda: projector.at_end(log))
        log.logs[0].say(log.sessions[0], 3)
        log.write(State.ABORTED)
        until(lambda: projector.at_end(log))
    assert digests(tmp_path) == before


def test_it_goes_on_behind_what_its_stores_hold(log: Log, tmp_path: Path) -> None:
    with running(log, tmp_path) as projector:
        until(lambda: projector.at_end(log))
    log.logs[1].say(log.sessions[1], 2)
    log.write()
    with capture_logs() as lines, running(log, tmp_path) as projector:
        until(lambda: projector.at_end(log))
        assert len(projector.heard.advanced_to[1]) <= 2
    assert digests(tmp_path) == expected(log)
    assert not [line for line in lines if line["event"] == "store_rebuilt"]
    caught = {line["partition"]: line["records"] for line in lines if line["event"] == "partition_caught_up"}
    assert caught[0] <= 1, "the marker behind its last record at most"


@pytest.mark.parametrize("how", ["lost", "ahead", "another topic", "torn", "older"])
def test_a_store_that_does_not_fit_is_rebuilt_to_the_same_bytes(log: Log, tmp_path: Path, how: str) -> None:
    with running(log, tmp_path) as projector:
        until(lambda: projector.at_end(log))
    directory = tmp_path / "stores" / "projector" / "0" / "0"
    if how == "lost":
        Store.destroy(directory)
    elif how == "torn":
        (directory / "CURRENT").unlink()
    else:
        identity = identity_of(0)
        store = Store.open(directory, identity)
        if how == "ahead":
            store.write([(b"s/foreign", b"x")], {EVENTS: log.end(0) + 1, COMMANDS: 5})
        else:
            changes = {"topic_id": "of a deleted topic"} if how == "another topic" else {"version": 1}
            store._db.put(b"m/identity", msgspec.json.encode(msgspec.structs.replace(identity, **changes)))
        store.close()
    with capture_logs() as lines, running(log, tmp_path) as projector:
        until(lambda: projector.at_end(log))
    assert digests(tmp_path) == expected(log)
    rebuilt = [line for line in lines if line["event"] == "store_rebuilt"]
    assert [line["partition"] for line in rebuilt] == ([] if how == "lost" else [0])
    assert all(line["reason"] for line in rebuilt)


def test_a_table_that_a_reader_found_damaged_is_rebuilt_and_serves_again(log: Log, tmp_path: Path) -> None:
    with capture_logs() as lines, running(log, tmp_path) as projector:
        until(lambda: projector.at_end(log))
        first = projector.tables.owned[0]
        first.damaged = True
        until(lambda: projector.tables.owned.get(0) not in (None, first) and projector.at_end(log))
        assert projector.heard.gone_from == [0]
        assert projector.tables.owned[0].store.digest() == log.expected(0)
    assert [line["reason"] for line in lines if line["event"] == "store_rebuilt"]


def test_another_member_takes_over_part_and_gives_it_back(log: Log, tmp_path: Path) -> None:
    with running(log, tmp_path, "0") as first:
        until(lambda: first.owns(0, 1) and first.at_end(log))
        kept = first.projector._stores[0]
        with running(log, tmp_path, "1") as second:
            until(lambda: first.owns(0) and second.owns(1) and first.at_end(log) and second.at_end(log))
            assert first.projector._stores == {0: kept}, "a store whose partition came back is used on"
            log.logs[0].say(log.sessions[0])
            log.logs[1].say(log.sessions[1])
            log.write()
            until(lambda: first.at_end(log) and second.at_end(log))
            assert second.tables.owned[1].store.digest() == log.expected(1)
        until(lambda: first.owns(0, 1) and first.at_end(log))
        assert [table.store.digest() for _, table in sorted(first.tables.owned.items())] == expected(log)
    assert not first.projector._stores


def test_a_member_without_partitions_is_ready_and_idle(log: Log, tmp_path: Path) -> None:
    with running(log, tmp_path, "0") as first, running(log, tmp_path, "1") as second:
        until(lambda: first.at_end(log) and second.at_end(log))
        with running(log, tmp_path, "2") as third:
            until(lambda: sum(len(each.tables.owned) for each in (first, second, third)) == 2 and first.at_end(log))
            assert third.owns()


def test_records_that_the_table_has_already_are_passed_over(log: Log, tmp_path: Path) -> None:
    """Wherever the client begins to read, a table takes in each record once."""
    rerun = Running(log, tmp_path)
    table = rerun.tables.add(0, MemoryStore())
    records = [record for record in log.logs[0].records if record.partition == 0]
    rerun.projector._progress[0] = _Progress(0)
    for batch in (records[:4], records[:3], records[2:6], records):
        rerun.projector._advance(SimulatedMember(log.cluster, "other", TOPIC, lambda _: {}, lambda _: None), batch)
    assert table.unreadable == 0
    assert table.store.digest() == log.expected(0)
