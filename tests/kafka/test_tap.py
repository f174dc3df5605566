"""The tap on a real broker, as a process of its own: killed, stopped, fed with what it cannot read, its tables stay those of the log."""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from connectors.cli import taps
from connectors.cli.offspring import start_child
from connectors.cli.ports import free_ports
from connectors.taps.tables import MINUTES_KEPT, PartitionTables
from connectors.taps.view import TapView, view_of
from streams.errors import Retriable
from streams.log.client import producer
from streams.log.log import KafkaLog
from streams.log.topics import Topics
from streams.session.events import ToolAttributes
from streams.settings import Settings
from tests.support.event_log import EventLog
from tests.support.examples import made_up_id
from tests.support.processes import Fleet, RoleProcess, environment, eventually

pytest.importorskip("faust", reason="the extra `taps` is not installed")
pytestmark = pytest.mark.timeout(240)

PARTITIONS = 2


@pytest.fixture
def fast(settings_on: Callable[..., Settings], broker: object) -> Settings:
    return settings_on(broker.bootstrap, partitions=PARTITIONS, member_session_timeout_s=6.0)  # type: ignore[attr-defined]


class Feed:
    """Writes events as an authority does: in transactions, some of which are aborted; and now and then what nobody can read."""

    def __init__(self, settings: Settings) -> None:
        self._topic = Topics(settings.topic_prefix).events
        self._producer = producer(settings, "feed", {"transactional.id": f"{settings.topic_prefix}feed"})
        self._producer.init_transactions(30)
        self._logs = [EventLog(number) for number in range(PARTITIONS)]
        self._sessions = [[log.create(f"{log.partition}.{label}") for label in range(3)] for log in self._logs]
        self._turn = 0
        self.events = 0
        self.unreadable = 0

    def write(self) -> None:
        """A few calls in every partition, committed; and a transaction that nobody may see."""
        self._turn += 1
        self._transaction(self._make, commit=True)
        self._transaction(self._ghosts, commit=False)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Again and again, until the block ends."""
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(0.05):
                self.write()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def close(self) -> None:
        self._producer.close()

    def _make(self) -> None:
        for log, sessions in zip(self._logs, self._sessions, strict=True):
            session = sessions[self._turn % 3]
            call_id = made_up_id("call", self._turn)
            log.command(session, [("tool.called", ToolAttributes(call_id=call_id, name=f"tool-{self._turn % 4}"))])
            log.say(session, 3)
            log.command(session, [("tool.returned", ToolAttributes(call_id=call_id, is_error=self._turn % 5 == 0))])
            if self._turn % 40 == 0:
                log.wait(1)
            self.events += len(log.records)
            if self._turn % 7 == 0:
                log.append(session.encode(), b"\0\0\0\0\x13torn")
                log.append(b"nobody", None)
                self.unreadable += 2
            self._produce(log)

    def _ghosts(self) -> None:
        for log in self._logs:
            ghosts = EventLog(log.partition)
            ghosts.create(("ghost", self._turn))
            self._produce(ghosts)

    def _produce(self, log: EventLog) -> None:
        for record in log.records:
            self._producer.produce(self._topic, record.value, record.key, log.partition)
        log.records.clear()

    def _transaction(self, write: Callable[[], None], *, commit: bool) -> None:
        self._producer.begin_transaction()
        write()
        if commit:
            self._producer.commit_transaction(30)
        else:
            self._producer.flush(30)
            self._producer.abort_transaction(30)


class Tap:
    """A tap process with an address of its own."""

    def __init__(self, fleet: Fleet, instance: str) -> None:
        self.port = free_ports(1)[0]
        self.process: RoleProcess = fleet.start("tap", instance, "--port", str(self.port))

    def restart(self) -> None:
        self.process.restart("--port", str(self.port))

    def view(self) -> TapView | None:
        """None while it does not answer."""
        assert self.process.alive, self.process.log()
        try:
            return taps.read_tap(taps.tap_url("127.0.0.1", self.port), minutes=MINUTES_KEPT)
        except Retriable:
            return None

    def events(self) -> int:
        view = self.view()
        return view.events if view is not None else 0


def tables_of_the_log(settings: Settings) -> TapView:
    """Folded here, from the committed records as they stand now."""
    log, topic = KafkaLog(settings), Topics(settings.topic_prefix).events
    places = [(topic, number) for number in range(PARTITIONS)]
    ends = log.end_offsets(places, committed=True)
    tables = {number: PartitionTables() for number in range(PARTITIONS)}
    reader = log.reader("check", dict.fromkeys(places, 0))
    while any(reader.position(*place) < end for place, end in ends.items()):
        for record in reader.read(1000, 0.2):
            tables[record.partition].apply(record.offset, record.value)
    reader.close()
    return view_of(tables, {}, minutes=MINUTES_KEPT)


def topics_on(settings: Settings) -> set[str]:
    """But for the broker's own, among them the offsets of groups, and those of tests that share the broker."""
    names = AdminClient({"bootstrap.servers": settings.bootstrap}).list_topics(timeout=20).topics
    others = re.compile(r"__|t[0-9a-f]{10}\.|(?:up|cmd)\.[0-9]+\.")
    return {name for name in names if name.startswith(settings.topic_prefix) or not others.match(name)}


