"""Random interleavings of two authorities, crashes, stalls, takeovers and compaction, on the simulator: thousands of
steps a second, judged by the same checkers as the real thing."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from streams.authority.authority import SessionAuthority
from streams.clock import now_us
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import Fatal
from streams.log.partitioner import partition_of
from streams.log.reader import Record
from streams.log.record import decode_outcomes, encode_command
from streams.log.topics import Topics
from streams.loop.crash import CrashPoint
from streams.loop.loop import Loop
from streams.session.commands import Command
from streams.session.outcomes import ACCEPTED
from streams.settings import Settings
from tests.consistency.checkers import check
from tests.consistency.history import Append, End, History
from tests.simulator.cluster import Cluster
from tests.simulator.log import NOW_MS, SimulatedLog
from tests.support.commands import append_messages, create_session, new_marker
from tests.support.load import logged

TOPICS = Topics("")
INSTANCES = "012"
POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]


class Crashed(BaseException):
    """Where a real process would be gone."""


class ActAt:
    """At the next arrival at `point`, once: whatever the test wants to happen there."""

    def __init__(self) -> None:
        self.point: CrashPoint | None = None
        self.action: Callable[[], None] = die

    def reached(self, point: CrashPoint) -> None:
        if point is self.point:
            self.point = None
            self.action()


def die() -> None:
    raise Crashed


class Authority:
    """One process: its loop, its crash switch, and whether it stands still."""

    def __init__(self, cluster: Cluster, settings: Settings, sealer: Sealer, clock: Callable[[], int] = now_us) -> None:
        self.log = SimulatedLog(cluster, settings.instance)
        self.crash = ActAt()
        self.stalled = False
        self.loop = Loop(settings, self.log, SessionAuthority(settings, sealer), threading.Event(), crash=self.crash, clock=clock)

    def step(self) -> bool:
        """False where the process has died."""
        try:
            self.loop.step(0)
        except (Crashed, Fatal):
            self.loop.close()
            return False
        return True


class AuthoritiesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.settings = Settings(partitions=2, data_dir=Path(self.folder.name))
        self.cluster = Cluster(partitions=2)
        self.keyring = open_local_keyring(Path(self.folder.name) / "keyring")
        self.sealer = Sealer(self.keyring, cache_seconds=10)
        self.processes: dict[str, Authority | None] = dict.fromkeys(INSTANCES)
        self.sent: dict[str, tuple[Command, tuple[bytes, ...]]] = {}
        self.sessions: list[str] = []

    def clock(self) -> int:
        return now_us()

    def teardown(self) -> None:
        """Judges what the log holds at the end, whoever may have died on the way."""
        try:
            self.judge()
        finally:
            self.close()

    def close(self) -> None:
        for process in self.processes.values():
            if process is not None:
                process.loop.close()
        self.keyring.close()
        self.folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.start("0")
        self.create()

    @rule()
    def create(self) -> None:
        session_id = f"sess_{len(self.sessions):032x}"  # the same at every run of an example, and so its partition
        self.sessions.append(session_id)
        self.send(create_session(session_id), ())

    @rule(pick=st.integers(0, 10**6), size=st.integers(1, 3))
    def append(self, pick: int, size: int) -> None:
        markers = tuple(new_marker() for _ in range(size))
        self.send(append_messages(self.sessions[pick % len(self.sessions)], markers), markers)

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 10**6))
    def repeat(self, pick: int) -> None:
        """A client that has lost the answer."""
        self.send(*list(self.sent.values())[pick % len(self.sent)])

    @rule(instance=st.sampled_from(INSTANCES))
    def start(self, instance: str) -> None:
        if self.processes[instance] is None:
            self.processes[instance] = Authority(self.cluster, replace(self.settings, instance=instance), self.sealer, self.clock)

    @rule(instance=st.sampled_from(INSTANCES), steps=st.integers(1, 6))
    def run(self, instance: str, steps: int) -> None:
        for _ in range(steps):
            process = self.processes[instance]
            if process is None or process.stalled:
                return
            if not process.step():
                self.processes[instance] = None

    @rule(instance=st.sampled_from(INSTANCES), point=st.sampled_from(POINTS), again=st.booleans())
    def crash(self, instance: str, point: CrashPoint, again: bool) -> None:
        """Dies at `point` with work in hand, and may be started again at once."""
        self.act(instance, point, die)
        if again:
            self.start(instance)
            self.run(instance, 4)

    @rule(instance=st.sampled_from(INSTANCES), heir=st.sampled_from(INSTANCES), point=st.sampled_from(POINTS), steps=st.integers(3, 8))
    def stall(self, instance: str, heir: str, point: CrashPoint, steps: int) -> None:
        """Stands still at `point` until its session has timed out and another has taken over; then goes on, a zombie."""
        if heir != instance:

            def stand_still() -> None:
                process = self.processes[instance]
                assert process is not None
                process.stalled = True
                self.expire(instance)
                self.start(heir)
                self.append(0, 1)
                self.run(heir, steps)
                process.stalled = False

            self.act(instance, point, stand_still)

    def act(self, instance: str, point: CrashPoint, action: Callable[[], None]) -> None:
        process = self.processes[instance]
        if process is not None:
            process.crash.point, process.crash.action = point, action
            for session in range(min(2, len(self.sessions))):
                self.append(session, 1)
            self.run(instance, 4)
            process.crash.point = None

    @rule(instance=st.sampled_from(INSTANCES))
    def expire(self, instance: str) -> None:
        """Its session times out: it does not know, and goes on as a zombie when it runs next."""
        process = self.processes[instance]
        if process is not None:
            member = process.log.members[-1]
            if member in self.cluster.groups["authority"].members:
                member.expire()

    @rule(instance=st.sampled_from(INSTANCES))
    def stop(self, instance: str) -> None:
        process = self.processes[instance]
        if process is not None and not process.stalled:
            process.loop.close()
            self.processes[instance] = None

    @rule()
    def compact(self) -> None:
        self.cluster.compact(TOPICS.state)

    def judge(self) -> None:
        history = self.history()
        found = check(history)
        assert not found, f"{found}\n{history.describe()}\n{self.cluster.describe(TOPICS.events)}"

    def send(self, command: Command, markers: tuple[bytes, ...]) -> None:
        self.sent[command.command_id] = (command, markers)
        place = (TOPICS.commands, partition_of(command.session_id.encode(), 2))
        addressed = msgspec.structs.replace(command, reply_to="test/1", not_after=2**62)
        self.cluster.append(place, command.session_id.encode(), encode_command(addressed))

    def history(self) -> History:
        ends: dict[str, Append] = {}
        for partition in (0, 1):
            for entry in self.cluster.committed((TOPICS.outcomes, partition)):
                assert entry.value is not None
                for outcome in decode_outcomes(entry.value)[1]:
                    end = End.OK if outcome.status == ACCEPTED else End.FAIL
                    known = ends.get(outcome.command_id)
                    markers = self.sent[outcome.command_id][1]
                    append = Append(
                        outcome.command_id, outcome.session_id, markers, end, outcome.first_sequence, outcome.last_sequence
                    )  # fmt: skip
                    # A repeat is told the same again: the same end, the same sequences.
                    assert known is None or known == append
                    ends[outcome.command_id] = append
        history = History(appends=list(ends.values()))
        for command_id, (command, markers) in self.sent.items():
            if command_id not in ends:
                history.appends.append(Append(command_id, command.session_id, markers, End.UNKNOWN))
        for partition in (0, 1):
            place = (TOPICS.events, partition)
            history.log += [logged(Record(*place, entry.offset, entry.key, entry.value, NOW_MS)) for entry in self.cluster.committed(place)]
        return history


class LongAuthoritiesMachine(AuthoritiesMachine):
    """The same, much longer."""


AuthoritiesMachine.TestCase.settings = hypothesis_settings(max_examples=25, stateful_step_count=30, deadline=None)
TestAuthorities = AuthoritiesMachine.TestCase
LongAuthoritiesMachine.TestCase.settings = hypothesis_settings(max_examples=1500, stateful_step_count=80, deadline=None)
TestLongAuthorities = pytest.mark.soak(LongAuthoritiesMachine.TestCase)
