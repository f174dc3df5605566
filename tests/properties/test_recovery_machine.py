"""Three workers, kills, expiries and policies at sessions that fork: never two live generations, a reopened settled thing, a moved
`expires_at`, or a gap in a sequence.

Each worker keeps what it believes to hold; a killed one remembers it and may come back to report. What it gets accepted is judged
by who was granted what, which is written down here from the grants alone.
"""

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec import structs

from streams.session.commands import Kind, Report
from streams.session.decide import Decision
from streams.session.events import (
    AttemptAttributes,
    CheckpointAttributes,
    Content,
    Draft,
    EffectAttributes,
    RunAttributes,
    SessionAttributes,
    WaitAttributes,
)
from streams.session.items import AttemptState, CheckpointState, RunState
from streams.session.outcomes import Grant, Rejected
from tests.support.examples import made_up_id
from tests.support.recovering import DAY, ENVIRONMENT, HARNESS, VERIFIED, born, checkpoint_part, fork_part, history, native
from tests.support.recovery_invariants import Told, WhatHolds
from tests.support.story import NOON, PERSON, SECOND, SESSION, SUBJECT, Story, part, sealed

WORKERS: Final = tuple(made_up_id("key", name) for name in ("first", "second", "third"))
MONTH_S: Final = 30 * 24 * 3600
DIGEST: Final = "sha256:" + "1" * 64
POLICIES: Final = st.tuples(st.sampled_from(["standard", "standard", "standard", "zdr"]), st.sampled_from([None, MONTH_S, 3600, 20]))
LEASES_S: Final = st.sampled_from([5, 30])
PICK: Final = st.integers(0, 239)
SELDOM: Final = st.sampled_from([False] * 9 + [True])
EVIDENCE: Final = ("replaces", "frontier_sequence", "harness_revision", "verification_digest", "verified_at")
REPORTED: Final = ("message.appended", "attempt.ready", "attempt.ready", "message.appended", "attempt.failed")
SESSIONS_AT_MOST: Final = 6
NOTHING_STORED: Final[dict[str, object]] = {"snapshot_kind": "none", **dict.fromkeys(("snapshot_id", "snapshot_bytes", "snapshot_digest"))}


@dataclass
class Belief:
    """What a worker believes to hold."""

    story: Story
    grant: Grant
    lease_s: int


