"""Random interleavings of workers, an authority that is replaced, and two custodians that crash, stall and lose their folders, under
a clock that jumps: no attempt fails early or twice, and in the end nothing that is over stays open."""

import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from streams.custodian.custodian import ROLE
from streams.loop.crash import CrashPoint
from streams.session.events import AttemptAttributes, RunAttributes, WaitAttributes
from streams.session.outcomes import Grant
from tests.support.timekeeping import World

INSTANCES = "01"
POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]
ANY = st.integers(0, 10**6)


class CustodiansMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.world = World(Path(self.folder.name), partitions=2)
        self.claims: list[tuple[str, str, str]] = []
        """Session, Run, the command that claims it."""
        self.renewals: dict[str, tuple[str, int]] = {}
        """Command -> Run and generation."""
        self.waits: list[tuple[str, str]] = []

    @initialize()
    def begin(self) -> None:
        self.world.start("authority")
        self.world.start(ROLE, "0")
        self.world.settle()

    @rule(lease_s=st.integers(1, 40))
    def claim(self, lease_s: int) -> None:
        session_id = self.world.session(f"sess_{len(self.claims):032x}")
        run_id = self.world.run(session_id)
        self.claims.append((session_id, run_id, self.world.claim(session_id, run_id, lease_s)))

    @precondition(lambda self: self.claims)
    @rule(pick=ANY, lease_s=st.integers(1, 40))
    def claim_again(self, pick: int, lease_s: int) -> None:
        session_id, run_id, _ = self.claims[pick % len(self.claims)]
        self.claims.append((session_id, run_id, self.world.claim(session_id, run_id, lease_s)))

    @precondition(lambda self: self.claims)
    @rule(pick=ANY)
    def renew(self, pick: int) -> None:
        session_id, _, command_id = self.claims[pick % len(self.claims)]
        grant = self.granted(command_id)
        if grant is not None:
            self.renewals[self.world.renew(session_id, grant)] = (grant.run_id, grant.generation)

    @precondition(lambda self: self.claims)
    @rule(pick=ANY, how=st.sampled_from(["attempt.failed", "run.completed"]))
    def end(self, pick: int, how: str) -> None:
        session_id, _, command_id = self.claims[pick % len(self.claims)]
        grant = self.granted(command_id)
        if grant is not None:
            attributes = AttemptAttributes(reason="gave_up") if how == "attempt.failed" else RunAttributes(outcome="done")
            self.world.tell(session_id, how, attributes, self.world.report(grant), run_id=grant.run_id)

    @precondition(lambda self: self.claims)
    @rule(pick=ANY, seconds=st.integers(1, 60))
    def wait(self, pick: int, seconds: int) -> None:
        session_id = self.claims[pick % len(self.claims)][0]
        self.waits.append((session_id, self.world.open_wait(session_id, seconds)))

    @precondition(lambda self: self.waits)
    @rule(pick=ANY)
    def answer(self, pick: int) -> None:
        session_id, wait_id = self.waits[pick % len(self.waits)]
        self.world.tell(session_id, "wait.answered", WaitAttributes(wait_id=wait_id))

    @rule(seconds=st.floats(0.1, 45))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(steps=st.integers(1, 4))
    def run_authority(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step("authority")

    @rule()
    def replace_authority(self) -> None:
        self.world.kill("authority")
        self.world.start("authority")

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
        """Its session runs out: the group goes on without it, and it does not know."""
        process = self.world.processes.get((ROLE, instance))
        if process is not None and process.log.members[-1] in self.world.cluster.groups[ROLE].members:
            process.log.members[-1].expire()

    @rule(deaf=st.booleans())
    def lose_answers(self, deaf: bool) -> None:
        self.world.deaf = deaf

    @rule()
    def compact(self) -> None:
        self.world.cluster.compact("sessions.timers")

    def granted(self, command_id: str) -> Grant | None:
        found = [each.grant for each in self.world.told() if each.command_id == command_id]
        return found[0] if found else None

    def teardown(self) -> None:
        try:
            self.judge()
        finally:
            self.world.close()
            self.folder.cleanup()

    def judge(self) -> None:
        world = self.world
        world.deaf = False
        for role, instance in list(world.processes):
            world.processes[role, instance].crash.point = None
        # The next of its instance ends the transaction that one which died has left open; nothing else does here.
        for instance in INSTANCES:
            if (ROLE, instance) not in world.processes:
                world.start(ROLE, instance)
        for _ in range(8):
            world.settle()
            world.pass_time(61)
        world.settle()
        events = world.events()
        assert world.timers() == {}
        over = Counter((each.run_id, each.attempt_generation) for each in events if each.type == "attempt.failed")
        assert not over or max(over.values()) == 1
        settled = {each.run_id for each in events if each.type == "run.completed"}
        for each in events:
            if each.type == "attempt.started" and each.run_id not in settled:
                assert over[each.run_id, each.attempt_generation] == 1
        closed = Counter(each.attributes.wait_id for each in events if each.type in ("wait.answered", "wait.expired"))
        assert closed == Counter({wait_id: 1 for _, wait_id in self.waits if wait_id in self.opened()})
        self.nobody_failed_early()

    def opened(self) -> set[str]:
        return {each.attributes.wait_id for each in self.world.events() if each.type == "wait.opened"}

    def nobody_failed_early(self) -> None:
        """Every deadline that a worker was told had passed."""
        deadlines: dict[tuple[str, int], int] = {}
        for outcome in self.world.told():
            if outcome.grant is not None:
                attempt = (outcome.grant.run_id, outcome.grant.generation)
                deadlines[attempt] = max(deadlines.get(attempt, 0), outcome.grant.lease_expires_at)
        for each in self.world.events():
            if each.type == "attempt.failed" and each.attributes.reason == "lease_lapsed":
                assert each.accepted_at > deadlines[each.run_id, each.attempt_generation]
            if each.type == "wait.expired":
                (opened,) = [
                    other for other in self.world.events()
                    if other.type == "wait.opened" and other.attributes.wait_id == each.attributes.wait_id
                ]  # fmt: skip
                assert each.accepted_at >= opened.attributes.expires_at


class LongCustodiansMachine(CustodiansMachine):
    """The same, much longer."""


CustodiansMachine.TestCase.settings = hypothesis_settings(max_examples=30, stateful_step_count=40, deadline=None)
TestCustodians = CustodiansMachine.TestCase
LongCustodiansMachine.TestCase.settings = hypothesis_settings(max_examples=1500, stateful_step_count=80, deadline=None)
TestLongCustodians = pytest.mark.soak(LongCustodiansMachine.TestCase)
