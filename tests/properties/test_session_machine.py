"""Workers, people and time at one session: claims race, leases lapse, stale workers report, and the promises hold.

Beside the core stands a second, much smaller account of who holds which Run, made from the grants alone: what a worker
gets accepted must agree with it.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from streams.session import lifecycles
from streams.session.commands import Kind, Report
from streams.session.decide import Decision
from streams.session.events import (
    ApprovalAttributes,
    ContextAttributes,
    Draft,
    EffectAttributes,
    MessageAttributes,
    SteeringAttributes,
    WaitAttributes,
)
from streams.session.items import AttemptState, EffectState, RunState, SessionState
from streams.session.outcomes import Grant, Rejected
from tests.support.examples import made_up_id
from tests.support.story import OTHER, PERSON, SECOND, WORKER, Story, part

RUNS = [made_up_id("run", label) for label in "abc"]
WORKERS = [WORKER, OTHER, made_up_id("key", "third")]
SMALL = st.integers(1, 3)
T = TypeVar("T")
SELDOM = st.sampled_from([False] * 7 + [True])
ACTIONS = ["sha256:" + digit * 64 for digit in "12"]

WORKERS_TYPES = frozenset(
    {
        "message.appended", "tool.called", "attempt.ready", "attempt.failed", "run.completed", "run.failed", "wait.opened",
        "approval.requested", "effect.dispatched", "effect.receipt_accepted",
    }
)  # fmt: skip


@dataclass
class Holder:
    """Who holds a Run, as the grants told it."""

    principal: str
    grant: Grant
    lease_s: int
    over: bool = False


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.holders: dict[str, Holder] = {}
        self.memories: list[tuple[str, Report]] = []
        """What workers remember having been granted and seen, stale or not."""
        self.settled: dict[tuple[str, str], str] = {}
        self.labels = 0

    @initialize()
    def begins(self) -> None:
        self.story.created()
        for run_id in RUNS:
            self.story.with_run(run_id)
        for run_id, by in zip(RUNS[:2], WORKERS, strict=False):
            self.claim(by, run_id, "1", 30)

    # -- what happens

    def send(
        self, *parts: Draft, by: str = PERSON, report: Report | None = None, kind: Kind = Kind.APPEND, lease_ms: int | None = None
    ) -> Decision | None:
        story, before = self.story, dict(self.story.items.items)
        command = story.command(*parts, by=by, report=report, kind=kind, lease_ms=lease_ms)
        decision = story.decide(command)
        if isinstance(decision, Rejected):
            assert story.items.items == before
            return None
        if report is not None:
            seen = before["run", report.run_id]
            assert isinstance(seen, RunState)
            assert kind is Kind.RENEW or report.expected_run_sequence == seen.sequence
            self.check_report(report, by, decision)
        for draft in decision.drafts:
            if draft.run_id in self.holders and draft.type in {"attempt.failed", "run.completed", "run.failed", "run.cancelled"}:
                self.holders[draft.run_id].over = True
        # A claim over a lapsed lease ends the attempt before and begins the next.
        if decision.grant is not None:
            self.learn(decision.grant, by, lease_ms, renewed=kind is Kind.RENEW)
        return decision

    def check_report(self, report: Report, by: str, decision: Decision) -> None:
        holder = self.holders[report.run_id]
        assert not holder.over
        assert (by, report.generation, report.native_task_id) == (holder.principal, holder.grant.generation, holder.grant.native_task_id)
        assert decision.accepted_at <= max(holder.grant.lease_expires_at, self.story.took_over_at + holder.lease_s * SECOND)
        for draft in decision.drafts:
            if draft.type in WORKERS_TYPES:
                assert draft.run_id == report.run_id

    def learn(self, grant: Grant, by: str, lease_ms: int | None, *, renewed: bool) -> None:
        holder = self.holders.get(grant.run_id)
        if holder is None or grant.generation != holder.grant.generation:
            assert grant.generation == (1 if holder is None else holder.grant.generation + 1)
            assert holder is None or holder.over
            assert lease_ms is not None
            self.holders[grant.run_id] = Holder(by, grant, lease_ms // 1000)
        else:
            assert by == holder.principal
            assert not holder.over
            holder.grant = grant
            # A claim told again keeps the lease that it was granted.
            holder.lease_s = lease_ms // 1000 if renewed and lease_ms is not None else holder.lease_s
        self.memories.append((by, Report(grant.run_id, grant.generation, grant.native_task_id, grant.run_sequence)))

    def remembered(self, data: st.DataObject, fresh: bool) -> tuple[str, Report]:
        current = [
            (holder.principal, Report(run_id, holder.grant.generation, holder.grant.native_task_id, 0))
            for run_id, holder in sorted(self.holders.items())
        ]
        by, report = data.draw(st.sampled_from([*current, *current, *self.memories[-3:]]))
        if fresh:
            report = structs.replace(report, expected_run_sequence=self.story.run(report.run_id).sequence)
        return by, report

    @rule(seconds=st.sampled_from([1, 2, 4, 10, 31]), takeover=SELDOM)
    def time_passes(self, seconds: int, takeover: bool) -> None:
        self.story.now += seconds * SECOND
        if takeover:
            self.story.took_over_at = self.story.now

    @rule(seconds=st.integers(1, 40))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.story.now -= seconds * SECOND

    @rule(by=st.sampled_from(WORKERS), run_id=st.sampled_from(RUNS), label=st.sampled_from("12"), lease_s=st.sampled_from([5, 30]))
    def claim(self, by: str, run_id: str, label: str, lease_s: int) -> None:
        self.send(self.story.claim_parts(label, run_id), by=by, kind=Kind.CLAIM, lease_ms=lease_s * 1000)

    @precondition(lambda self: self.memories)
    @rule(data=st.data(), lease_s=st.sampled_from([5, 30]))
    def renew(self, data: st.DataObject, lease_s: int) -> None:
        by, report = self.remembered(data, fresh=False)
        self.send(by=by, report=report, kind=Kind.RENEW, lease_ms=lease_s * 1000)

    @precondition(lambda self: self.memories)
    @rule(
        data=st.data(),
        fresh=st.booleans(),
        types=st.lists(
            st.sampled_from(["message.appended", "tool.called", "message.appended", "attempt.ready", "attempt.failed"]),
            min_size=1,
            max_size=4,
        ),
    )
    def report(self, data: st.DataObject, fresh: bool, types: list[str]) -> None:
        by, report = self.remembered(data, fresh)
        self.send(*[part(event_type, run_id=report.run_id) for event_type in types], by=by, report=report)

    @precondition(lambda self: self.memories)
    @rule(
        data=st.data(),
        forger=st.sampled_from(WORKERS),
        generation=st.sampled_from([0, 0, 1, -1]),
        where=st.sampled_from(RUNS),
        event_type=st.sampled_from(["message.appended", "attempt.ready"]),
    )
    def lie(self, data: st.DataObject, forger: str, generation: int, where: str, event_type: str) -> None:
        """Somebody else's report, a generation that is not the worker's, another Run than the one reported."""
        _, report = self.remembered(data, fresh=True)
        told = structs.replace(report, generation=report.generation + generation)
        self.send(part(event_type, run_id=where), by=forger, report=told)

    @precondition(lambda self: self.memories)
    @rule(data=st.data(), end=st.sampled_from(["run.completed", "run.failed"]), seldom=SELDOM)
    def finish(self, data: st.DataObject, end: str, seldom: bool) -> None:
        # What is over shows little more.
        if not seldom:
            return
        by, report = self.remembered(data, fresh=True)
        self.send(part(end, run_id=report.run_id), by=by, report=report)

    @rule(run_id=st.sampled_from(RUNS), seldom=SELDOM)
    def interfere(self, run_id: str, seldom: bool) -> None:
        if seldom:
            self.send(part("run.cancelled", run_id=run_id))
        else:
            self.send(part("steering.applied", SteeringAttributes(kind="hint", target_run_id=run_id)))

    @rule(run_id=st.sampled_from(RUNS), by=st.sampled_from(WORKERS))
    def intrude(self, run_id: str, by: str) -> None:
        """Without a report nothing of a worker's gets in."""
        assert self.send(part("message.appended", MessageAttributes(role="assistant"), run_id=run_id), by=by) is None

    @precondition(lambda self: self.memories)
    @rule(data=st.data(), number=SMALL, due=st.sampled_from([None, 10]))
    def open_wait(self, data: st.DataObject, number: int, due: int | None) -> None:
        by, report = self.remembered(data, fresh=True)
        expires_at = None if due is None else self.story.now + due * SECOND
        attributes = WaitAttributes(wait_id=made_up_id("wait", number), kind="human", expires_at=expires_at)
        self.send(part("wait.opened", attributes, run_id=report.run_id), by=by, report=report)

    @rule(number=SMALL, how=st.sampled_from(["wait.answered", "wait.expired"]))
    def close_wait(self, number: int, how: str) -> None:
        self.send(part(how, WaitAttributes(wait_id=made_up_id("wait", number))))

    @precondition(lambda self: self.memories)
    @rule(data=st.data(), number=SMALL, action=st.sampled_from(ACTIONS))
    def ask(self, data: st.DataObject, number: int, action: str) -> None:
        by, report = self.remembered(data, fresh=True)
        attributes = ApprovalAttributes(approval_id=made_up_id("appr", number), action_digest=action)
        self.send(part("approval.requested", attributes, run_id=report.run_id), by=by, report=report)

    @rule(number=SMALL, how=st.sampled_from(["approval.granted", "approval.granted", "approval.denied"]))
    def approve(self, number: int, how: str) -> None:
        self.send(part(how, ApprovalAttributes(approval_id=made_up_id("appr", number))))

    @precondition(lambda self: self.memories)
    @rule(data=st.data(), number=SMALL, action=st.sampled_from(ACTIONS), approval=st.sampled_from([None, None, 1, 2, 3]))
    def dispatch(self, data: st.DataObject, number: int, action: str, approval: int | None) -> None:
        by, report = self.remembered(data, fresh=True)
        attributes = EffectAttributes(
            effect_id=made_up_id("eff", number),
            provider="mail",
            request_digest=action,
            approval_id=None if approval is None else made_up_id("appr", approval),
        )
        self.send(part("effect.dispatched", attributes, run_id=report.run_id), by=by, report=report)

    @precondition(lambda self: self.memories)
    @rule(data=st.data(), number=SMALL, outcome=st.sampled_from([None, "failed"]))
    def receive(self, data: st.DataObject, number: int, outcome: str | None) -> None:
        by, report = self.remembered(data, fresh=True)
        attributes = EffectAttributes(effect_id=made_up_id("eff", number), receipt_digest=ACTIONS[0], outcome=outcome)
        self.send(part("effect.receipt_accepted", attributes), by=by, report=report)

    @rule(number=SMALL, outcome=st.sampled_from(["succeeded", "not_performed", "abandoned"]))
    def reconcile(self, number: int, outcome: str) -> None:
        attributes = EffectAttributes(effect_id=made_up_id("eff", number), evidence_kind="governed_decision", outcome=outcome)
        effect = self.story.items.get("effect", made_up_id("eff", number))
        decision = self.send(part("effect.reconciled", attributes))
        if decision is not None:
            assert isinstance(effect, EffectState)
            holder = self.holders[effect.run_id or ""]
            in_flight = effect.status == lifecycles.DISPATCHED and not holder.over
            assert not in_flight or decision.accepted_at > holder.grant.lease_expires_at

    @precondition(lambda self: self.memories)
    @rule(data=st.data(), revision=st.sampled_from("12"))
    def pin(self, data: st.DataObject, revision: str) -> None:
        by, report = self.remembered(data, fresh=True)
        self.send(
            part("context.pinned", ContextAttributes(pin_kind="memory", revision=revision), run_id=report.run_id), by=by, report=report
        )

    # -- what holds

    def items(self, kind: type[T]) -> list[T]:
        return [item for item in self.story.items.items.values() if isinstance(item, kind)]

    @invariant()
    def sequences_have_no_gap_and_times_do_not_decrease(self) -> None:
        events = self.story.events
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert all(one.accepted_at <= two.accepted_at for one, two in pairwise(events))
        assert all(one.hash == two.previous_hash for one, two in pairwise(events))

    @invariant()
    def nothing_settled_changes(self) -> None:
        for key, item in self.story.items.items.items():
            status = getattr(item, "status", None)
            if key in self.settled:
                assert status == self.settled[key]
            elif status is not None and key[0] != "attempt" and status in lifecycles.FINAL[key[0]]:
                self.settled[key] = status

    @invariant()
    def generations_follow_one_another_and_each_ends_before_the_next(self) -> None:
        live: dict[str, int] = {}
        reached: dict[str, int] = {}
        ready: set[str] = set()
        for event in self.story.events:
            run_id, generation = event.run_id or "", event.attempt_generation
            if event.type == "attempt.started":
                assert run_id not in live
                assert run_id not in ready, "replaced without evidence"
                assert generation == reached.get(run_id, 0) + 1
                live[run_id] = reached[run_id] = generation
            elif event.type == "attempt.failed":
                assert live.pop(run_id) == generation
            elif event.type in {"attempt.ready", "run.completed", "run.failed"}:
                assert live[run_id] == generation
                if event.type == "attempt.ready":
                    ready.add(run_id)

    @invariant()
    def an_effect_is_dispatched_only_while_its_attempt_may_report(self) -> None:
        runs = {item.run_id: item for item in self.items(RunState)}
        attempts = {item.run_id: item for item in self.items(AttemptState)}
        open_actions: list[str] = []
        for effect in self.items(EffectState):
            run = runs[effect.run_id]
            assert (effect.effect_id in run.open_effects) == (effect.status != lifecycles.SETTLED)
            if effect.status == lifecycles.DISPATCHED:
                assert run.status not in lifecycles.SETTLED_RUN
                assert attempts[run.run_id].status in lifecycles.LIVE_ATTEMPT
                assert attempts[run.run_id].generation == effect.attempt_generation
            if effect.status != lifecycles.SETTLED:
                open_actions.append(effect.action_digest)
        assert len(open_actions) == len(set(open_actions))

    @invariant()
    def an_approval_is_used_for_what_it_was_granted_and_at_most_once(self) -> None:
        granted: dict[str, str] = {}
        done: set[str] = set()
        outcome = {item.effect_id: item.outcome for item in self.items(EffectState)}
        for event in self.story.events:
            attributes = event.attributes
            if event.type == "approval.requested" and isinstance(attributes, ApprovalAttributes):
                granted[attributes.approval_id or ""] = ""
            elif event.type == "approval.granted" and isinstance(attributes, ApprovalAttributes):
                approval = self.story.items.get("approval", attributes.approval_id or "")
                granted[attributes.approval_id or ""] = getattr(approval, "action_digest", "")
            elif event.type == "effect.dispatched" and isinstance(attributes, EffectAttributes) and attributes.approval_id is not None:
                assert granted[attributes.approval_id] == attributes.request_digest
                if outcome[attributes.effect_id] not in {"failed", "not_performed"}:
                    assert attributes.approval_id not in done
                    done.add(attributes.approval_id)

    @invariant()
    def a_run_waits_exactly_while_it_has_open_waits(self) -> None:
        for run in self.items(RunState):
            if run.status not in lifecycles.SETTLED_RUN:
                assert (run.status == lifecycles.WAITING) == bool(run.open_waits)
            assert len({pin.split(" ")[0] for pin in run.pins}) == len(run.pins)
            last = max(event.sequence for event in self.story.events if event.run_id == run.run_id)
            assert run.sequence == last

    @invariant()
    def the_header_is_at_the_last_event(self) -> None:
        header = self.story.items.get("session", "")
        assert isinstance(header, SessionState)
        assert (header.sequence, header.last_hash) == (len(self.story.events), self.story.events[-1].hash)


class LongSessionMachine(SessionMachine):
    """The same, much longer."""


_SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SessionMachine.TestCase.settings = settings(_SETTINGS, max_examples=100, stateful_step_count=80)
TestSessionMachine = SessionMachine.TestCase
LongSessionMachine.TestCase.settings = settings(_SETTINGS, max_examples=3000, stateful_step_count=120)
TestLongSessionMachine = pytest.mark.soak(LongSessionMachine.TestCase)
