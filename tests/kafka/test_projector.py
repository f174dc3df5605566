"""Projectors as processes on a real broker: killed, stopped, taken over, rebuilt; their tables equal undisturbed ones."""

import asyncio
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from connectors.cli.ports import free_ports
from connectors.owner.projector_owners import ProjectorOwners
from connectors.owner.token import internal_token
from streams.errors import Invalid, NotFound, NotOwner, Retriable
from streams.log import topics
from streams.log.client import admin
from streams.log.log import KafkaLog
from streams.log.owners import GroupOwners
from streams.log.position import Position
from streams.log.record import decode_event
from streams.log.topics import Topics
from streams.query.pages import EventsPage
from streams.session.events import AttemptAttributes, Attributes, RunAttributes
from streams.settings import Settings
from tests.support.event_log import WORKSPACE, session_id
from tests.support.examples import made_up_id
from tests.support.projector_process import ProjectorProcess, WrittenLog, stored_digests, until

Start = Callable[..., ProjectorProcess]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, lease_s=2.0)


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Start]:
    """Projectors by instance, each on a port of its own."""
    started: list[ProjectorProcess] = []
    ports: dict[str, int] = {}

    def make(**changes: object) -> ProjectorProcess:
        given = replace(settings, **changes)  # type: ignore[arg-type]
        if given.instance not in ports:
            (ports[given.instance],) = free_ports(1)
        process = ProjectorProcess(given, tmp_path / "projector.log", ports[given.instance])
        started.append(process)
        return process

    yield make
    for process in started:
        if process.process.poll() is None:
            process.kill()


@pytest.fixture
def log(settings: Settings) -> Iterator[WrittenLog]:
    log = WrittenLog(settings)
    log.create(40)
    for session in log.sessions:
        log.say(session, 5, ciphertext=b"x" * 200)
    log.write()
    yield log
    log.close()


def ask(settings: Settings, question: Callable[[ProjectorOwners], object]) -> object:
    """One question through a gateway's client in a loop of its own."""

    async def asked() -> object:
        client = ProjectorOwners(settings, internal_token(settings.data_dir))
        try:
            return await question(client)  # type: ignore[misc]
        finally:
            client.close()

    return asyncio.run(asked())


def test_every_read_is_answered_by_the_owner_of_its_partition(settings: Settings, start: Start, log: WrittenLog) -> None:
    until(start().ready)

    async def story(client: ProjectorOwners) -> None:
        for session in log.sessions:
            row = await client.session(WORKSPACE, session)
            page = await client.events(WORKSPACE, session, after=0, limit=100, max_bytes=1 << 20)
            assert isinstance(page, EventsPage)
            assert row.sequence == page.end_sequence == 6
            assert [decode_event(value).sequence for value in page.events] == [1, 2, 3, 4, 5, 6]
        seen: list[str] = []
        cursor = None
        while True:
            listing = await client.sessions(WORKSPACE, cursor=cursor, limit=7)
            seen += [row.session_id for row in listing.sessions]
            cursor = listing.cursor
            if cursor is None:
                break
        assert sorted(seen) == sorted(log.sessions)
        assert len(seen) == len(set(seen))

    ask(settings, story)


def test_a_table_reaches_the_end_of_a_log_that_ends_in_markers_and_aborted_records(
    settings: Settings, start: Start, log: WrittenLog
) -> None:
    process = start()
    until(process.ready)
    before = log.expected()
    log.say(log.sessions[0], 3)
    log.write(abort=True)
    time.sleep(settings.lease_s + 1)
    assert process.ready(), "its position passes what is never handed out"
    assert process.end() == 0
    assert stored_digests(settings) == before


def test_a_read_of_a_position_sees_its_command(settings: Settings, start: Start, log: WrittenLog) -> None:
    """Commands were not really sent: the command topic is filled up to the positions that the events name."""
    until(start().ready)
    session = log.sessions[0]
    partition = log.log_of(session).partition
    log.say(session, 3)
    position = Position(Topics(settings.topic_prefix).commands, partition, log.log_of(session).commands - 2)
    _fill_commands(settings, partition, position.offset + 1)

    async def story(client: ProjectorOwners) -> None:
        waiting = asyncio.create_task(client.session(WORKSPACE, session, position=position, wait_s=10))
        elsewhere = next(each for each in log.sessions if log.log_of(each).partition != partition)
        across = asyncio.create_task(client.session(WORKSPACE, elsewhere, position=position, wait_s=10))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert not across.done()
        await asyncio.to_thread(log.write)
        assert (await waiting).sequence == 9
        assert (await across).sequence == 6
        with pytest.raises(Invalid):
            await client.session(WORKSPACE, session, position=replace_offset(position, 10_000), wait_s=30)
        with pytest.raises(NotFound):
            await client.session(WORKSPACE, session_id("nowhere"))

    ask(settings, story)


