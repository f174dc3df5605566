"""Claims, checkpoints, forks and erasures while authorities abort, stall, die and take over: the simulated log holds one history.

A fork's child begins in whatever partition is its own, exactly once, in the transaction that tells of it or not at all.
"""

from collections import Counter, defaultdict
from functools import lru_cache

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from streams.authority.encoding import decode_state
from streams.authority.repeats import is_chunk
from streams.clock import now_us
from streams.log.checkpoints import decode_public_checkpoint
from streams.log.partitioner import partition_of
from streams.log.record import decode_command, decode_event, decode_outcomes
from streams.session.commands import Command, Kind, Report
from streams.session.events import AttemptAttributes, CheckpointAttributes, Draft, Event, RunAttributes, SessionAttributes
from streams.session.ids import derive_from_command
from streams.session.items import DictItems
from streams.session.outcomes import Grant
from streams.session.state import evolve
from tests.properties.test_authority_on_simulator import INSTANCES, TOPICS, AuthoritiesMachine
from tests.support.commands import WINDOW_DAYS, command, draft, new_id
from tests.support.examples import made_up_id
from tests.support.recovering import ENVIRONMENT, HARNESS, SEALED_DIGEST, VERIFIED, Generations
from tests.support.story import SECOND, as_logged

WORKERS = [made_up_id("key", name) for name in ("first", "second", "third")]
PICK = st.integers(0, 239)
WINDOW_S = 120
LEASE_MS = 5000


@lru_cache(maxsize=10_000)
def event_of(value: bytes) -> Event:
    return decode_event(value)


