"""The nine promises of the log (docs/promises.md), each on a real broker, under its number."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec
import pytest

from streams.authority.authority import SessionAuthority
from streams.clock import now_us
from streams.custody.dead_letters import Address, open_dead_letter
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log.client import producer
from streams.log.log import KafkaLog
from streams.log.partitioner import partition_of
from streams.log.record import decode_dead_letter
from streams.log.topics import Topics
from streams.loop.crash import CrashPoint
from streams.session.outcomes import ACCEPTED, REJECTED
from streams.settings import Settings
from tests.consistency.checkers import check
from tests.support.asker import Asker
from tests.support.commands import append_messages, create_session, new_id, new_marker
from tests.support.load import Load, read_events
from tests.support.processes import Fleet, eventually

DECISIVE = (CrashPoint.AFTER_PRODUCE, CrashPoint.AFTER_SEND_OFFSETS, CrashPoint.AFTER_COMMIT)
"""Where it is decided whether a batch counts; the simulator and the soak stop at every point."""
FAST = {"member_session_timeout_s": 6.0, "transaction_timeout_s": 4.0, "partitions": 4}


def points(*often: CrashPoint, soak: Iterable[CrashPoint]) -> list[object]:
    return [*often, *(pytest.param(point, marks=pytest.mark.soak) for point in soak)]


@pytest.fixture
def fast(settings: Settings) -> Settings:
    return replace(settings, **FAST)  # type: ignore[arg-type]


@pytest.fixture
def asker(fast: Settings) -> Iterator[Asker]:
    asker = Asker(fast)
    yield asker
    asker.close()


def sequences(settings: Settings, session_id: str) -> list[int]:
    return [entry.event.sequence for entry in read_events(settings) if entry.event.session_id == session_id]


def test_promise_1_sequences_are_1_2_3_without_gap_in_partition_order(fast: Settings) -> None:
    load = Load(fast)
    with Fleet(fast) as fleet, load.running():
        fleet.start("authority")
        eventually(lambda: load.accepted() >= 200)
    history = load.finish()
    assert check(history) == {}
    assert len(history.log) >= 200


def test_promise_2_a_repeated_command_is_answered_alike_even_after_a_restart_into_an_empty_folder(fast: Settings, asker: Asker) -> None:
    session_id = new_id("sess")
    with Fleet(fast) as fleet:
        authority = fleet.start("authority")
        asker.ask(create_session(session_id))
        accepted = append_messages(session_id, (new_marker(),))
        refused = append_messages(session_id, (new_marker(),), expected_sequence=99)
        first, no = asker.ask(accepted), asker.ask(refused)
        assert first is not None
        assert no is not None
        assert (first.status, no.status, no.code) == (ACCEPTED, REJECTED, "runtime.sequence_conflict")
        again = asker.ask(accepted)
        assert again is not None
        assert (again.repeated, again.first_sequence, again.position_offset) == (True, first.first_sequence, first.position_offset)
        authority.kill()
        os.rename(fast.data_dir / "stores", fast.data_dir / "lost")
        authority.restart()
        for command, told in ((accepted, first), (refused, no)):
            repeat = asker.ask(command)
            assert repeat is not None
            assert (repeat.repeated, repeat.status, repeat.code, repeat.first_sequence) == (
                True,
                told.status,
                told.code,
                told.first_sequence,
            )
        other_body = msgspec.structs.replace(accepted, request_digest=b"x" * 32)
        mismatch = asker.ask(other_body)
        assert mismatch is not None
        assert (mismatch.status, mismatch.code) == (REJECTED, "request.idempotency_mismatch")
        assert sequences(fast, session_id) == [1, 2]


@pytest.mark.parametrize("point", points(CrashPoint.AFTER_PRODUCE, soak=[CrashPoint.AFTER_CONSUME, CrashPoint.AFTER_SEND_OFFSETS]))
def test_promise_3_a_stopped_authority_wakes_as_a_zombie_and_cannot_commit(fast: Settings, point: CrashPoint) -> None:
    """Stopped with a batch in hand, past its session and its transaction, while another takes over."""
    load = Load(fast)
    with Fleet(fast) as fleet, load.running():
        first = fleet.start("authority", "0", "--crash-at", f"{point}:40:SIGSTOP")
        eventually(lambda: first.stopped)
        fleet.start("authority", "1")
        before = load.accepted()
        eventually(lambda: load.accepted() >= before + 200, why="no heir took over")
        first.proceed()
        at_wake = load.accepted()
        eventually(lambda: load.accepted() >= at_wake + 200, why="the load did not go on beside the zombie")
        # It had a transaction to commit, and was told that it may not: it rewound, or left.
        eventually(lambda: any(told in first.log() for told in ("batch_rewound", "role_ended")))
    assert check(load.finish()) == {}


def test_promise_3_offsets_are_sent_only_for_partitions_that_are_owned(fast: Settings) -> None:
    """Two authorities share the partitions and rebalance again and again under load."""
    load = Load(fast, sessions=12)
    with Fleet(fast) as fleet, load.running():
        fleet.start("authority", "0")
        for turn in range(3):
            second = fleet.start("authority", str(1 + turn))
            eventually(lambda log=second.log: "partitions_assigned" in log())
            before = load.accepted()
            eventually(lambda seen=before: load.accepted() >= seen + 150)
            if turn % 2:
                second.kill()
            else:
                assert second.stop() == 0
            before = load.accepted()
            eventually(lambda seen=before: load.accepted() >= seen + 150)
    assert check(load.finish()) == {}


def test_promise_5_an_expected_sequence_must_be_the_committed_one(fast: Settings, asker: Asker) -> None:
    session_id = new_id("sess")
    with Fleet(fast) as fleet:
        fleet.start("authority")
        asker.ask(create_session(session_id))
        right = asker.ask(append_messages(session_id, (new_marker(),), expected_sequence=1))
        wrong = asker.ask(append_messages(session_id, (new_marker(),), expected_sequence=1))
        assert right is not None
        assert wrong is not None
        assert (right.status, right.last_sequence) == (ACCEPTED, 2)
        assert (wrong.status, wrong.code, wrong.last_sequence) == (REJECTED, "runtime.sequence_conflict", 2)
        assert sequences(fast, session_id) == [1, 2]


@pytest.mark.parametrize("point", points(*DECISIVE, soak=[each for each in CrashPoint if each not in (*DECISIVE, CrashPoint.IN_RESTORE)]))
def test_promise_6_all_of_a_batch_or_nothing_wherever_the_authority_is_killed(fast: Settings, point: CrashPoint) -> None:
    load = Load(fast)
    with Fleet(fast) as fleet, load.running():
        authority = fleet.start("authority", "0", "--crash-at", f"{point}:25")
        assert authority.wait() == -9
        authority.restart()
        before = load.accepted()
        eventually(lambda: load.accepted() >= before + 50)
    history = load.finish()
    assert check(history) == {}
    assert len(history.log) > 50


@pytest.mark.parametrize("point", points(CrashPoint.AFTER_SEND_OFFSETS, soak=[CrashPoint.AFTER_PRODUCE]))
def test_promise_6_a_new_owner_restores_while_its_predecessors_transaction_still_hangs(fast: Settings, point: CrashPoint) -> None:
    """The predecessor dies with its transaction open; the heir has another id, so only the time-out frees the partition."""
    load = Load(fast)
    with Fleet(fast) as fleet, load.running():
        first = fleet.start("authority", "0", "--crash-at", f"{point}:40")
        eventually(lambda: not first.alive)
        fleet.start("authority", "1")
        before = load.accepted()
        eventually(lambda: load.accepted() >= before + 100, why="no heir took over")
    assert check(load.finish()) == {}


def test_promise_6_a_restore_that_is_killed_begins_again(fast: Settings) -> None:
    load = Load(fast)
    with Fleet(fast) as fleet, load.running():
        authority = fleet.start("authority")
        eventually(lambda: load.accepted() >= 100)
        authority.kill()
        os.rename(fast.data_dir / "stores", fast.data_dir / "lost")
        authority.restart("--crash-at", f"{CrashPoint.IN_RESTORE}:1")
        assert authority.wait() == -9
        authority.restart()
        before = load.accepted()
        eventually(lambda: load.accepted() >= before + 50)
    assert check(load.finish()) == {}


def test_promise_8_what_cannot_be_read_goes_to_the_dead_letters_and_the_partition_moves_on(fast: Settings, asker: Asker) -> None:
    topics = Topics(fast.topic_prefix)
    session_id = new_id("sess")
    key = session_id.encode()
    partition = partition_of(key, fast.partitions)
    foreign = producer(fast, "foreign")
    with Fleet(fast) as fleet:
        fleet.start("authority")
        asker.ask(create_session(session_id))
        damaged: list[tuple[bytes | None, bytes | None]] = [
            (os.urandom(4 << 20), os.urandom(5 << 20)),  # as large as the topic takes, its key no session's
            (key, os.urandom(10 * 1024 * 1024 - 70 * 1024)),
            (key, b"not ours"),
            (key, b""),
            (None, b"\0\0\0\0\x10rest"),
            (key, None),
            (b"someone", b"\0" * 9),
        ]
        for record_key, value in damaged:
            foreign.produce(topics.commands, value, record_key, partition)
        foreign.flush()
        outcome = asker.ask(append_messages(session_id, (new_marker(),)))
        assert outcome is not None
        assert outcome.status == ACCEPTED
    log = KafkaLog(fast)
    place = (topics.deadletter, partition)
    end = log.end_offsets([place], committed=False)[place]
    reader = log.reader("letters", {place: 0})
    records = []
    while reader.position(*place) < end:
        records += reader.read(100, 0.2)
    reader.close()
    letters = [decode_dead_letter(record.value) for record in records if record.value is not None]
    assert [(letter.origin, letter.partition) for letter in letters] == [(topics.commands, partition)] * len(damaged)
    assert len({letter.offset for letter in letters}) == len(damaged)
    assert all(letter.reason for letter in letters)
    keyring = open_local_keyring(fast.data_dir / "keyring")
    sealer = Sealer(keyring, cache_seconds=10)
    opened = [
        open_dead_letter(
            sealer,
            Address(letter.key_day, letter.origin, letter.partition, letter.offset),
            ciphertext=letter.ciphertext,
            digest=letter.digest,
        )
        for letter in letters
    ]
    assert [(letter.key, letter.value) for letter in opened] == damaged
    keyring.close()


def test_promise_9_nobody_is_granted_what_they_gave_up_on(fast: Settings, asker: Asker) -> None:
    session_id = new_id("sess")
    late = append_messages(session_id, (new_marker(),))
    with Fleet(fast) as fleet:
        authority = fleet.start("authority")
        asker.ask(create_session(session_id))
        authority.pause()
        late = msgspec.structs.replace(late, not_after=now_us() + 200_000)
        correlation = asker.send_as_it_is(late)
        time.sleep(0.5)
        authority.proceed()
        outcome = asker.wait(correlation, 20)
        assert outcome is not None
        assert (outcome.status, outcome.code) == (REJECTED, "request.expired")
        # A repeat of that is decided anew.
        again = asker.ask(late)
        assert again is not None
        assert (again.status, again.repeated) == (ACCEPTED, False)
        assert sequences(fast, session_id) == [1, 2]


def test_an_authority_restored_into_an_empty_folder_has_the_same_state(fast: Settings) -> None:
    """A digest over the sorted keys and values of every partition's store."""
    load = Load(fast)
    with Fleet(fast) as fleet:
        authority = fleet.start("authority")
        with load.running():
            eventually(lambda: load.accepted() >= 100)
        assert authority.stop() == 0
        before = digests(fast)
        os.rename(fast.data_dir / "stores", fast.data_dir / "before")
        authority.restart()
        eventually(lambda: authority.log().count("store_restored") >= 2 * fast.partitions)
        assert authority.stop() == 0
    assert digests(fast) == before
    assert len(set(before.values())) > 1


def digests(settings: Settings) -> dict[int, str]:
    from streams.store.store import Store, StoreIdentity

    log, topics = KafkaLog(settings), Topics(settings.topic_prefix)
    cluster, topic = log.cluster_id(), log.topic_id(topics.state)
    found = {}
    for partition in range(settings.partitions):
        path = settings.data_dir / "stores" / "authority" / "0" / str(partition)
        store = Store.open(path, StoreIdentity("authority", SessionAuthority.version, cluster, topic, partition))
        found[partition] = store.digest()
        store.close()
    return found
