"""Random interleavings of saves, conditional saves and deletions with two agent-checkpoint authorities that crash, stall and lose their
folders, under a clock that jumps: every command is decided once, in the order of the log, and every table is what the log says."""

import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from streams.agents import core, rows
from streams.agents.authority import ROLE
from streams.agents.core import AgentScope, Deleted, Head, Refused, decide
from streams.agents.ids import mint
from streams.agents.records import DELETED, SAVED
from streams.loop.crash import CrashPoint
from tests.support.agent_world import SECOND, TOPICS, AgentWorld, scope, state

INSTANCES = "01"
POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]
SCOPES = st.builds(scope, st.integers(0, 2), st.sampled_from(["cursor", "workflow"]))


class AgentsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.world = AgentWorld(Path(self.folder.name), partitions=2)
        self.sent = 0
        self.compacted = False

    @initialize()
    def begin(self) -> None:
        self.world.start("0")
        self.world.settle()

    @rule(where=SCOPES, number=st.integers(0, 5), ttl=st.integers(60, 120), count=st.integers(1, 30))
    def save(self, where: AgentScope, number: int, ttl: int, count: int) -> None:
        for _ in range(count):
            self.world.save(where, number, ttl=ttl)
        self.sent += count

    @rule(where=SCOPES, number=st.integers(0, 5), expected=st.integers(0, 5))
    def save_expecting(self, where: AgentScope, number: int, expected: int) -> None:
        self.world.save(where, number, expected=state(expected))
        self.sent += 1

    @rule(where=SCOPES, known=st.booleans())
    def delete(self, where: AgentScope, known: bool) -> None:
        head = self.world.table().get(where.key.encode())
        self.world.delete(where, head.checkpoint_id if head is not None and known else mint(self.world.partition(where)))
        self.sent += 1

    @rule(where=SCOPES, number=st.integers(0, 5))
    def save_over_and_delete(self, where: AgentScope, number: int) -> None:
        """At once, so that a transaction has them all."""
        head = self.world.table().get(where.key.encode())
        if head is not None:
            self.world.save(where, number)
            self.world.delete(where, head.checkpoint_id)
            self.world.save(where, number + 1)
            self.sent += 3

    @rule(seconds=st.floats(0, 90))
    def pass_time(self, seconds: float) -> None:
        self.world.now += int(seconds * SECOND)

    @rule(instance=st.sampled_from(INSTANCES), steps=st.integers(1, 6))
    def run(self, instance: str, steps: int) -> None:
        for _ in range(steps):
            if instance in self.world.processes:
                self.world.step(instance)

    @rule(instance=st.sampled_from(INSTANCES), lost=st.booleans())
    def start(self, instance: str, lost: bool) -> None:
        if instance not in self.world.processes:
            if lost:
                shutil.rmtree(self.world.settings.stores_path(ROLE) / instance, ignore_errors=True)
            self.world.start(instance)

    @rule(instance=st.sampled_from(INSTANCES), point=st.sampled_from(POINTS))
    def crash(self, instance: str, point: CrashPoint) -> None:
        process = self.world.processes.get(instance)
        if process is not None:
            process.crash.point = point

    @rule(instance=st.sampled_from(INSTANCES))
    def stall(self, instance: str) -> None:
        """Its session runs out: the group goes on without it, and it does not know."""
        process = self.world.processes.get(instance)
        if process is not None and process.log.members[-1] in self.world.cluster.groups[ROLE].members:
            process.log.members[-1].expire()

    @rule()
    def compact(self) -> None:
        self.world.cluster.compact(TOPICS.agent_checkpoints)
        self.compacted = True

    def teardown(self) -> None:
        try:
            self.judge()
        finally:
            self.world.close()
            self.folder.cleanup()

    def judge(self) -> None:
        world = self.world
        for process in world.processes.values():
            process.crash.point = None
        for instance in INSTANCES:
            if instance not in world.processes:
                world.start(instance)  # which ends what its predecessor left open
        world.settle(20)
        assert len(world.commands()) == self.sent
        heads, versions = self.refolded()
        table = world.table()
        assert {key: head for key, head in table.items() if not rows.is_version(key)} == heads
        kept = {key: head for key, head in table.items() if rows.is_version(key)}
        assert kept.items() <= versions.items()
        assert all(head.visible(world.now) == (key in kept) for key, head in versions.items())
        for key, head in heads.items():
            assert world.head(head.scope, *self.owner_of(head)) == head, key
        if not self.compacted:
            self.every_save_is_a_record()
        self.a_restored_store_is_that_of_who_lived_on()

    def refolded(self) -> tuple[dict[bytes, Head], dict[bytes, Head]]:
        """What the log of commands makes of an empty table; each outcome is held against it on the way."""
        told = Counter(outcome.command_id for outcome in self.world.outcomes())
        assert all(count == 1 for count in told.values())
        outcomes = {outcome.command_id: outcome for outcome in self.world.outcomes()}
        assert len(outcomes) == self.sent
        heads: dict[bytes, Head] = {}
        versions: dict[bytes, Head] = {}
        for command in self.world.commands():
            outcome, key = outcomes[command.command_id], command.what.scope.key.encode()
            decision = decide(heads.get(key), command.what, outcome.decided_at)
            if isinstance(decision, Refused):
                assert (outcome.status, outcome.state_hash) == (decision.code, decision.actual_state_hash)
                assert decision.code in (core.CONFLICT, core.ABSENT, core.LATE)
                continue
            for number in decision.dropped:
                versions.pop(rows.version_key(key.decode(), number), None)
            if isinstance(decision, Deleted):
                assert outcome.status == DELETED
                del heads[key]
                continue
            if decision.superseded is not None:
                versions[rows.version_key(key.decode(), decision.superseded.version)] = decision.superseded
            heads[key] = decision.head
            assert (outcome.status, outcome.version, outcome.created) == (SAVED, decision.head.version, decision.superseded is None)
            assert (outcome.checkpoint_id, outcome.expires_at) == (decision.head.checkpoint_id, decision.head.expires_at)
        return heads, versions

    def every_save_is_a_record(self) -> None:
        saves = {outcome.command_id for outcome in self.world.outcomes() if outcome.status == SAVED}
        assert {head.sealed.save_id for head in self.world.told()} == saves

    def owner_of(self, head: Head) -> tuple[str, float]:
        partition = self.world.partition(head.scope)
        (owner,) = [name for name, process in self.world.processes.items() if partition in process.tables.owned]
        return owner, 1.0

    def a_restored_store_is_that_of_who_lived_on(self) -> None:
        before = self.world.store_rows()
        for instance in list(self.world.processes):
            self.world.kill(instance)
        for instance in INSTANCES:
            shutil.rmtree(self.world.settings.stores_path(ROLE) / instance, ignore_errors=True)
        self.world.start("0")
        self.world.settle()
        assert self.world.store_rows() == before


AgentsMachine.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAgents = AgentsMachine.TestCase