class RecoveryMachine(AuthoritiesMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = now_us()
        self.numbers = 0

    def clock(self) -> int:
        return self.now

    # -- what can be read

    def place(self, topic: str, session_id: str) -> tuple[str, int]:
        return topic, partition_of(session_id.encode(), 2)

    def events(self, session_id: str) -> list[Event]:
        entries = self.cluster.committed(self.place(TOPICS.events, session_id))
        return [event_of(entry.value) for entry in entries if entry.key == session_id.encode() and entry.value is not None]

    def grants(self) -> list[tuple[str, str, Grant]]:
        """Session, principal and grant, in the order of decision; stale ones among them."""
        found = []
        for partition in (0, 1):
            for entry in self.cluster.committed((TOPICS.outcomes, partition)):
                for outcome in decode_outcomes(entry.value or b"")[1]:
                    if outcome.grant is not None:
                        found.append((outcome.session_id, self.sent[outcome.command_id][0].principal_id, outcome.grant))
        return found

    # -- what is asked

    def ask(
        self, session_id: str, *parts: tuple[str, object], run_id: str | None = None, kind: Kind = Kind.APPEND, **more: object
    ) -> Command:
        self.numbers += 1
        command_id = made_up_id("cmd", self.numbers)
        drafts = tuple(
            draft(session_id, command_id, index, event_type, attributes, run_id=run_id)  # type: ignore[arg-type]
            for index, (event_type, attributes) in enumerate(parts)
        )
        asked = command(session_id, drafts, command_id=command_id, kind=kind, **more)
        self.send(asked, ())
        return asked

    def session(self, pick: int) -> str:
        return self.sessions[pick % len(self.sessions)]

    @initialize()
    def begin(self) -> None:
        self.start("0")
        self.start("1")
        for pick in range(2):
            self.create()
            self.offer(pick)
            self.claim(pick, WORKERS[pick], "1", later=False)
        self.run("0", 4)
        self.run("1", 4)
        self.leave_checkpoint(0, ready=True, back=0)
        self.run("0", 2)
        self.run("1", 2)

    @rule()
    def create(self) -> None:
        session_id = f"sess_{len(self.sessions):032x}"
        self.sessions.append(session_id)
        attributes = SessionAttributes(
            origin="live", policy_mode="standard", content_window_days=WINDOW_DAYS, checkpoint_window_s=WINDOW_S
        )  # fmt: skip
        self.ask(session_id, ("session.created", attributes))

    @rule(seconds=st.sampled_from([1, 6, 6, 60]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(pick=PICK)
    def offer(self, pick: int) -> None:
        session_id = self.session(pick)
        self.ask(session_id, ("run.accepted", RunAttributes(harness="harness")), run_id=made_up_id("run", f"{session_id} {pick // 7 % 2}"))

    def runs(self, session_id: str) -> list[str]:
        return sorted({event.run_id or "" for event in self.events(session_id) if event.type == "run.accepted"})

    @rule(pick=PICK, worker=st.sampled_from(WORKERS), label=st.sampled_from("12"), later=st.booleans())
    def claim(self, pick: int, worker: str, label: str, later: bool) -> None:
        session_id = self.session(pick)
        self.now += 6 * SECOND * later
        attributes = AttemptAttributes(claim_digest="sha256:" + label * 64)
        run_id = made_up_id("run", f"{session_id} {pick // 7 % 2}")
        self.ask(
            session_id, ("attempt.started", attributes), run_id=run_id, kind=Kind.CLAIM, principal_id=worker, lease_ms=LEASE_MS
        )  # fmt: skip

    def believed(self, pick: int) -> tuple[str, str, Report] | None:
        """Mostly the latest grant; now and then one that is long over."""
        grants = self.grants()
        if not grants:
            return None
        session_id, by, grant = grants[-1 - pick % min(4, len(grants))]
        seen = max(event.sequence for event in self.events(session_id) if event.run_id == grant.run_id)
        return session_id, by, Report(grant.run_id, grant.generation, grant.native_task_id, seen)

    @rule(pick=PICK, what=st.sampled_from(["attempt.ready", "attempt.ready", "tool.called", "attempt.failed", "run.completed"]))
    def report(self, pick: int, what: str) -> None:
        believed = self.believed(pick)
        if believed is not None:
            session_id, by, report = believed
            self.ask(session_id, (what, None), run_id=report.run_id, principal_id=by, report=report)

    @rule(pick=PICK, ready=st.booleans(), back=st.integers(0, 2))
    def leave_checkpoint(self, pick: int, ready: bool, back: int) -> None:
        believed = self.believed(pick)
        if believed is None:
            return
        session_id, by, report = believed
        events = self.events(session_id)
        boundary = events[max(0, len(events) - 1 - back)]
        self.numbers += 1
        attributes = CheckpointAttributes(
            checkpoint_id=made_up_id("ckpt", self.numbers), through_sequence=boundary.sequence, through_event_id=boundary.event_id,
            through_hash=boundary.hash.hex(), harness_revision=HARNESS, environment_revision=ENVIRONMENT,
            continuation_kind="event_log_rebuild", snapshot_kind="stored", snapshot_id=made_up_id("snap", self.numbers), snapshot_bytes=9,
            snapshot_digest=SEALED_DIGEST,
        )  # fmt: skip
        parts: list[tuple[str, object]] = [("attempt.ready", None)] if ready else []
        self.ask(session_id, *parts, ("checkpoint.created", attributes), run_id=report.run_id, principal_id=by, report=report)

    @rule(pick=PICK, worker=st.sampled_from(WORKERS), spoilt=st.sampled_from([0, 0, 0, 1]), later=st.booleans())
    def replace(self, pick: int, worker: str, spoilt: int, later: bool) -> None:
        believed = self.believed(pick)
        if believed is None:
            return
        session_id, _, report = believed
        self.now += 6 * SECOND * later
        attributes = AttemptAttributes(
            claim_digest=f"sha256:{self.numbers:064x}", replaces=report.generation, harness_revision=HARNESS,
            frontier_sequence=(report.expected_run_sequence or 0) - spoilt, environment_revision=ENVIRONMENT,
            verification_digest=VERIFIED, verified_at=self.now,
        )  # fmt: skip
        self.ask(
            session_id, ("attempt.started", attributes), run_id=report.run_id, kind=Kind.REPLACE, principal_id=worker, lease_ms=LEASE_MS
        )  # fmt: skip

    @rule(pick=PICK, kind=st.sampled_from([Kind.RENEW, Kind.LAPSE]))
    def renew_or_lapse(self, pick: int, kind: Kind) -> None:
        believed = self.believed(pick)
        if believed is not None:
            self.ask(believed[0], kind=kind, principal_id=believed[1], report=believed[2])

    @rule(pick=PICK, seldom=st.sampled_from([False] * 5 + [True]))
    def erase(self, pick: int, seldom: bool) -> None:
        if seldom:
            self.ask(self.session(pick), kind=Kind.ERASE)

    @precondition(lambda self: len(self.sessions) < 8)
    @rule(pick=PICK, by_checkpoint=st.booleans(), back=st.integers(0, 2))
    def fork(self, pick: int, by_checkpoint: bool, back: int) -> None:
        session_id = self.session(pick)
        events = self.events(session_id)
        if not events:
            return
        at, checkpoint_id = events[max(0, len(events) - 1 - back)], None
        told = [event for event in events if event.type == "checkpoint.created"]
        if by_checkpoint and told:
            attributes = told[-1].attributes
            assert isinstance(attributes, CheckpointAttributes)
            checkpoint_id = attributes.checkpoint_id
            at = told[-1] if attributes.fork_id is not None else events[(attributes.through_sequence or 0) - 1]
        asked = SessionAttributes(
            fork_id=new_id("fork"), checkpoint_id=checkpoint_id, through_sequence=at.sequence, through_event_id=at.event_id,
            source_hash=at.hash.hex(),
        )  # fmt: skip
        sent = self.ask(session_id, ("session.forked", asked), kind=Kind.FORK)
        self.sessions.append(derive_from_command("sess", sent.command_id, 0))

    # -- what holds

    def judge(self) -> None:
        self.settle()
        super().judge()
        logs = {session_id: self.events(session_id) for session_id in self.sessions}
        for session_id, events in logs.items():
            generations, folded = Generations(), DictItems()
            for event in events:
                generations.follow(event)
                folded.put(evolve(folded, event))
            assert as_logged(folded) == as_logged(self.state(session_id)), session_id
        self.judge_children(logs)
        self.judge_public(logs)

    def settle(self) -> None:
        """Everybody is started again, and all that was asked is decided."""
        for instance, process in self.processes.items():
            if process is not None:
                process.loop.close()
            self.processes[instance] = None
        for _ in range(40):
            for instance in INSTANCES:
                self.start(instance)
                self.run(instance, 1)
            committed = self.cluster.groups["authority"].committed
            places = [(TOPICS.commands, partition) for partition in (0, 1)]
            if all(
                committed.get(place, 0) > max([entry.offset for entry in self.cluster.committed(place)], default=-1) for place in places
            ):
                return
        raise AssertionError(f"not all is decided: {self.cluster.describe(TOPICS.commands)}")

    def state(self, session_id: str) -> DictItems:
        """What the changelog holds in the end."""
        items = DictItems()
        for entry in self.cluster.committed(self.place(TOPICS.state, session_id)):
            if entry.key is not None and entry.value is not None and not is_chunk(entry.key):
                owner, kind, item_id = entry.key.decode().split("/", 2)
                if owner == session_id:
                    items.items[kind, item_id] = decode_state(kind, entry.value)
        return items

    def judge_children(self, logs: dict[str, list[Event]]) -> None:
        sent: Counter[str] = Counter()
        for partition in (0, 1):
            for entry in self.cluster.committed((TOPICS.commands, partition)):
                asked = decode_command(entry.value or b"")
                if asked.kind is Kind.CHILD:
                    assert partition_of(asked.session_id.encode(), 2) == partition
                    sent[asked.session_id] += 1
        told: Counter[str] = Counter()
        for session_id, events in logs.items():
            for event in events:
                if event.type == "session.forked":
                    assert isinstance(event.attributes, SessionAttributes)
                    child_id = event.attributes.child_session_id or ""
                    told[child_id] += 1
                    self.judge_child(session_id, events, event.attributes, logs[child_id])
        assert told == sent
        assert set(told.values()) <= {1}
        children = {session_id for session_id, events in logs.items() if events and child_of(events[0])}
        assert children == set(told)

    def judge_child(self, source_id: str, source: list[Event], told: SessionAttributes, child: list[Event]) -> None:
        begun = child[0].attributes
        assert isinstance(begun, SessionAttributes)
        at = source[(told.through_sequence or 0) - 1]
        assert (begun.source_session_id, begun.fork_id, begun.through_sequence) == (source_id, told.fork_id, at.sequence)
        assert (begun.through_event_id, begun.source_hash) == (at.event_id, at.hash.hex())
        assert [event.type for event in child].count("session.created") == 1
        if told.checkpoint_id is not None:
            brought = child[1].attributes
            (left,) = [
                event.attributes for event in source
                if event.type == "checkpoint.created" and getattr(event.attributes, "checkpoint_id", None) == told.checkpoint_id
            ]  # fmt: skip
            assert isinstance(brought, CheckpointAttributes)
            assert isinstance(left, CheckpointAttributes)
            assert brought.expires_at == left.expires_at

    def judge_public(self, logs: dict[str, list[Event]]) -> None:
        """Of each checkpoint one row, by the session whose worker left it, with the end that its event tells."""
        rows: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for partition in (0, 1):
            for entry in self.cluster.committed((TOPICS.checkpoints, partition)):
                row = decode_public_checkpoint(entry.value or b"")
                rows[row.checkpoint_id].add((row.session_id, row.expires_at))
        left: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for session_id, events in logs.items():
            for event in events:
                attributes = event.attributes
                if event.type == "checkpoint.created" and isinstance(attributes, CheckpointAttributes) and attributes.fork_id is None:
                    assert attributes.expires_at == event.accepted_at + WINDOW_S * SECOND
                    left[attributes.checkpoint_id or ""].add((session_id, attributes.expires_at))
        assert rows == left


def child_of(draft: Draft) -> bool:
    return isinstance(draft.attributes, SessionAttributes) and draft.attributes.source_session_id is not None


class LongRecoveryMachine(RecoveryMachine):
    """The same, much longer."""


RecoveryMachine.TestCase.settings = hypothesis_settings(max_examples=15, stateful_step_count=40, deadline=None)
TestRecoveryOnSimulator = RecoveryMachine.TestCase
LongRecoveryMachine.TestCase.settings = hypothesis_settings(max_examples=1500, stateful_step_count=80, deadline=None)
TestLongRecoveryOnSimulator = pytest.mark.soak(LongRecoveryMachine.TestCase)