def comparable(view: TapView | None) -> object:
    """Without what depends on when the broker was asked."""
    if view is None:
        return None
    found = json.loads(msgspec.json.encode(view))
    for progress in found["partitions"].values():
        del progress["end_offset"]
    return found


def test_a_tap_that_was_killed_ends_with_the_tables_of_one_that_ran_through(fast: Settings) -> None:
    """Killed twice in the middle of the stream and once while it rebuilds, beside another that runs through. Both tables
    are those of the log: committed records, each once; and no topic is there that was not there before."""
    feed = Feed(fast)
    topics_before = topics_on(fast)
    with Fleet(fast) as fleet:
        through, killed = Tap(fleet, "through"), Tap(fleet, "killed")
        with feed.writing():
            for _ in range(2):
                eventually(lambda: killed.view() is not None)
                before = killed.events()
                eventually(lambda seen=before: killed.events() > seen, why="it does not get on")  # type: ignore[misc]
                killed.process.kill()
                killed.restart()
            time.sleep(0.7)
            killed.process.kill()
            killed.restart()
            eventually(lambda: killed.view() is not None and through.view() is not None)
            before = killed.events()
            eventually(lambda: killed.events() > before, why="it does not get on after the last start")
        feed.close()
        expected = tables_of_the_log(fast)
        assert (expected.events, sum(expected.unreadable.values())) == (feed.events, feed.unreadable)
        assert (expected.sessions.seen, expected.missing, expected.repeated) == (3 * PARTITIONS, 0, 0)
        assert len(expected.minutes) > 1
        eventually(lambda: through.events() == killed.events() == feed.events, within_s=30)
        assert comparable(through.view()) == comparable(expected)
        assert comparable(killed.view()) == comparable(expected)
        assert through.process.stop() == 0
    assert topics_on(fast) == topics_before


def test_a_tap_that_was_stopped_past_its_session_goes_on_where_it_stood(fast: Settings) -> None:
    """Thrown out of its group while it was suspended, it joins again and reads from its tables on."""
    feed = Feed(fast)
    with Fleet(fast) as fleet:
        tap = Tap(fleet, "0")
        eventually(lambda: tap.view() is not None)
        with feed.writing():
            eventually(lambda: tap.events() > 0)
            tap.process.pause()
            time.sleep(fast.member_session_timeout_s + 2)
            tap.process.proceed()
            time.sleep(1)
        feed.close()
        eventually(lambda: tap.events() == feed.events, within_s=60)
        assert comparable(tap.view()) == comparable(tables_of_the_log(fast))


FAILS_FROM = """
import sys
from connectors.taps.tables import PartitionTables

apply, first = PartitionTables.apply, int(sys.argv.pop(1))

def fails(tables, offset, value):
    if offset >= first:
        raise ZeroDivisionError
    apply(tables, offset, value)

PartitionTables.apply = fails
from connectors.cli.main import main
main()
"""


def test_an_exception_in_the_fold_ends_the_tap_and_loses_nothing(fast: Settings) -> None:
    """Faust acknowledges the record all the same and would go on without it; the next start counts it."""
    feed = Feed(fast)
    feed.write()
    first = max(progress.next_offset for progress in tables_of_the_log(fast).partitions.values())
    port = free_ports(1)[0]
    output = fast.data_dir / "fails.log"
    argv = [sys.executable, "-c", FAILS_FROM, str(first), "tap", "--port", str(port)]
    output.parent.mkdir(parents=True, exist_ok=True)
    failing = start_child(argv, output=output, environment={**os.environ, **environment(fast)})
    try:
        eventually(lambda: failing.poll() is not None or answers(port))
        feed.write()
        assert failing.wait(60) == 5
    finally:
        failing.kill()
    assert "ZeroDivisionError" in output.read_text()
    feed.write()
    feed.close()
    with Fleet(fast) as fleet:
        tap = Tap(fleet, "0")
        eventually(lambda: tap.events() == feed.events)


def answers(port: int) -> bool:
    try:
        taps.read_tap(taps.tap_url("127.0.0.1", port))
    except Retriable:
        return False
    return True


def test_an_address_that_is_taken_is_said(fast: Settings) -> None:
    with Fleet(fast) as fleet:
        first = Tap(fleet, "0")
        eventually(lambda: first.view() is not None)
        second = fleet.start("tap", "1", "--port", str(first.port))
        assert second.wait() == 3
        assert f"cannot listen on 127.0.0.1:{first.port}" in second.log()
