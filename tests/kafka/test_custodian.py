"""Leases lapse and waits expire by themselves on a real broker, whatever happens to the custodian meanwhile."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from connectors.cli.ports import free_ports
from streams.clock import now_us
from streams.custodian.rows import kind_of
from streams.custodian.timers import LEASE, WAIT
from streams.log.log import KafkaLog
from streams.log.topics import Topics
from streams.session.commands import Kind, Report
from streams.session.events import AttemptAttributes, Event, RunAttributes, WaitAttributes
from streams.session.outcomes import ACCEPTED, Grant
from streams.settings import Settings
from tests.support.asker import Asker
from tests.support.commands import command, create_session, draft, new_id
from tests.support.load import read_events
from tests.support.processes import Fleet, RoleProcess, eventually

LEASE_MS = 2000


@pytest.fixture
def fast(settings: Settings) -> Settings:
    return replace(settings, member_session_timeout_s=6.0, transaction_timeout_s=4.0)


@pytest.fixture
def worker(fast: Settings) -> Iterator["Worker"]:
    asker = Asker(fast)
    yield Worker(fast, asker)
    asker.close()


class Worker:
    """Claims Runs and dies: nothing is heard of it again unless a test says so."""

    def __init__(self, settings: Settings, asker: Asker) -> None:
        self._settings, self._asker = settings, asker

    def claims(self, lease_ms: int = LEASE_MS) -> tuple[str, Grant]:
        session_id, run_id = new_id("sess"), new_id("run")
        assert self._asker.ask(create_session(session_id)) is not None
        command_id = new_id("cmd")
        accepted = draft(session_id, command_id, 0, "run.accepted", RunAttributes(origin="live", claimable=True), run_id=run_id)
        assert self._asker.ask(command(session_id, (accepted,), command_id=command_id)) is not None
        command_id = new_id("cmd")
        started = draft(session_id, command_id, 0, "attempt.started", AttemptAttributes(claim_digest="1" * 32), run_id=run_id)
        outcome = self._asker.ask(command(session_id, (started,), command_id=command_id, kind=Kind.CLAIM, lease_ms=lease_ms))
        assert outcome is not None
        assert outcome.grant is not None, outcome
        return session_id, outcome.grant

    def renews(self, session_id: str, grant: Grant) -> int:
        """When the lease is over now."""
        report = Report(run_id=grant.run_id, generation=grant.generation, native_task_id=grant.native_task_id)
        outcome = self._asker.ask(command(session_id, (), command_id=new_id("cmd"), kind=Kind.RENEW, report=report))
        assert outcome is not None
        assert outcome.grant is not None, outcome
        return outcome.grant.lease_expires_at

    def waits(self, session_id: str, seconds: float) -> str:
        command_id, wait_id = new_id("cmd"), new_id("wait")
        attributes = WaitAttributes(wait_id=wait_id, kind="timer", expires_at=now_us() + int(seconds * 1e6))
        opened = draft(session_id, command_id, 0, "wait.opened", attributes)
        outcome = self._asker.ask(command(session_id, (opened,), command_id=command_id))
        assert outcome is not None
        assert outcome.status == ACCEPTED, outcome
        return wait_id

    def events(self, event_type: str) -> list[Event]:
        return [entry.event for entry in read_events(self._settings) if entry.event.type == event_type]

    def failed(self) -> Counter[str]:
        """Session -> how often its attempt failed."""
        return Counter(event.session_id for event in self.events("attempt.failed"))


def timers(settings: Settings) -> set[bytes]:
    """Those that the changelog has armed."""
    log, topic = KafkaLog(settings), Topics(settings.topic_prefix).timers
    places = [(topic, partition) for partition in range(settings.partitions)]
    ends = log.end_offsets(places, committed=False)
    reader, last = log.reader("test", dict.fromkeys(places, 0)), dict[bytes, bytes | None]()
    while any(reader.position(*place) < end for place, end in ends.items()):
        last.update((record.key or b"", record.value) for record in reader.read(1000, 0.2))
    reader.close()
    return {key for key, value in last.items() if value is not None and kind_of(key) in (LEASE, WAIT)}


def up_to_date(role: RoleProcess, port: int) -> None:
    """Joined, restored, and at the end of every partition."""

    def ready() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    eventually(ready, why=role.log())


def test_a_killed_workers_attempt_fails_once_its_lease_is_over_and_a_wait_expires(fast: Settings, worker: Worker) -> None:
    (port,) = free_ports(1)
    with Fleet(fast) as fleet:
        fleet.start("authority")
        custodian = fleet.start("custodian", "0", "--port", str(port))
        up_to_date(custodian, port)
        dead, _ = worker.claims()
        alive, grant = worker.claims()
        worker.waits(alive, 3)
        until = grant.lease_expires_at
        while not worker.failed()[dead]:
            until = worker.renews(alive, grant)
            time.sleep(0.3)
        assert worker.failed() == {dead: 1}
        eventually(lambda: worker.failed()[alive] == 1, why=custodian.log())
        (failed,) = [event for event in worker.events("attempt.failed") if event.session_id == alive]
        assert failed.accepted_at > until
        eventually(lambda: len(worker.events("wait.expired")) == 1, why=custodian.log())
        eventually(lambda: timers(fast) == set())
        numbers = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert 'session_streams_custodian_timers{partition="0"} 0.0' in numbers
        assert worker.failed() == {dead: 1, alive: 1}
        assert custodian.stop() == 0, custodian.log()


def test_a_custodian_killed_while_time_passes_fails_each_attempt_once(fast: Settings, worker: Worker) -> None:
    """SIGKILL at each point of the transaction that time alone has caused, and between."""
    (port,) = free_ports(1)
    sessions = []
    with Fleet(fast) as fleet:
        fleet.start("authority")
        custodian = fleet.start("custodian", "0", "--port", str(port))
        for point in ("after_begin", "after_produce", "after_send_offsets", "after_commit", "after_store_write"):
            up_to_date(custodian, port)
            sessions.append(worker.claims()[0])
            eventually(lambda: any(key.startswith(sessions[-1].encode()) for key in timers(fast)), why=custodian.log())
            custodian.kill()
            custodian.restart("--port", str(port), "--crash-at", f"{point}:1")
            custodian.wait(60)
            assert custodian.process.returncode == -9, custodian.log()
            custodian.restart("--port", str(port))
        eventually(lambda: set(worker.failed()) == set(sessions), why=custodian.log())
        eventually(lambda: timers(fast) == set(), why=custodian.log())
        assert set(worker.failed().values()) == {1}


def test_partitions_that_move_between_custodians_take_their_timers_along(fast: Settings, worker: Worker) -> None:
    """A second one joins, the first stands still until its partitions are taken, and wakes up a zombie."""
    ports = free_ports(2)
    with Fleet(fast) as fleet:
        fleet.start("authority")
        first = fleet.start("custodian", "0", "--port", str(ports[0]))
        up_to_date(first, ports[0])
        sessions = [worker.claims(lease_ms=6000)[0] for _ in range(6)]
        second = fleet.start("custodian", "1", "--port", str(ports[1]))
        up_to_date(second, ports[1])
        sessions += [worker.claims()[0] for _ in range(6)]
        first.pause()
        eventually(lambda: set(worker.failed()) == set(sessions), why=second.log())
        first.proceed()
        sessions += [worker.claims()[0] for _ in range(6)]
        eventually(lambda: set(worker.failed()) == set(sessions), why=first.log() + second.log())
        eventually(lambda: timers(fast) == set(), why=first.log() + second.log())
        assert set(worker.failed().values()) == {1}