def replace_offset(position: Position, offset: int) -> Position:
    return Position(position.topic, position.partition, offset)


def _fill_commands(settings: Settings, partition: int, count: int) -> None:
    producer = KafkaLog(replace(settings, instance="commands")).transactions("commands")
    producer.initialise()
    producer.begin()
    for _ in range(count):
        producer.produce(Topics(settings.topic_prefix).commands, partition, b"k", b"v")
    producer.commit()
    producer.close()


def test_a_follower_hears_of_a_new_event_at_once(settings: Settings, start: Start, log: WrittenLog) -> None:
    until(start().ready)
    session = log.sessions[0]

    async def story(client: ProjectorOwners) -> None:
        following = asyncio.create_task(client.events(WORKSPACE, session, after=6, limit=10, max_bytes=1 << 20, wait_ms=20_000))
        await asyncio.sleep(0.3)
        log.say(session)
        began = time.monotonic()
        await asyncio.to_thread(log.write)
        assert [decode_event(value).sequence for value in (await following).events] == [7]
        assert time.monotonic() - began < 3

    ask(settings, story)


def test_a_worker_that_waits_for_a_lane_gets_its_next_run_and_a_repeated_claim_its_grant(
    settings: Settings, start: Start, log: WrittenLog
) -> None:
    until(start().ready)
    session, run_id, digest = log.sessions[0], made_up_id("run"), "sha256:" + "d" * 64

    async def accepted(event_type: str, attributes: Attributes, **more: object) -> None:
        log.log_of(session).command(session, [(event_type, attributes)], run_id=run_id, **more)
        await asyncio.to_thread(log.write)

    async def story(client: ProjectorOwners) -> None:
        waiting = asyncio.create_task(client.claimable(WORKSPACE, ["l"], wait_ms=20_000))
        await asyncio.sleep(0.3)
        await accepted("run.accepted", RunAttributes(lane="l"))
        assert [row.run_id for row in await waiting] == [run_id]
        assert await client.claimed(WORKSPACE, digest) is None
        await accepted("attempt.started", AttemptAttributes(claim_digest=digest), attempt_generation=1)
        found = await client.claimed(WORKSPACE, digest)
        assert found is not None
        assert (found.run_id, found.generation) == (run_id, 1)
        assert await client.claimable(WORKSPACE, ["l"]) == ()

    ask(settings, story)


def live(log: WrittenLog, session: str, number: int, chance: random.Random) -> None:
    """Runs of a session are accepted, claimed and over; a session closes now and then."""
    here, run_id = log.log_of(session), made_up_id("run", f"{session} {number}")
    here.command(session, [("run.accepted", RunAttributes(lane="l"))] * chance.randint(1, 2), run_id=run_id)
    if chance.random() < 0.5:
        here.command(
            session, [("attempt.started", AttemptAttributes(claim_digest="sha256:" + "d" * 64))], run_id=run_id, attempt_generation=1
        )
    if chance.random() < 0.3:
        here.command(session, [(chance.choice(["attempt.failed", "run.completed"]), None)], run_id=run_id, attempt_generation=1)
    if chance.random() < 0.05:
        here.close(session)


