"""The consumers of docs/consuming.md, Python and Java: each accepted event exactly once and in order, whoever is killed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from connectors.registry import RegistryClient, SubjectNames, publish
from streams.log.client import producer
from streams.log.topics import Topics
from streams.settings import Settings
from tests.conftest import Broker
from tests.consistency.checkers import check
from tests.consistency.history import Logged
from tests.support.consumers import ExampleConsumer, JavaConsumer, PythonConsumer, Row, java_class_path
from tests.support.event_log import EventLog
from tests.support.load import Load
from tests.support.processes import Fleet, eventually
from tests.support.registry_server import RegistryServer
from tests.support.snippets import run_python

pytestmark = pytest.mark.timeout(300)
KINDS = (PythonConsumer, JavaConsumer)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    java_class_path()


@pytest.fixture
def fast(settings_on: Callable[..., Settings], broker: Broker) -> Settings:
    return settings_on(broker.bootstrap, partitions=2, member_session_timeout_s=6.0, transaction_timeout_s=4.0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., list[ExampleConsumer]]]:
    with ExitStack() as stack:

        def both(settings: Settings, **options: str) -> list[ExampleConsumer]:
            made: list[ExampleConsumer] = [kind(settings, tmp_path, **options) for kind in KINDS]
            for each in made:
                stack.callback(each.kill)
            return made

        yield both


def row_of(entry: Logged) -> Row:
    event = entry.event
    attributes = None if event.attributes is None else msgspec.structs.asdict(event.attributes)
    digest = event.content.digest
    return Row(
        entry.partition, entry.offset, event.session_id, event.sequence, event.event_id, event.type, attributes, digest and digest.hex()
    )  # fmt: skip


def by_partition(rows: list[Row]) -> dict[int, list[Row]]:
    """Each partition's rows in the order in which they were kept."""
    return {partition: [row for row in rows if row.partition == partition] for partition in {row.partition for row in rows}}


def test_every_accepted_event_once_and_in_order_while_authority_and_consumers_are_killed(
    fast: Settings, start: Callable[..., list[ExampleConsumer]]
) -> None:
    """Under load the authority is killed twice, and each consumer twice; what they kept is the log, record for record."""
    load = Load(fast, sessions=6)
    consumers = start(fast)
    with Fleet(fast) as fleet, load.running():
        authority = fleet.start("authority")
        eventually(lambda: all(len(each.rows()) > 20 for each in consumers), why="no consumer sees anything")
        for _ in range(2):
            authority.kill()
            authority.restart()
            for each in consumers:
                each.kill()
                each.restart()
            before, kept = load.accepted(), [len(each.rows()) for each in consumers]
            eventually(lambda seen=before: load.accepted() >= seen + 50)  # type: ignore[misc]
            eventually(lambda had=kept: all(len(each.rows()) > count for each, count in zip(consumers, had, strict=True)))  # type: ignore[misc]
    history = load.finish()
    expected = [row_of(entry) for entry in history.log]
    assert len(expected) > 150
    for each in consumers:
        eventually(lambda one=each: len(one.rows()) >= len(expected), within_s=30, why=each.said())  # type: ignore[misc]
        assert by_partition(each.rows()) == by_partition(expected)
        logged = {row_of(entry).event_id: entry for entry in history.log}
        history.polls[each.name] = [logged[row.event_id] for row in each.rows()]
    assert check(history) == {}
    assert [each.stop() for each in consumers] in ([0, 0], [0, 143])


def write(settings: Settings, logs: list[EventLog]) -> None:
    """Puts what the logs hold on the topic, in a transaction, and empties them."""
    topic = Topics(settings.topic_prefix).events
    writer = producer(settings, "feed", {"transactional.id": f"{settings.topic_prefix}feed"})
    writer.init_transactions(30)
    writer.begin_transaction()
    for log in logs:
        for record in log.records:
            writer.produce(topic, record.value, record.key, log.partition)
        log.records.clear()
    writer.commit_transaction(30)
    writer.close()


def test_processes_of_one_group_share_the_partitions_and_take_over_from_each_other(
    fast: Settings, start: Callable[..., list[ExampleConsumer]]
) -> None:
    """Two of each kind; the one that is killed does not come back, and the other goes on where it stood."""
    logs = [EventLog(0), EventLog(1)]
    sessions = [log.create(log.partition) for log in logs]
    write(fast, logs)
    first, second = start(fast), start(fast, instance="1")
    written = 1
    for turn in range(6):
        for log, session in zip(logs, sessions, strict=True):
            log.say(session, 5)
        write(fast, logs)
        written += 5
        eventually(lambda many=written: all(len(each.rows()) == 2 * many for each in first), why=first[0].said() + first[1].said())  # type: ignore[misc]
        if turn == 2:
            for each in second:
                each.kill()
    for each in first:
        for session in sessions:
            assert [row.sequence for row in each.rows() if row.session_id == session] == list(range(1, written + 1))
        assert each.process.poll() is None


def test_what_cannot_be_read_stops_a_consumer_at_its_place(fast: Settings, start: Callable[..., list[ExampleConsumer]]) -> None:
    """A schema that is newer than the files, say: nothing is skipped, and nothing behind it is kept."""
    log = EventLog()
    session = log.create("a")
    log.append(session.encode(), b"\0\0\0\xff\xffbody")
    log.say(session)
    write(fast, [log])
    for each in start(fast):
        assert each.process.wait(60) == 1
        assert f"{Topics(fast.topic_prefix).events}:0:1 cannot be read" in each.said()
        assert len(each.rows()) <= 1


WRITE_WITH_REGISTRY = """
import sys
from connectors.registry import configure
from streams.settings import Settings
settings = Settings.from_environment()
configure(settings)
from tests.kafka.test_consumers import write
from tests.support.event_log import EventLog
log = EventLog()
log.say(log.create("a"), 3)
write(settings, [log])
"""


def test_schemas_come_from_an_http_registry_too(fast: Settings, start: Callable[..., list[ExampleConsumer]]) -> None:
    """A log whose numbers are a registry's own, which no file holds."""
    with RegistryServer(first_id=700_001).serving() as server:
        client = RegistryClient(server.url)
        publish(client, SubjectNames("session-streams.{subject}"))
        client.close()
        wrote = run_python(
            WRITE_WITH_REGISTRY,
            SESSION_STREAMS_BOOTSTRAP=fast.bootstrap,
            SESSION_STREAMS_TOPIC_PREFIX=fast.topic_prefix,
            SESSION_STREAMS_REGISTRY_URL=server.url,
        )
        assert wrote.returncode == 0, wrote.stderr
        consumers = start(fast, schemas=server.url)
        for each in consumers:
            eventually(lambda one=each: len(one.rows()) == 4, within_s=30, why=each.said())  # type: ignore[misc]
            assert [row.type for row in each.rows()] == ["session.created", *["message.appended"] * 3]
            assert [(row.attributes or {})["role"] for row in each.rows()[1:]] == ["user"] * 3
