"""A restore goes in batches, says how far it is, and makes the same store whether that is opened for filling or not."""

import shutil
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.log.reader import Row
from streams.loop.crash import NoCrash
from streams.loop.handler import Get
from streams.loop.restore import CHANGELOG, WRITTEN_AT_MS, Restore
from streams.loop.step import Step
from streams.store.store import Store
from streams.store.table import Put, StoreIdentity
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog

RECORDS = 12_000


class Plain:
    """A handler whose store holds what its changelog holds."""

    role, version, input, changelog = "plain", 1, "input", "changelog"

    def handle(self, step: Step) -> None:
        raise AssertionError("nothing is decided here")

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            yield key, value

    def discard(self) -> None:
        raise AssertionError("nothing is decided here")


@pytest.fixture(scope="module")
def log() -> SimulatedLog:
    cluster = Cluster(partitions=1)
    for number in range(RECORDS):
        cluster.append(("changelog", 0), b"%d" % (number % 9000), None if number % 7 == 0 else b"value %d" % number)
    return SimulatedLog(cluster, "0")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "0", StoreIdentity("plain", 1, "c", "t", 0))
    yield store
    store.close()


def test_a_long_restore_tells_how_far_it_is(log: SimulatedLog, store: Store) -> None:
    """By a clock on which each look takes three seconds: a line every second look, and one at the end."""
    seconds = count(0, 3)
    restore = Restore(log, Plain(), 0, store, NoCrash(), clock=lambda: float(next(seconds)))
    with capture_logs() as lines:
        while not restore.step(0):
            """A budget of nothing is one batch."""
    told = [(line["event"], line["percent"], line["records"], line["end"]) for line in lines]
    assert told == [("store_restoring", 83, 10_000, RECORDS), ("store_restored", 100, RECORDS, RECORDS)]
    assert store.offsets()[CHANGELOG] == RECORDS


@pytest.mark.parametrize("fill_from", [0, 2 * RECORDS])
def test_a_store_that_is_filled_ends_as_any_other(log: SimulatedLog, store: Store, fill_from: int) -> None:
    restore = Restore(log, Plain(), 0, store, NoCrash(), fill_from=fill_from)
    while not restore.step(0):
        assert store.offsets()[CHANGELOG] < RECORDS
        assert WRITTEN_AT_MS in store.offsets()
    last: dict[int, int] = {number % 9000: number for number in range(RECORDS)}
    with store.scan(b"") as rows:
        assert dict(rows) == {b"%d" % key: b"value %d" % number for key, number in last.items() if number % 7}


def test_a_restore_that_is_killed_while_it_fills_is_taken_up_where_the_store_says(store: Store, tmp_path: Path) -> None:
    """The store's files are copied after each batch, as a kill there would leave them; each copy is restored to the same end."""
    cluster = Cluster(partitions=1)
    for number in range(40_000):
        cluster.append(("changelog", 0), b"%d" % (number % 30_000), b"%d" % number * 300)
    log = SimulatedLog(cluster, "0")
    restore, copies = Restore(log, Plain(), 0, store, NoCrash(), fill_from=0), []
    while not restore.step(0):
        copies.append((store.offsets()[CHANGELOG], tmp_path / f"killed-{len(copies)}"))
        shutil.copytree(store.path, copies[-1][1])
    begun = []
    for written, path in copies:
        copy = Store.open(path, store.identity)
        begun.append(copy.offsets().get(CHANGELOG, 0))
        assert begun[-1] <= written
        again = Restore(log, Plain(), 0, copy, NoCrash(), fill_from=0)
        while not again.step(0):
            """To the end."""
        assert copy.digest() == store.digest()
        copy.close()
    assert 0 < begun[-1] < copies[-1][0], begun
