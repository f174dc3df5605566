"""Work that comes with time and not with records, in the loop's own transaction."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streams.errors import Fatal, StoreUnusable
from streams.log.reader import Row
from streams.loop.crash import CrashPoint
from streams.loop.handler import Get
from streams.loop.loop import Loop
from streams.loop.restore import INPUT
from streams.loop.step import Step
from streams.settings import Settings
from streams.store.table import Put, Reads
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog
from tests.support.timekeeping import ActAt

IN, OUT, TABLE = "in", "out", "table"


class Alarm:
    """Rings once at `due`, in each partition; what it has rung is in its table."""

    role, version, input, changelog, tick_s = "alarm", 1, IN, TABLE, 0.0

    def __init__(self, due: int) -> None:
        self.due = due
        self.steps: list[tuple[int, int]] = []
        self.discarded = 0
        self.damaged = False

    def handle(self, step: Step) -> None:
        for record in step.records:
            step.put(b"seen", record.value)

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        if self.damaged:
            raise StoreUnusable("torn")
        return now >= self.due and store.get(b"rung") is None

    def tick(self, step: Step) -> None:
        if self.damaged:
            self.damaged = False
            raise StoreUnusable("torn")
        self.steps.append((step.now, len(step.records)))
        step.put(b"rung", step.get(b"seen") or b"nothing seen")
        step.produce(OUT, step.partition, b"alarm", b"%d" % step.now)

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            yield key, value

    def discard(self) -> None:
        self.discarded += 1


class Bench:
    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.settings = Settings(partitions=partitions, data_dir=folder)
        self.cluster = Cluster(partitions)
        self.now = 1000
        self.alarm = Alarm(due=2000)
        self.crash = ActAt()
        self.loops: list[Loop] = []

    def loop(self, instance: str = "0", *, timed: bool = True) -> Loop:
        settings = replace(self.settings, instance=instance)
        self.log = SimulatedLog(self.cluster, instance)
        loop = Loop(
            settings, self.log, self.alarm, threading.Event(), crash=self.crash,
            timekeeper=self.alarm if timed else None, clock=lambda: self.now,
        )  # fmt: skip
        self.loops.append(loop)
        for _ in range(4):  # joined, restored, and at the end of the topic
            loop.step(0)
        return loop

    def rung(self) -> list[bytes | None]:
        return [entry.value for entry in self.cluster.committed((OUT, 0))]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for loop in bench.loops:
        loop.close()


def test_what_is_due_is_done_in_a_transaction_without_records(bench: Bench) -> None:
    loop = bench.loop()
    loop.step(0)
    assert bench.rung() == []
    bench.now = 2000
    assert loop.step(0) == 0
    assert bench.rung() == [b"2000"]
    assert loop._stores[0].get(b"rung") == b"nothing seen"
    assert [entry.key for entry in bench.cluster.committed((TABLE, 0))] == [b"rung"]
    for _ in range(3):
        loop.step(0)
    assert bench.alarm.steps == [(2000, 0)]


def test_records_and_time_share_a_transaction_and_the_records_come_first(bench: Bench) -> None:
    loop = bench.loop()
    bench.now = 2000
    bench.cluster.append((IN, 0), b"k", b"the last")
    assert loop.step(0) == 1
    assert bench.alarm.steps == [(2000, 1)]
    assert loop._stores[0].get(b"rung") == b"the last"


def test_without_a_timekeeper_no_transaction_comes_without_records(bench: Bench) -> None:
    loop = bench.loop(timed=False)
    bench.now = 2000
    for _ in range(3):
        loop.step(0)
    assert bench.alarm.steps == []
    assert bench.cluster.groups["alarm"].committed == {}


def test_it_sends_the_position_below_which_everything_is_in_the_store(bench: Bench) -> None:
    for value in (b"1", b"2"):
        bench.cluster.append((IN, 0), b"k", value)
    loop = bench.loop()
    bench.now = 2000
    loop.step(0)
    assert bench.cluster.groups["alarm"].committed[(IN, 0)] == 2
    assert loop._stores[0].offsets()[INPUT] == 2
    assert loop._stores[0].get(b"seen") == b"2"


def test_a_member_that_was_thrown_out_commits_nothing_that_time_has_caused(bench: Bench) -> None:
    """It stood still between its look at the group and its commit; its partition has another owner now."""
    loop = bench.loop()
    bench.now = 2000
    bench.crash.point, bench.crash.action = CrashPoint.AFTER_PRODUCE, bench.log.members[-1].expire
    loop.step(0)
    assert bench.rung() == []
    assert bench.alarm.discarded == 1
    assert loop._stores[0].get(b"rung") is None


def test_a_partition_that_is_not_owned_any_more_ends_the_process(bench: Bench) -> None:
    def lose() -> None:
        bench.log.members[-1].owned = set()

    loop = bench.loop()
    bench.now = 2000
    bench.crash.point, bench.crash.action = CrashPoint.AFTER_PRODUCE, lose
    with pytest.raises(Fatal, match="outlived its assignment"):
        loop.step(0)
    assert bench.rung() == []


def test_a_partition_that_is_being_restored_is_not_asked(bench: Bench) -> None:
    hung = SimulatedLog(bench.cluster, "9").transactions("foreign")
    hung.initialise()
    hung.begin()
    hung.produce(TABLE, 0, b"k", b"v")
    bench.now = 2000
    loop = bench.loop()
    for _ in range(3):
        loop.step(0)
    assert bench.alarm.steps == []
    hung.abort()
    for _ in range(4):
        loop.step(0)
    assert bench.rung() == [b"2000"]


def test_a_store_that_is_damaged_where_time_is_looked_up_is_rebuilt(bench: Bench) -> None:
    loop = bench.loop()
    bench.cluster.append((IN, 0), b"k", b"seen")
    loop.step(0)
    bench.now, bench.alarm.damaged = 2000, True
    for _ in range(6):
        loop.step(0)
    assert bench.rung() == [b"2000"]
    assert loop._stores[0].get(b"rung") == b"seen"


@pytest.mark.parametrize("point", [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE])
def test_killed_anywhere_what_is_due_is_done_once(bench: Bench, point: CrashPoint) -> None:
    class Gone(BaseException):
        pass

    def die() -> None:
        raise Gone

    loop = bench.loop()
    bench.now = 2000
    bench.crash.point, bench.crash.action = point, die
    with pytest.raises(Gone):
        loop.step(0)
    loop.close()
    bench.loops.clear()
    again = bench.loop()
    for _ in range(4):
        again.step(0)
    assert bench.rung() == [b"2000"]
