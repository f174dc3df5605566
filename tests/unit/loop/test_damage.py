"""A loop heals what is its own to heal, and leaves what is not: damaged stores, a second process of its name, a batch
whose partition is no longer its own."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from streams.authority.authority import SessionAuthority
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import Fatal, Misconfigured
from streams.log.record import decode_outcomes, encode_command
from streams.log.topics import Topics
from streams.loop.crash import CrashPoint
from streams.loop.loop import Loop
from streams.loop.restore import CHANGELOG
from streams.session.commands import Command
from streams.session.outcomes import Outcome
from streams.settings import Settings
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog
from tests.support.commands import append_messages, create_session, new_id, new_marker

TOPICS = Topics("")


class Bench:
    """One partition, one authority at a time."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(partitions=1, data_dir=folder)
        self.cluster = Cluster(partitions=1)
        self.keyring = open_local_keyring(folder / "keyring")
        self.log = SimulatedLog(self.cluster, "0")

    def loop(self, crash: object = None) -> Loop:
        authority = SessionAuthority(self.settings, Sealer(self.keyring, cache_seconds=10))
        return Loop(self.settings, self.log, authority, threading.Event(), crash=crash)  # type: ignore[arg-type]

    def send(self, command: Command) -> None:
        addressed = msgspec.structs.replace(command, reply_to="test/1", not_after=2**62)
        self.cluster.append((TOPICS.commands, 0), command.session_id.encode(), encode_command(addressed))

    def run(self, loop: Loop, until: Callable[[], bool], steps: int = 200) -> None:
        for _ in range(steps):
            if until():
                return
            loop.step(0)
        raise AssertionError("it did not come to pass")

    def outcomes(self) -> list[Outcome]:
        entries = self.cluster.committed((TOPICS.outcomes, 0))
        return [outcome for entry in entries if entry.value for outcome in decode_outcomes(entry.value)[1]]

    @property
    def store(self) -> Path:
        return self.settings.store_path("authority", 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.keyring.close()


def damage(store: Path) -> None:
    """Flips a byte in every kilobyte of every table, the last ones (index, footer) spared: the store opens, its rows do not."""
    tables = list(store.glob("*.sst"))
    assert tables
    for table in tables:
        content = bytearray(table.read_bytes())
        for at in range(64, max(65, len(content) - 8192), 1024):
            content[at] ^= 0xFF
        table.write_bytes(content)


def test_a_store_with_damaged_blocks_is_rebuilt_while_it_runs(bench: Bench) -> None:
    sessions = [new_id("sess") for _ in range(400)]
    loop = bench.loop()
    for session_id in sessions:
        bench.send(create_session(session_id))
    bench.run(loop, lambda: len(bench.outcomes()) == len(sessions))
    loop.close()
    for _ in range(2):  # what was in the write-ahead log moves into tables
        loop = bench.loop()
        bench.run(loop, lambda loop=loop: bool(loop.step(0)) or (not loop._waiting and not loop._restores))
        loop.close()
    damage(bench.store)
    loop = bench.loop()
    for session_id in sessions:
        bench.send(append_messages(session_id, (new_marker(),)))
    with capture_logs() as logs:
        bench.run(loop, lambda: len(bench.outcomes()) == 2 * len(sessions), steps=2000)
    assert "store_rebuilt" in {line["event"] for line in logs}
    assert {outcome.status for outcome in bench.outcomes()} == {"accepted"}
    assert {outcome.last_sequence for outcome in bench.outcomes()[len(sessions) :]} == {2}
    loop.close()


def test_a_store_whose_offset_lies_beyond_the_log_is_rebuilt(bench: Bench) -> None:
    """As after a broker that lost its tail, or a topic that was made again under the same id."""
    session_id = new_id("sess")
    loop = bench.loop()
    bench.send(create_session(session_id))
    bench.run(loop, lambda: len(bench.outcomes()) == 1)
    store = loop._stores[0]
    store.write([(f"{session_id}/session/".encode(), b"from nowhere")], {CHANGELOG: 10**6})
    loop.close()
    loop = bench.loop()
    bench.send(append_messages(session_id, (new_marker(),)))
    with capture_logs() as logs:
        bench.run(loop, lambda: len(bench.outcomes()) == 2)
    assert "store_rebuilt" in {line["event"] for line in logs}
    assert bench.outcomes()[-1].last_sequence == 2
    loop.close()


def test_a_second_process_of_one_name_does_not_stop_the_first(bench: Bench) -> None:
    first = bench.loop()
    bench.send(create_session(new_id("sess")))
    with pytest.raises(Misconfigured, match="SESSION_STREAMS_INSTANCE"):
        bench.loop()
    bench.run(first, lambda: len(bench.outcomes()) == 1)
    first.close()
    bench.loop().close()


def test_offsets_of_a_partition_that_is_not_owned_are_never_sent(bench: Bench) -> None:
    """The broker would take them: it checks the generation, not what the member owns."""

    class LoseIt:
        def reached(self, point: CrashPoint) -> None:
            if point is CrashPoint.AFTER_PRODUCE:
                bench.log.members[-1].owned = set()

    loop = bench.loop(LoseIt())
    bench.send(create_session(new_id("sess")))
    with pytest.raises(Fatal, match="outlived its assignment"):
        bench.run(loop, lambda: False)
    assert bench.outcomes() == []
    loop.close()


def test_a_hung_transaction_holds_up_its_own_partition_only(tmp_path: Path) -> None:
    cluster = Cluster(partitions=3)
    settings = Settings(partitions=3, data_dir=tmp_path)
    keyring = open_local_keyring(tmp_path / "keyring")
    hung = SimulatedLog(cluster, "9").transactions("foreign")
    hung.initialise()
    hung.begin()
    hung.produce(TOPICS.state, 0, b"k", b"v")
    loop = Loop(settings, SimulatedLog(cluster, "0"), SessionAuthority(settings, Sealer(keyring, cache_seconds=10)), threading.Event())
    for _ in range(20):
        loop.step(0)
    assert set(loop._restores) == {0}
    hung.abort()
    for _ in range(20):
        loop.step(0)
    assert not loop._restores
    loop.close()
    keyring.close()


def test_instances_have_places_of_their_own(bench: Bench) -> None:
    assert replace(bench.settings, instance="1").store_path("authority", 0) != bench.store