def test_a_projector_killed_anywhere_ends_with_the_table_of_an_undisturbed_one(settings: Settings, start: Start, tmp_path: Path) -> None:
    """SIGKILL after random times of a catch-up, five times; then a rebuild from nothing: the same bytes all three ways."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    log = WrittenLog(settings)
    log.create(200)
    for number in range(8):
        for session in log.sessions:
            log.say(session, chance.randint(1, 8), ciphertext=chance.randbytes(chance.choice((0, 50, 3000))))
            live(log, session, number, chance)
        log.logs[0].append(log.sessions[0].encode(), b"\x00 unreadable")
        log.write()
    for _ in range(5):
        process = start()
        _ = process.address
        time.sleep(chance.uniform(0, 0.8))
        process.kill()
        log.say(log.sessions[0])
        log.write()
    process = start()
    until(process.ready)
    assert process.end() == 0
    expected = log.expected()
    assert stored_digests(settings) == expected
    shutil.rmtree(settings.data_dir / "stores")
    process = start()
    until(process.ready)
    assert process.end() == 0
    assert stored_digests(settings) == expected
    log.close()


def test_a_stopped_projector_wakes_up_refusing_until_it_is_up_to_date(settings: Settings, start: Start, log: WrittenLog) -> None:
    """SIGSTOP past the lease and the member's session, SIGCONT: the first answers are refusals, never the old rows."""
    settings = replace(settings, member_session_timeout_s=6.0)
    process = start()
    until(process.ready)
    session = log.sessions[0]
    finder = GroupOwners(settings, "projector", Topics(settings.topic_prefix).events)

    class Remembered:
        """As a gateway that has not looked again."""

        def owners(self, timeout_s: float = 5) -> dict[int, str]:
            return found

    found = finder.owners()
    assert set(found.values()) == {process.address}

    async def story() -> None:
        client = ProjectorOwners(settings, internal_token(settings.data_dir), Remembered())
        assert (await client.session(WORKSPACE, session)).sequence == 6
        process.signal(signal.SIGSTOP)
        log.say(session, 2)
        await asyncio.to_thread(log.write)
        # Questions that lie in its socket when it wakes.
        early = [asyncio.create_task(client.session(WORKSPACE, session, wait_s=0)) for _ in range(20)]
        await asyncio.sleep(0.2)
        await asyncio.gather(*early, return_exceptions=True)
        await asyncio.sleep(settings.lease_s + 1)
        waiting = [asyncio.create_task(client.session(WORKSPACE, session, wait_s=0)) for _ in range(20)]
        await asyncio.sleep(0.5)
        process.signal(signal.SIGCONT)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert any(isinstance(answer, NotOwner) for answer in answers)
        assert not [answer for answer in answers if not isinstance(answer, BaseException) and answer.sequence < 8]
        for _ in range(400):
            try:
                row = await client.session(WORKSPACE, session, wait_s=0)
            except Retriable:
                await asyncio.sleep(0.05)
            else:
                assert row.sequence == 8
                break
        else:
            pytest.fail("it never served again")
        client.close()

    asyncio.run(story())


def test_another_projector_takes_over_what_a_killed_one_owned(settings: Settings, start: Start, log: WrittenLog) -> None:
    first, second = start(instance="a"), start(instance="b")
    until(lambda: len(first.serving()) == len(second.serving()) == 2)
    moved = first.serving()
    first.kill()

    async def story(client: ProjectorOwners) -> None:
        began = time.monotonic()
        for session in log.sessions:
            while True:
                try:
                    row = await client.session(WORKSPACE, session)
                    break
                except Retriable:
                    assert time.monotonic() - began < 40
            assert row.sequence == 6

    ask(settings, story)
    until(lambda: len(second.serving()) == settings.partitions)
    assert second.end() == 0
    expected = log.expected()
    assert stored_digests(replace(settings, instance="b")) == expected
    assert stored_digests(replace(settings, instance="a"), sorted(moved)) == [expected[partition] for partition in sorted(moved)]


def test_without_a_broker_leases_lapse_and_reads_are_refused(
    own_broker: object, settings_on: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = settings_on(own_broker.bootstrap, lease_s=2.0)  # type: ignore[attr-defined]
    log = WrittenLog(settings)
    log.create(4)
    log.write()
    log.close()
    process = ProjectorProcess(settings, tmp_path / "projector.log")
    try:
        until(process.ready)
        own_broker.stop()  # type: ignore[attr-defined]
        until(lambda: not process.serving(), 15)
        assert process.process.poll() is None, "it waits for the broker"
    finally:
        process.kill()


def test_a_topic_made_again_and_a_log_cut_behind_the_store_are_rebuilt_saying_so(settings: Settings, start: Start, log: WrittenLog) -> None:
    process = start()
    until(process.ready)
    assert process.end() == 0
    client, topic = admin(settings), Topics(settings.topic_prefix).events
    log.say(log.sessions[0], 5)
    log.write()
    end = KafkaLog(settings).end_offsets([(topic, log.log_of(log.sessions[0]).partition)], committed=True)
    (place,) = end
    client.delete_records([TopicPartition(*place, end[place])])[TopicPartition(*place)].result(10)
    process = start()
    until(process.ready)
    assert process.end() == 0
    text = process.log_path.read_text()
    assert text.count("store_rebuilt") == 1
    assert "outside of the log" in text
    client.delete_topics([topic])[topic].result(10)
    time.sleep(1)
    topics.apply(settings)
    process = start()
    until(process.ready)
    assert process.end() == 0
    assert process.log_path.read_text().count("foreign: topic_id") == settings.partitions
