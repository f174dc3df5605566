"""Authorities and custodians on one simulated cluster, under one clock that the test turns."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from streams.authority.authority import SessionAuthority
from streams.custodian.custodian import ROLE, Custodian
from streams.custodian.rows import kind_of
from streams.custodian.timers import ARMED, DUE, LEASE, WAIT, Timer, decode_timer
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import Fatal
from streams.log.partitioner import partition_of
from streams.log.record import decode_command, decode_event, decode_outcomes, encode_command
from streams.log.topics import Topics
from streams.loop.crash import CrashPoint
from streams.loop.loop import Loop
from streams.session.commands import Command, Kind, Report
from streams.session.events import AttemptAttributes, Attributes, Event, RunAttributes, WaitAttributes
from streams.session.outcomes import Grant, Outcome
from streams.settings import Settings
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog
from tests.support.commands import PRINCIPAL, command, create_session, draft, new_id

TOPICS = Topics("")
SECOND = 1_000_000


class Crashed(BaseException):
    """Where a real process would be gone."""


def die() -> None:
    raise Crashed


class ActAt:
    """At the next arrival at `point`, once."""

    def __init__(self) -> None:
        self.point: CrashPoint | None = None
        self.action: Callable[[], None] = die

    def reached(self, point: CrashPoint) -> None:
        if point is self.point:
            self.point = None
            self.action()


class Process:
    """A loop with its crash switch; `custodian` is None in an authority."""

    def __init__(self, world: "World", role: str, instance: str) -> None:
        settings = replace(world.settings, instance=instance)
        self.log = SimulatedLog(world.cluster, instance)
        self.crash = ActAt()
        self.custodian: Custodian | None = None
        self.reply_to = f"{role}.{instance}/{new_id('key')}"
        self.ahead = 0
        """Of its clock, in microseconds."""
        self.parts: dict[str, Any] = {}
        handler: SessionAuthority | Custodian = SessionAuthority(settings, world.sealer)
        if role == ROLE:
            self.parts = world.parts(self)
            handler = self.custodian = Custodian(settings, self.reply_to, **self.parts)
            handler.tick_s = 0.0
        self.loop = Loop(
            settings,
            self.log,
            handler,
            threading.Event(),
            crash=self.crash,
            timekeeper=self.custodian,
            clock=lambda: world.now + self.ahead,
        )


class World:
    """`now` in microseconds. A custodian's answers reach it at its next step, unless `deaf`."""

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.now = 1_800_000_000 * SECOND
        self.deaf = False
        self.settings = Settings(partitions=partitions, data_dir=folder)
        self.cluster = Cluster(partitions)
        self.keyring = open_local_keyring(folder / "keyring")
        self.sealer = Sealer(self.keyring, cache_seconds=10)
        self.processes: dict[tuple[str, str], Process] = {}
        self._heard: dict[str, set[tuple[int, int]]] = {}

    def parts(self, process: Process) -> dict[str, Any]:
        """What else a custodian is given."""
        return {}

    def start(self, role: str, instance: str = "0") -> Process:
        process = self.processes[role, instance] = Process(self, role, instance)
        return process

    def kill(self, role: str, instance: str = "0") -> None:
        self.processes.pop((role, instance)).loop.close()

    def step(self, role: str, instance: str = "0") -> bool:
        """False where the process has died of it."""
        process = self.processes[role, instance]
        if process.custodian is not None and not self.deaf:
            process.custodian.answered(self._outcomes(process.reply_to))
        try:
            process.loop.step(0)
        except (Crashed, Fatal):
            self.kill(role, instance)
            return False
        return True

    def settle(self, rounds: int = 12) -> None:
        """Lets every process do what there is to do now. One that dies is not started again."""
        for _ in range(rounds):
            for role, instance in sorted(self.processes):
                self.step(role, instance)

    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def close(self) -> None:
        for role, instance in list(self.processes):
            self.kill(role, instance)
        self.keyring.close()

    # -- what clients send ----------------------------------------------------------------------------------------------

    def send(self, sent: Command) -> str:
        sent = structs.replace(sent, issued_at=self.now, not_after=self.now + 600 * SECOND, reply_to="test/1")
        place = (TOPICS.commands, partition_of(sent.session_id.encode(), self.settings.partitions))
        self.cluster.append(place, sent.session_id.encode(), encode_command(sent))
        return sent.command_id

    def tell(self, session_id: str, event_type: str, attributes: Attributes | None, report: Report | None = None, **where: object) -> str:
        command_id = new_id("cmd")
        told = draft(session_id, command_id, 0, event_type, attributes, **where)
        return self.send(command(session_id, (told,), command_id=command_id, report=report))

    def session(self, session_id: str | None = None) -> str:
        session_id = session_id or new_id("sess")
        self.send(create_session(session_id))
        return session_id

    def run(self, session_id: str) -> str:
        run_id = new_id("run")
        self.tell(session_id, "run.accepted", RunAttributes(origin="live", claimable=True), run_id=run_id)
        return run_id

    def claim(self, session_id: str, run_id: str, lease_s: float) -> str:
        command_id = new_id("cmd")
        started = draft(session_id, command_id, 0, "attempt.started", AttemptAttributes(claim_digest="1" * 32), run_id=run_id)
        return self.send(command(session_id, (started,), command_id=command_id, kind=Kind.CLAIM, lease_ms=int(lease_s * 1000)))

    def renew(self, session_id: str, grant: Grant) -> str:
        report = Report(run_id=grant.run_id, generation=grant.generation, native_task_id=grant.native_task_id)
        return self.send(command(session_id, (), command_id=new_id("cmd"), kind=Kind.RENEW, report=report))

    def report(self, grant: Grant) -> Report:
        position = max(event.sequence for event in self.events() if event.run_id == grant.run_id)
        return Report(grant.run_id, grant.generation, grant.native_task_id, position)

    def open_wait(self, session_id: str, seconds: float, report: Report | None = None) -> str:
        wait_id = new_id("wait")
        attributes = WaitAttributes(wait_id=wait_id, kind="timer", expires_at=self.now + int(seconds * SECOND))
        where = {} if report is None else {"run_id": report.run_id}
        self.tell(session_id, "wait.opened", attributes, report, **where)
        return wait_id

    def claimed(self, lease_s: float) -> tuple[str, Grant]:
        """A session with a Run that a worker holds, once everybody has heard of it."""
        session_id = self.session()
        command_id = self.claim(session_id, self.run(session_id), lease_s)
        self.settle()
        grant = self.outcome(command_id).grant
        assert grant is not None
        return session_id, grant

    # -- what the log holds ---------------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        return [decode_event(entry.value) for entry in self._entries(TOPICS.events) if entry is not None and entry.value]

    def types(self, *wanted: str) -> list[str]:
        return [event.type for event in self.events() if not wanted or event.type in wanted]

    def asked(self) -> list[Command]:
        """What custodians have sent."""
        commands = [decode_command(entry.value) for entry in self._entries(TOPICS.commands) if entry.value]
        return [each for each in commands if each.principal_id != PRINCIPAL]

    def outcome(self, command_id: str) -> Outcome:
        (found,) = [each for each in self.told() if each.command_id == command_id]
        return found

    def told(self) -> list[Outcome]:
        """Everything that clients were answered."""
        return self._outcomes("test/1", again=True)

    def timers(self) -> dict[bytes, Timer]:
        """As the changelog has them."""
        last = {entry.key: entry.value for entry in self._entries(TOPICS.timers)}
        return {key: decode_timer(value) for key, value in last.items() if key and value and kind_of(key) in (LEASE, WAIT)}

    def store_rows(self, instance: str = "0") -> dict[bytes, bytes]:
        """Of all partitions of a custodian, the rows that only stores have as well."""
        rows: dict[bytes, bytes] = {}
        for store in self.processes[ROLE, instance].loop._stores.values():
            for prefix in (DUE, ARMED, b"sess_"):
                with store.scan(prefix) as found:
                    rows.update(found)
        return rows

    def _entries(self, topic: str) -> list:  # type: ignore[type-arg]
        return [entry for partition in range(self.settings.partitions) for entry in self.cluster.committed((topic, partition))]

    def _outcomes(self, reply_to: str, *, again: bool = False) -> list[Outcome]:
        """New ones since the last call, or all."""
        heard = set() if again else self._heard.setdefault(reply_to, set())
        found: list[Outcome] = []
        for partition in range(self.settings.partitions):
            for entry in self.cluster.committed((TOPICS.outcomes, partition)):
                if entry.key == reply_to.encode() and entry.value and (partition, entry.offset) not in heard:
                    heard.add((partition, entry.offset))
                    found.extend(decode_outcomes(entry.value)[1])
        return found