class RecoveryMachine(WhatHolds):
    def __init__(self) -> None:
        super().__init__()
        self.now = NOON
        self.policy: tuple[str, int | None] = ("standard", None)
        self.beliefs: dict[str, list[Belief]] = {worker: [] for worker in WORKERS}
        """The last one is what the worker works on; those before it are stale."""
        self.dead: set[str] = set()
        self.numbers = 0

    @initialize(policies=st.tuples(POLICIES, POLICIES))
    def begin(self, policies: tuple[tuple[str, int | None], tuple[str, int | None]]) -> None:
        """One worker was ready and has left a checkpoint, one has just begun."""
        for policy in (("standard", None), policies[0]):
            self.policy = policy
            self.create()
        for worker, pick in zip(WORKERS, (0, 1), strict=False):
            self.claim(worker, pick, "1", 30, copes=True, later=False)
        self.report(WORKERS[0], None, 1, behind=0, types=["attempt.ready"])
        self.leave_checkpoint(WORKERS[0], 1, 0, is_native=True)
        self.policy = policies[1]

    # -- what happens

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def told(self, pick: int) -> Told:
        return self.sessions[pick % len(self.sessions)]

    def send(
        self,
        told: Told,
        *parts: Draft,
        by: str = PERSON,
        report: Report | None = None,
        kind: Kind = Kind.APPEND,
        lease_s: int | None = None,
    ) -> Decision | None:
        story = told.story
        story.now, story.took_over_at = self.now, self.took_over_at
        before, events = dict(story.items.items), len(story.events)
        lease_ms = None if lease_s is None else lease_s * 1000
        decision = story.decide(story.command(*parts, by=by, report=report, kind=kind, lease_ms=lease_ms))
        if isinstance(decision, Rejected):
            assert (story.items.items, len(story.events)) == (before, events), "a refusal changed something"
            return None
        if kind is Kind.APPEND and report is not None:
            self.may_report(told, by, report, decision)
        for draft in decision.drafts:
            if isinstance(draft.attributes, AttemptAttributes) and draft.attributes.reason == "lease_lapsed":
                assert decision.accepted_at > self.deadline(told, draft.run_id or ""), "failed within its lease"
            if draft.type == "checkpoint.consumed" and isinstance(draft.attributes, CheckpointAttributes):
                taken = before["checkpoint", draft.attributes.checkpoint_id or ""]
                assert isinstance(taken, CheckpointState)
                seen = taken.through_sequence if taken.origin_session_id == story.session_id else taken.sequence
                assert seen > history(story).erased_through, "restored what is erased"
                assert decision.accepted_at < taken.expires_at, "restored what has expired"
        if decision.grant is not None and kind in (Kind.CLAIM, Kind.REPLACE, Kind.RENEW):
            self.granted(told, by, decision.grant, lease_s)
            self.beliefs[by].append(Belief(told.story, decision.grant, lease_s or 30))
        return decision

    def belief(self, worker: str, pick: int) -> tuple[Told, Report] | None:
        """Mostly the latest; now and then what the worker should have forgotten."""
        held = self.beliefs[worker]
        if not held:
            return None
        belief = held[-1] if pick % 4 else held[pick % len(held)]
        told = next(each for each in self.sessions if each.story is belief.story)
        run_id = belief.grant.run_id
        return told, Report(run_id, belief.grant.generation, belief.grant.native_task_id, told.story.run(run_id).sequence)

    @precondition(lambda self: len(self.sessions) < SESSIONS_AT_MOST)
    @rule()
    def create(self) -> None:
        """Under the policy of now; the ones before keep theirs."""
        number = self.number()
        story = Story(self.now, SESSION if not self.sessions else made_up_id("sess", number))
        told = Told(story)
        mode, window_s = self.policy
        attributes = SessionAttributes(origin="live", policy_mode=mode, content_window_days=30, checkpoint_window_s=window_s)
        assert self.send(told, part("session.created", attributes, subject_id=SUBJECT)) is not None
        self.sessions.append(told)
        self.offer(len(self.sessions) - 1)

    @rule(policy=POLICIES)
    def policy_changes(self, policy: tuple[str, int | None]) -> None:
        self.policy = policy

    @rule(pick=PICK)
    def offer(self, pick: int) -> None:
        told = self.told(pick)
        run_id = made_up_id("run", f"{told.story.session_id} {pick // 7 % 2}")
        self.send(told, part("run.accepted", RunAttributes(harness="harness"), run_id=run_id, content=self.content(told)))

    def content(self, told: Told) -> Content:
        if told.story.header.policy_mode == "zdr":
            return Content("omitted")
        return sealed(max(self.now, told.story.header.last_accepted_at), session_id=told.story.session_id)

    @rule(seconds=st.sampled_from([1, 4, 10, 31, 31, 31]), days=st.sampled_from([0] * 12 + [1, 31]), takeover=SELDOM)
    def time_passes(self, seconds: int, days: int, takeover: bool) -> None:
        self.now += seconds * SECOND + days * DAY
        if takeover:
            self.took_over_at = self.now

    @rule(seconds=st.integers(1, 20))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.now -= seconds * SECOND

    @rule(worker=st.sampled_from(WORKERS))
    def kill_or_revive(self, worker: str) -> None:
        self.dead ^= {worker}

    def later(self, later: bool) -> None:
        """Nobody renews: leases lapse, unless a takeover has just granted them once more."""
        if later:
            self.now += 31 * SECOND

    @rule(
        worker=st.sampled_from(WORKERS), pick=PICK, label=st.sampled_from("12"), lease_s=LEASES_S, copes=st.booleans(), later=st.booleans()
    )  # fmt: skip
    def claim(self, worker: str, pick: int, label: str, lease_s: int, copes: bool, later: bool) -> None:
        self.later(later)
        told = self.told(pick)
        runs = self.runs(told)
        if worker not in self.dead and runs:
            digest = "sha256:" + label * 64
            attributes = AttemptAttributes(
                claim_digest=digest, incomplete_ok=copes, harness_revision=HARNESS, environment_revision=ENVIRONMENT
            )
            self.send(told, part("attempt.started", attributes, run_id=runs[pick // 7 % len(runs)].run_id), by=worker, kind=Kind.CLAIM,
                      lease_s=lease_s)  # fmt: skip

    def runs(self, told: Told) -> list[RunState]:
        return [item for item in told.story.items.items.values() if isinstance(item, RunState)]

    @rule(
        worker=st.sampled_from(WORKERS), pick=PICK, lease_s=LEASES_S, copes=st.booleans(), later=st.booleans(),
        spoilt=st.sampled_from([None] * 10 + list(EVIDENCE)),
    )  # fmt: skip
    def replace(self, worker: str, pick: int, lease_s: int, copes: bool, later: bool, spoilt: str | None) -> None:
        self.later(later)
        told = self.told(pick)
        attempts = [item for item in told.story.items.items.values() if isinstance(item, AttemptState)]
        if worker in self.dead or not attempts:
            return
        attempt = attempts[pick // 7 % len(attempts)]
        run = told.story.run(attempt.run_id)
        evidence: dict[str, object] = {
            "claim_digest": f"sha256:{self.number():064x}", "replaces": attempt.generation, "frontier_sequence": run.sequence,
            "harness_revision": HARNESS, "environment_revision": ENVIRONMENT, "verification_digest": VERIFIED, "verified_at": self.now,
            "incomplete_ok": copes,
        }  # fmt: skip
        if spoilt is not None:
            evidence[spoilt] = None
        draft = part("attempt.started", AttemptAttributes(**evidence), run_id=run.run_id)  # type: ignore[arg-type]
        decision = self.send(told, draft, by=worker, kind=Kind.REPLACE, lease_s=lease_s)
        if decision is not None and decision.drafts and attempt.was_ready:
            assert spoilt is None, "replaced without evidence"
            assert decision.grant is not None
            assert decision.grant.recovery is not None
            assert decision.grant.recovery.complete, "replaced on a history that cannot be read"
            taken = story_checkpoint(told, decision.grant.recovery.checkpoint_id)
            assert taken.run_id == run.run_id, "replaced from what another Run left"

    @rule(worker=st.sampled_from(WORKERS), pick=PICK, lease_s=LEASES_S)
    def renew(self, worker: str, pick: int, lease_s: int) -> None:
        believed = self.belief(worker, pick)
        if believed is not None:
            self.send(believed[0], by=worker, report=believed[1], kind=Kind.RENEW, lease_s=lease_s)

    @rule(
        worker=st.sampled_from(WORKERS), forger=st.sampled_from([None] * 9 + list(WORKERS)), pick=PICK,
        behind=st.sampled_from([0] * 5 + [1]), types=st.lists(st.sampled_from(REPORTED), min_size=1, max_size=3),
    )  # fmt: skip
    def report(self, worker: str, forger: str | None, pick: int, behind: int, types: list[str]) -> None:
        """Also by dead workers: what they sent may arrive late."""
        believed = self.belief(worker, pick)
        if believed is None:
            return
        told, report = believed
        seen = structs.replace(report, expected_run_sequence=(report.expected_run_sequence or 0) - behind)
        drafts = [
            part(each, run_id=report.run_id, content=self.content(told)) if each == "message.appended" else part(each, run_id=report.run_id)
            for each in types
        ]
        decision = self.send(told, *drafts, by=forger or worker, report=seen)
        assert decision is None or behind == 0

    @rule(
        worker=st.sampled_from(WORKERS), pick=PICK, number=st.integers(1, 2),
        what=st.sampled_from(["wait", "dispatch", "receive", "wait", "dispatch", "receive", "complete"]),
    )  # fmt: skip
    def work(self, worker: str, pick: int, number: int, what: str) -> None:
        believed = self.belief(worker, pick)
        if believed is None:
            return
        told, report = believed
        effect = EffectAttributes(effect_id=made_up_id("eff", number), provider="mail", request_digest=DIGEST)
        drafts = {
            "complete": part("run.completed", run_id=report.run_id),
            "wait": part("wait.opened", WaitAttributes(wait_id=made_up_id("wait", number), kind="human"), run_id=report.run_id),
            "dispatch": part("effect.dispatched", effect, run_id=report.run_id),
            "receive": part("effect.receipt_accepted", EffectAttributes(effect_id=made_up_id("eff", number), receipt_digest=DIGEST)),
        }
        self.send(told, drafts[what], by=worker, report=report)

    @rule(pick=PICK, number=st.integers(1, 2), seldom=SELDOM, what=st.sampled_from(["answer", "reconcile", "cancel", "close"]))
    def person_acts(self, pick: int, number: int, seldom: bool, what: str) -> None:
        told = self.told(pick)
        runs = self.runs(told)
        # What is over shows little more.
        if what in ("cancel", "close") and not seldom:
            return
        settled = EffectAttributes(effect_id=made_up_id("eff", number), evidence_kind="governed_decision", outcome="succeeded")
        drafts = {
            "answer": part("wait.answered", WaitAttributes(wait_id=made_up_id("wait", number))),
            "reconcile": part("effect.reconciled", settled),
            "cancel": part("run.cancelled", run_id=runs[0].run_id if runs else made_up_id("run")),
            "close": part("session.closed"),
        }
        self.send(told, drafts[what])

    @rule(worker=st.sampled_from(WORKERS), pick=PICK, through=st.integers(0, 3), is_native=st.booleans())
    def leave_checkpoint(self, worker: str, pick: int, through: int, is_native: bool) -> None:
        believed = self.belief(worker, pick)
        if believed is None:
            return
        told, report = believed
        label = self.number()
        material = native(label) if is_native else {}
        if told.story.header.policy_mode == "zdr" and pick % 3:
            material = NOTHING_STORED
        at = max(1, told.story.header.sequence - through)
        draft = checkpoint_part(told.story, report.run_id, label, at, **material)
        decision = self.send(told, draft, by=worker, report=report)
        if decision is not None:
            left = told.story.items.get("checkpoint", made_up_id("ckpt", label))
            assert isinstance(left, CheckpointState)
            assert left.expires_at == decision.accepted_at + told.story.header.checkpoint_window_s * SECOND
            assert left.expires_at <= decision.accepted_at + 30 * DAY
            assert (left.snapshot_kind == "none") == (told.story.header.policy_mode == "zdr")

    @rule(pick=PICK, stale=st.booleans())
    def custodian_asks(self, pick: int, stale: bool) -> None:
        told = self.told(pick)
        attempts = [item for item in told.story.items.items.values() if isinstance(item, AttemptState)]
        if not attempts:
            return
        attempt = attempts[pick // 7 % len(attempts)]
        decision = self.send(told, kind=Kind.LAPSE, report=Report(attempt.run_id, attempt.generation - stale))
        if decision is None:
            return
        assert not stale
        if not decision.drafts:
            assert decision.grant is not None
            assert decision.grant.lease_expires_at == self.deadline(told, attempt.run_id) >= decision.accepted_at

    @rule(pick=PICK, seldom=st.sampled_from([False, False, True]))
    def erase(self, pick: int, seldom: bool) -> None:
        if seldom:
            told = self.told(pick)
            assert self.send(told, kind=Kind.ERASE) is not None
            assert history(told.story).erased_through == told.story.header.sequence

    @precondition(lambda self: len(self.sessions) < SESSIONS_AT_MOST)
    @rule(pick=PICK, back=st.integers(0, 3), by_checkpoint=st.booleans())
    def fork(self, pick: int, back: int, by_checkpoint: bool) -> None:
        told = self.told(pick)
        story = told.story
        checkpoints = [item for item in story.items.items.values() if isinstance(item, CheckpointState)]
        named = checkpoints[pick // 7 % len(checkpoints)] if by_checkpoint and checkpoints else None
        number = self.number()
        draft = (
            fork_part(story, max(1, story.header.sequence - back), label=number)
            if named is None
            else fork_part(story, checkpoint_id=named.checkpoint_id, label=number)
        )
        decision = self.send(told, draft, kind=Kind.FORK)
        if decision is None:
            return
        (command,) = decision.sent
        child = Told(born(story, command), source=told)
        assert child.story.session_id not in {each.story.session_id for each in self.sessions}
        self.sessions.append(child)
        self.offer(len(self.sessions) - 1)


def story_checkpoint(told: Told, checkpoint_id: str | None) -> CheckpointState:
    item = told.story.items.get("checkpoint", checkpoint_id or "")
    assert isinstance(item, CheckpointState)
    return item


class LongRecoveryMachine(RecoveryMachine):
    """The same, much longer."""


_SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
RecoveryMachine.TestCase.settings = settings(_SETTINGS, max_examples=150, stateful_step_count=70)
TestRecoveryMachine = RecoveryMachine.TestCase
LongRecoveryMachine.TestCase.settings = settings(_SETTINGS, max_examples=4000, stateful_step_count=150)
TestLongRecoveryMachine = pytest.mark.soak(LongRecoveryMachine.TestCase)
