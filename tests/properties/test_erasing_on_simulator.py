"""Random sessions, forks of forks, checkpoints and orders to erase, with two custodians that crash, stall, lose their folders, hear of
orders late and remove late: what a partition says is so when it says it, in the end all of the scope is erased, and nothing else."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from streams.custodian.custodian import ROLE
from streams.log.retention import SESSION, SUBJECT
from streams.loop.crash import CrashPoint
from streams.session.outcomes import Grant
from tests.support.erasing_world import Blob, ErasingWorld
from tests.support.examples import made_up_id

INSTANCES = "01"
POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]
SUBJECTS = [made_up_id("subj", number) for number in range(3)]
ANY = st.integers(0, 10**6)


class ErasuresMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.world = ErasingWorld(Path(self.folder.name), partitions=2)
        self.made: set[Blob] = set()
        self.claims: dict[str, str] = {}
        """Session -> the command that claims its Run."""

    @initialize()
    def begin_all(self) -> None:
        self.world.start("authority")
        self.world.start(ROLE, "0")
        self.world.settle()

    def sessions(self) -> list[str]:
        return sorted(self.world.created())

    def note(self) -> None:
        self.made |= self.world.blobs

    @rule(subject=st.sampled_from([None, *SUBJECTS]), held=st.booleans())
    def begin(self, subject: str | None, held: bool) -> None:
        session_id = self.world.begin(subject)
        if held:
            self.claims[session_id] = self.world.claim(session_id, self.world.run(session_id), 10**6)

    @precondition(lambda self: self.sessions())
    @rule(pick=ANY)
    def say(self, pick: int) -> None:
        session_id = self.sessions()[pick % len(self.sessions())]
        self.world.say(session_id, self.world.created()[session_id].subject_id)
        self.note()

    @precondition(lambda self: self.sessions())
    @rule(pick=ANY, held=st.booleans())
    def fork(self, pick: int, held: bool) -> None:
        session_id = self.sessions()[pick % len(self.sessions())]
        self.world.fork(session_id)
        if held:
            self.world.step("authority")
            self.world.step("authority")
            for child in self.world.created().keys() - self.claims.keys():
                self.claims[child] = self.world.claim(child, self.world.run(child), 10**6)

    @precondition(lambda self: self.claims)
    @rule(pick=ANY)
    def save_checkpoint(self, pick: int) -> None:
        session_id = sorted(self.claims)[pick % len(self.claims)]
        grant = self.granted(session_id)
        if grant is not None:
            upload_id = self.world.upload(session_id)
            self.note()
            self.world.checkpoint(session_id, grant, upload_id)

    @rule(subject=st.sampled_from(SUBJECTS))
    def erase_subject(self, subject: str) -> None:
        if subject not in {order.id for order in self.world.orders}:
            self.world.erase(SUBJECT, subject)

    @precondition(lambda self: self.sessions())
    @rule(pick=ANY)
    def erase_session(self, pick: int) -> None:
        session_id = self.sessions()[pick % len(self.sessions())]
        if session_id not in {order.id for order in self.world.orders}:
            self.world.erase(SESSION, session_id)

    @rule(seconds=st.floats(0.1, 20))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(steps=st.integers(1, 4))
    def run_authority(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step("authority")

    @rule(instance=st.sampled_from(INSTANCES), steps=st.integers(1, 6))
    def run_custodian(self, instance: str, steps: int) -> None:
        for _ in range(steps):
            if (ROLE, instance) in self.world.processes:
                self.world.step(ROLE, instance)

    @rule(instance=st.sampled_from(INSTANCES), lost=st.booleans())
    def start_custodian(self, instance: str, lost: bool) -> None:
        if (ROLE, instance) not in self.world.processes:
            if lost:
                shutil.rmtree(self.world.settings.stores_path(ROLE) / instance, ignore_errors=True)
            self.world.start(ROLE, instance)

    @rule(instance=st.sampled_from(INSTANCES), point=st.sampled_from(POINTS))
    def crash_custodian(self, instance: str, point: CrashPoint) -> None:
        process = self.world.processes.get((ROLE, instance))
        if process is not None:
            process.crash.point = point

    @rule(instance=st.sampled_from(INSTANCES))
    def stall_custodian(self, instance: str) -> None:
        process = self.world.processes.get((ROLE, instance))
        if process is not None and process.log.members[-1] in self.world.cluster.groups[ROLE].members:
            process.log.members[-1].expire()

    @rule()
    def compact(self) -> None:
        self.world.cluster.compact("sessions.timers")

    @rule(held=st.booleans(), unheard=st.booleans(), deaf=st.booleans())
    def stand_still(self, held: bool, unheard: bool, deaf: bool) -> None:
        self.world.held, self.world.unheard, self.world.deaf = held, unheard, deaf

    def granted(self, session_id: str) -> Grant | None:
        found = [told for told in self.world.told() if told.command_id == self.claims[session_id]]
        return found[0].grant if found else None

    def teardown(self) -> None:
        try:
            self.world.held = self.world.unheard = self.world.deaf = False
            for process in self.world.processes.values():
                process.crash.point = None
            for instance in INSTANCES:
                if (ROLE, instance) not in self.world.processes:
                    self.world.start(ROLE, instance)
            for _ in range(8):
                self.world.settle(8)
                self.world.pass_time(21)
            self.world.check_end()
            assert self.world.blobs == self.world.expected_blobs(self.made)
            self.world.retention()
        finally:
            self.world.close()
            self.folder.cleanup()


class LongErasuresMachine(ErasuresMachine):
    """The same, much longer."""


ErasuresMachine.TestCase.settings = hypothesis_settings(max_examples=25, stateful_step_count=40, deadline=None)
TestErasures = ErasuresMachine.TestCase
LongErasuresMachine.TestCase.settings = hypothesis_settings(max_examples=400, stateful_step_count=120, deadline=None)
TestErasuresAtLength = pytest.mark.soak(LongErasuresMachine.TestCase)
