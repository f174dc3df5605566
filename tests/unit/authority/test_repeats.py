"""Promise 2's memory: a repeat is answered alike for a day at least, and what is older than 25 hours is forgotten."""

from pathlib import Path

import msgspec
import pytest

from streams.authority.authority import SessionAuthority
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import SqliteKeyring, open_local_keyring
from streams.log.partitioner import partition_of
from streams.log.reader import Record
from streams.log.record import decode_event, decode_outcomes, encode_command
from streams.log.topics import Topics
from streams.loop.crash import NoCrash
from streams.loop.restore import Restore
from streams.loop.step import Step
from streams.session.commands import Command
from streams.session.outcomes import Outcome
from streams.settings import Settings
from streams.store.memory import MemoryStore
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog
from tests.support.commands import append_messages, create_session, new_id, new_marker, now_us

HOUR_US = 3600 * 1_000_000
TOPICS = Topics("")


class Partition:
    """One partition's store and the authority over it, with the clock in the test's hands."""

    def __init__(self, keyring: SqliteKeyring) -> None:
        self.settings = Settings(partitions=1)
        self.authority = SessionAuthority(self.settings, Sealer(keyring, cache_seconds=10))
        self.store = MemoryStore()
        self.changelog: list[tuple[bytes, bytes | None]] = []
        self.now = now_us()
        self.accepted_at: list[int] = []
        """Of each event."""
        self._offset = 0

    def decide(self, command: Command) -> Outcome:
        value = encode_command(msgspec.structs.replace(command, reply_to="test/1", not_after=2**62))
        key = command.session_id.encode()
        assert partition_of(key, 1) == 0
        step = Step(0, self.store, [Record(TOPICS.commands, 0, self._offset, key, value, 0)], self.now, 0)
        self._offset += 1
        self.authority.handle(step)
        self.store.write([*step.changelog.items(), *step.local.items()], {})
        self.changelog += step.changelog.items()
        events = [decode_event(output.value) for output in step.outputs if output.topic == TOPICS.events and output.value is not None]
        self.accepted_at += [event.accepted_at for event in events]
        (outcome,) = [output for output in step.outputs if output.topic == TOPICS.outcomes]
        assert outcome.value is not None
        return decode_outcomes(outcome.value)[1][0]

    def rows(self, prefix: bytes) -> int:
        with self.store.scan(prefix) as rows:
            return sum(1 for _ in rows)

    def restored(self) -> MemoryStore:
        """An empty store after a restore of the whole changelog, in one batch, tombstones included."""
        cluster = Cluster(partitions=1)
        for key, value in self.changelog:
            cluster.append((TOPICS.state, 0), key, value)
        store = MemoryStore()
        restore = Restore(SimulatedLog(cluster, "0"), self.authority, 0, store, NoCrash())
        while not restore.step(1):
            pass
        return store


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(open_local_keyring(tmp_path))


def test_a_repeat_after_a_day_is_answered_alike(partition: Partition) -> None:
    session_id = new_id("sess")
    command = create_session(session_id)
    first = partition.decide(command)
    partition.now += 24 * HOUR_US
    again = partition.decide(command)
    assert (again.repeated, again.status, again.first_sequence) == (True, first.status, 1)


def test_what_is_older_than_25_hours_is_forgotten_by_later_work_and_a_restore_forgets_it_too(partition: Partition) -> None:
    old = [create_session(new_id("sess")) for _ in range(20)]
    for command in old:
        partition.decide(command)
    assert (partition.rows(b"~outcomes/"), partition.rows(b"~command/")) == (20, 20)
    partition.now += 25 * HOUR_US + 1
    for done in range(1, 4):
        # A bounded number at a time: what piles up over a quiet night does not hold up the morning's first command.
        partition.decide(create_session(new_id("sess")))
        left = max(0, 20 - 8 * done)
        assert (partition.rows(b"~outcomes/"), partition.rows(b"~command/")) == (left + done, left + done)
    assert partition.restored().digest() == partition.store.digest()
    # Decided anew, and refused by the session's own state: it is there already.
    again = partition.decide(old[0])
    assert (again.repeated, again.code) == (False, "runtime.already_exists")


def test_an_answer_is_of_the_time_that_its_events_have_where_the_clock_is_behind_that_of_the_authority_before(partition: Partition) -> None:
    """What is counted from the answer is then what is counted from the event: when a checkpoint expires."""
    created = create_session(new_id("sess"))
    first = partition.decide(created)
    partition.now -= 10_000_000
    command = append_messages(created.session_id, (new_marker(),))
    answer = partition.decide(command)
    assert answer.status == "accepted"
    assert answer.decided_at == partition.accepted_at[-1] == first.decided_at
    partition.now += 1
    assert partition.decide(command).decided_at == answer.decided_at
    refused = partition.decide(create_session(created.session_id))
    assert (refused.status, refused.decided_at) == ("rejected", partition.now)


def test_an_expired_command_is_not_remembered(partition: Partition) -> None:
    command = create_session(new_id("sess"))
    value = encode_command(msgspec.structs.replace(command, reply_to="test/1", not_after=partition.now - 1))
    step = Step(0, partition.store, [Record(TOPICS.commands, 0, 0, command.session_id.encode(), value, 0)], partition.now, 0)
    partition.authority.handle(step)
    assert not step.changelog
    assert not step.local
    assert partition.decide(command).repeated is False
