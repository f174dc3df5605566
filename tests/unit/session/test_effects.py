"""Provider effects: told before they are sent, settled on evidence, never blindly done twice."""

import hashlib

import pytest
from msgspec import structs

from streams.session.commands import Kind
from streams.session.decide import decide
from streams.session.events import ApprovalAttributes, Draft, EffectAttributes, read
from streams.session.items import ActionState, EffectState
from streams.session.outcomes import Grant, Rejected
from tests.support.examples import made_up_id
from tests.support.story import OTHER, SECOND, WORKER, Story, part

RUN = made_up_id("run")
ACTION, OTHER_ACTION, REQUEST, RECEIPT = ("sha256:" + digit * 64 for digit in "1234")
BARE, HYPHENATED = "1" * 64, "sha-256:" + "1" * 64
APPROVAL = made_up_id("appr")
EVIDENCE = ["provider_lookup", "idempotency_mechanism", "accepted_receipt", "governed_decision"]


def effect_id(label: object) -> str:
    return made_up_id("eff", label)


def dispatch(
    label: object = 1,
    *,
    action: str | None = ACTION,
    request: str | None = None,
    approval_id: str | None = None,
    run_id: str | None = RUN,
) -> Draft:
    """Each action is a request of its own, unless `request` says otherwise."""
    digest = request or f"sha256:{hashlib.sha256((action or '').encode()).hexdigest()}"
    attributes = EffectAttributes(
        effect_id=effect_id(label), provider="payments", request_digest=digest, action_digest=action, approval_id=approval_id
    )
    return part("effect.dispatched", attributes, run_id=run_id)


def receipt(label: object = 1, outcome: str | None = None, receipt_digest: str | None = RECEIPT) -> Draft:
    return part("effect.receipt_accepted", EffectAttributes(effect_id=effect_id(label), receipt_digest=receipt_digest, outcome=outcome))


def reconcile(label: object = 1, evidence: str | None = "provider_lookup", outcome: str | None = "succeeded", **more: str) -> Draft:
    return part("effect.reconciled", EffectAttributes(effect_id=effect_id(label), evidence_kind=evidence, outcome=outcome, **more))


def dispatched(*drafts: Draft) -> tuple[Story, Grant]:
    story = Story()
    grant = story.working()
    story.tell(*(drafts or (dispatch(),)), by=WORKER, report=story.report(grant))
    return story, grant


def status(story: Story, label: object = 1) -> str:
    item = story.items.get("effect", effect_id(label))
    assert isinstance(item, EffectState)
    return item.outcome or item.status


def dead(story: Story, grant: Grant) -> None:
    """The attempt fails before it became ready."""
    story.tell(part("attempt.failed", run_id=RUN), by=WORKER, report=story.report(grant))


def test_a_receipt_settles_what_was_dispatched() -> None:
    story, grant = dispatched()
    assert (status(story), story.run().open_effects) == ("dispatched", (effect_id(1),))
    story.tell(receipt(), by=WORKER, report=story.report(grant))
    assert (status(story), story.run().open_effects) == ("succeeded", ())
    for again in (receipt(), reconcile(), dispatch()):
        assert story.refusal(again, by=WORKER, report=story.report(grant)) == "runtime.already_settled"


def test_a_dispatch_says_what_is_sent_where() -> None:
    story = Story()
    grant = story.working()
    whole = {"effect_id": effect_id(1), "provider": "payments", "request_digest": REQUEST}
    for name in whole:
        draft = part("effect.dispatched", EffectAttributes(**{**whole, name: None}), run_id=RUN)
        assert story.refusal(draft, by=WORKER, report=story.report(grant)) == "request.invalid"
    story.tell(part("effect.dispatched", EffectAttributes(**whole), run_id=RUN), by=WORKER, report=story.report(grant))


def test_a_dispatch_comes_from_the_attempt_that_holds_the_run() -> None:
    story = Story()
    story.working()
    assert story.refusal(dispatch()) == "request.invalid"
    assert story.refusal(dispatch(run_id=None)) == "resource.not_found"


def test_a_receipt_without_a_digest_is_none() -> None:
    story, grant = dispatched()
    assert story.refusal(receipt(receipt_digest=None), by=WORKER, report=story.report(grant)) == "request.invalid"
    assert story.refusal(receipt(outcome="abandoned"), by=WORKER, report=story.report(grant)) == "request.invalid"
    assert story.refusal(receipt(2), by=WORKER, report=story.report(grant)) == "resource.not_found"


class TestAnAttemptThatEndsWithoutAReceipt:
    def test_leaves_its_effect_indeterminate(self) -> None:
        story, grant = dispatched(dispatch(1), dispatch(2, action=OTHER_ACTION))
        story.tell(receipt(2), by=WORKER, report=story.report(grant))
        dead(story, grant)
        assert story.types[-2:] == ["attempt.failed", "effect.indeterminate"]
        assert story.events[-1].attempt_generation == 1
        assert (status(story, 1), status(story, 2)) == ("indeterminate", "succeeded")
        assert story.run().open_effects == (effect_id(1),)

    def test_by_a_lapsed_lease_too(self) -> None:
        story, _ = dispatched()
        story.now += 31 * SECOND
        story.claim(by=OTHER, label="2")
        assert story.types[-3:] == ["attempt.failed", "effect.indeterminate", "attempt.started"]
        assert status(story) == "indeterminate"

    @pytest.mark.parametrize("end", ["run.completed", "run.failed", "run.cancelled"])
    def test_because_the_run_ended_too(self, end: str) -> None:
        story, grant = dispatched()
        story.tell(part(end, run_id=RUN), by=WORKER, report=story.report(grant))
        assert story.types[-2:] == [end, "effect.indeterminate"]
        assert status(story) == "indeterminate"

    def test_does_so_at_once_in_an_imported_run(self) -> None:
        story = Story().created().with_imported_run()
        story.tell(dispatch(), part("run.completed", run_id=RUN), importing=True)
        assert story.types[-3:] == ["effect.dispatched", "run.completed", "effect.indeterminate"]

    def test_cannot_bring_the_receipt_any_more(self) -> None:
        story, grant = dispatched()
        dead(story, grant)
        assert story.refusal(receipt(), by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"
        assert story.refusal(receipt(), by=WORKER) == "request.invalid"

    def test_may_have_its_receipt_brought_by_the_next(self) -> None:
        story, grant = dispatched()
        dead(story, grant)
        second = story.claim(by=OTHER, label="2")
        story.tell(receipt(), by=OTHER, report=story.report(second))
        assert status(story) == "succeeded"


def test_a_worker_may_say_itself_that_it_does_not_know() -> None:
    story, grant = dispatched()
    unknown = part("effect.indeterminate", EffectAttributes(effect_id=effect_id(1)))
    story.tell(unknown, by=WORKER, report=story.report(grant))
    assert status(story) == "indeterminate"
    assert story.refusal(unknown, by=WORKER, report=story.report(grant)) == "runtime.effect_indeterminate"


class TestReconciliation:
    @pytest.mark.parametrize("evidence", EVIDENCE)
    def test_settles_with_each_kind_of_evidence(self, evidence: str) -> None:
        story, grant = dispatched()
        dead(story, grant)
        story.tell(reconcile(evidence=evidence, receipt_digest=RECEIPT))
        assert (status(story), story.events[-1].run_id) == ("succeeded", RUN)
        assert story.run().open_effects == ()

    @pytest.mark.parametrize(
        "draft",
        [
            reconcile(evidence=None),
            reconcile(evidence="hearsay"),
            reconcile(outcome=None),
            reconcile(evidence="accepted_receipt"),
            reconcile(evidence="accepted_receipt", outcome="not_performed", receipt_digest=RECEIPT),
            reconcile(outcome="abandoned"),
            reconcile(request_digest=RECEIPT),
            reconcile(action_digest=OTHER_ACTION),
        ],
    )
    def test_needs_evidence(self, draft: Draft) -> None:
        story, grant = dispatched()
        dead(story, grant)
        assert story.refusal(draft) == "request.invalid"

    def test_by_decision_may_give_up(self) -> None:
        story, grant = dispatched()
        dead(story, grant)
        story.tell(reconcile(evidence="governed_decision", outcome="abandoned"))
        assert status(story) == "abandoned"

    def test_waits_while_the_attempt_may_still_report(self) -> None:
        """What a lookup does not find yet may still arrive."""
        story, grant = dispatched()
        assert story.refusal(reconcile(outcome="not_performed")) == "runtime.effect_in_flight"
        story.tell(reconcile(outcome="not_performed"), by=WORKER, report=story.report(grant))

    def test_need_not_wait_for_a_lapsed_attempt(self) -> None:
        story, grant = dispatched()
        story.tell(part("attempt.ready", run_id=RUN), by=WORKER, report=story.report(grant))
        story.now += 31 * SECOND
        story.tell(reconcile())

    def test_is_possible_after_the_run_and_does_not_reopen_it(self) -> None:
        story, _ = dispatched()
        story.tell(part("run.cancelled", run_id=RUN))
        story.tell(reconcile())
        assert (story.run().status, story.run().open_effects) == ("cancelled", ())


class TestABlindDuplicate:
    def test_of_an_indeterminate_action_is_refused(self) -> None:
        story, grant = dispatched()
        dead(story, grant)
        second = story.claim(by=OTHER, label="2")
        assert story.refusal(dispatch(2), by=OTHER, report=story.report(second)) == "runtime.effect_indeterminate"
        assert story.refusal(dispatch(1), by=OTHER, report=story.report(second)) == "runtime.effect_indeterminate"
        story.tell(dispatch(3, action=OTHER_ACTION), by=OTHER, report=story.report(second))

    def test_of_an_action_under_way_is_refused(self) -> None:
        story, grant = dispatched()
        assert story.refusal(dispatch(2), by=WORKER, report=story.report(grant)) == "runtime.effect_indeterminate"
        assert story.refusal(dispatch(1), by=WORKER, report=story.report(grant)) == "runtime.already_exists"

    def test_in_another_run_is_refused_too(self) -> None:
        story, _ = dispatched()
        other = made_up_id("run", 2)
        story.with_run(other)
        grant = story.claim(by=OTHER, label="2", run_id=other)
        assert story.refusal(dispatch(2, run_id=other), by=OTHER, report=story.report(grant)) == "runtime.effect_indeterminate"

    def test_is_none_once_the_first_is_settled(self) -> None:
        story, grant = dispatched()
        story.tell(receipt(), by=WORKER, report=story.report(grant))
        story.tell(dispatch(2), by=WORKER, report=story.report(grant))

    @pytest.mark.parametrize("first", [ACTION, BARE, HYPHENATED])
    @pytest.mark.parametrize("second", [ACTION, BARE, HYPHENATED])
    def test_is_one_however_its_digest_is_spelled(self, first: str, second: str) -> None:
        story, grant = dispatched(dispatch(1, action=first, request=REQUEST))
        again = dispatch(2, action=second, request=OTHER_ACTION)
        assert story.refusal(again, by=WORKER, report=story.report(grant)) == "runtime.effect_indeterminate"
        story.tell(receipt(), by=WORKER, report=story.report(grant))
        story.tell(again, by=WORKER, report=story.report(grant))

    @pytest.mark.parametrize("request_digest", [REQUEST, REQUEST.partition(":")[2]])
    @pytest.mark.parametrize("action", [OTHER_ACTION, None, REQUEST])
    def test_is_one_where_the_same_request_goes_under_another_action(self, request_digest: str, action: str | None) -> None:
        story, grant = dispatched(dispatch(1, request=REQUEST))
        again = dispatch(2, action=action, request=request_digest)
        assert story.refusal(again, by=WORKER, report=story.report(grant)) == "runtime.effect_indeterminate"
        dead(story, grant)
        second = story.claim(by=OTHER, label="2")
        assert story.refusal(again, by=OTHER, report=story.report(second)) == "runtime.effect_indeterminate"
        story.tell(reconcile(), by=OTHER, report=story.report(second))
        story.tell(again, by=OTHER, report=story.report(second))

    @pytest.mark.parametrize("now", [ACTION, BARE])
    def test_is_one_of_what_stands_in_an_older_item_under_its_spelling(self, now: str) -> None:
        story, grant = dispatched(dispatch(1, action=BARE))
        action = story.items.items.pop(("action", ACTION))
        assert isinstance(action, ActionState)
        story.items.put({("action", BARE): structs.replace(action, action_digest=BARE)})
        again = story.command(dispatch(2, action=now, request=REQUEST), by=WORKER, report=story.report(grant))
        decision = decide(story.items, again, story.now, story.commands)
        assert isinstance(decision, Rejected)
        assert decision.code == "runtime.effect_indeterminate"

    @pytest.mark.parametrize(("of_action", "of_request"), [(BARE, REQUEST), (ACTION, REQUEST.partition(":")[2])])
    def test_is_settled_under_any_spelling_and_told_under_its_own(self, of_action: str, of_request: str) -> None:
        story, _ = dispatched(dispatch(1, request=REQUEST))
        story.now += 31 * SECOND
        story.tell(reconcile(action_digest=of_action, request_digest=of_request))
        assert status(story) == "succeeded"
        told = next(event for event in story.events if event.type == "effect.dispatched")
        assert read(told, EffectAttributes).action_digest == ACTION

    def test_is_recognised_by_the_request_where_no_action_is_named(self) -> None:
        story, grant = dispatched(dispatch(1, action=None))
        assert story.refusal(dispatch(2, action=None), by=WORKER, report=story.report(grant)) == "runtime.effect_indeterminate"


class TestAnApprovedAction:
    def asked(self, *, expires_at: int | None = None, action_digest: str = ACTION) -> tuple[Story, Grant]:
        ask = ApprovalAttributes(approval_id=APPROVAL, action_digest=action_digest, expires_at=expires_at)
        story = Story()
        grant = story.working()
        story.tell(part("approval.requested", ask, run_id=RUN), by=WORKER, report=story.report(grant))
        return story, grant

    def decide(self, story: Story, decision: str = "granted") -> None:
        story.tell(part(f"approval.{decision}", ApprovalAttributes(approval_id=APPROVAL)))

    def code(self, story: Story, grant: Grant, draft: Draft) -> str:
        return story.refusal(draft, by=WORKER, report=story.report(grant))

    def test_waits_for_the_decision(self) -> None:
        story, grant = self.asked()
        assert self.code(story, grant, dispatch(approval_id=APPROVAL)) == "runtime.approval_required"
        self.decide(story)
        story.tell(dispatch(approval_id=APPROVAL), by=WORKER, report=story.report(grant))

    def test_is_not_done_where_it_was_denied(self) -> None:
        story, grant = self.asked()
        self.decide(story, "denied")
        assert self.code(story, grant, dispatch(approval_id=APPROVAL)) == "runtime.approval_required"

    def test_is_not_done_behind_the_approvals_back(self) -> None:
        story, grant = self.asked()
        assert self.code(story, grant, dispatch()) == "runtime.approval_required"
        self.decide(story)
        assert self.code(story, grant, dispatch()) == "runtime.approval_required"

    def test_is_the_exact_one(self) -> None:
        story, grant = self.asked()
        self.decide(story)
        assert self.code(story, grant, dispatch(action=OTHER_ACTION, approval_id=APPROVAL)) == "runtime.approval_mismatch"

    def test_is_of_the_run_that_asked(self) -> None:
        story, _ = self.asked()
        self.decide(story)
        other = made_up_id("run", 2)
        story.with_run(other)
        grant = story.claim(by=OTHER, label="2", run_id=other)
        draft = dispatch(approval_id=APPROVAL, run_id=other)
        assert story.refusal(draft, by=OTHER, report=story.report(grant)) == "runtime.approval_mismatch"

    def test_needs_an_approval_that_exists(self) -> None:
        story, grant = self.asked()
        assert self.code(story, grant, dispatch(approval_id=made_up_id("appr", 2))) == "resource.not_found"

    def test_is_done_before_the_approval_expires(self) -> None:
        story = Story()
        due = story.now + 20 * SECOND
        story, grant = self.asked(expires_at=due)
        self.decide(story)
        story.now = due
        assert self.code(story, grant, dispatch(approval_id=APPROVAL)) == "runtime.approval_expired"

    @pytest.mark.parametrize(("outcome", "again"), [("succeeded", False), ("abandoned", False), ("failed", True), ("not_performed", True)])
    def test_is_done_once(self, outcome: str, again: bool) -> None:
        """The approval is used up, unless the provider is known not to have done it."""
        story, grant = self.asked()
        self.decide(story)
        story.tell(dispatch(1, approval_id=APPROVAL), by=WORKER, report=story.report(grant))
        story.tell(reconcile(evidence="governed_decision", outcome=outcome), by=WORKER, report=story.report(grant))
        second = dispatch(2, approval_id=APPROVAL)
        if again:
            story.tell(second, by=WORKER, report=story.report(grant))
        else:
            assert self.code(story, grant, second) == "runtime.approval_used"

    @pytest.mark.parametrize("asked_of", [ACTION, BARE, HYPHENATED])
    @pytest.mark.parametrize("named", [ACTION, BARE, HYPHENATED])
    def test_is_the_same_however_its_digest_is_spelled(self, asked_of: str, named: str) -> None:
        story, grant = self.asked(action_digest=asked_of)
        for approval_id in (None, APPROVAL):
            assert self.code(story, grant, dispatch(action=named, approval_id=approval_id)) == "runtime.approval_required"
        story.tell(part("approval.granted", ApprovalAttributes(approval_id=APPROVAL, action_digest=named)))
        assert self.code(story, grant, dispatch(action=named)) == "runtime.approval_required"
        story.tell(dispatch(action=named, approval_id=APPROVAL), by=WORKER, report=story.report(grant))

    def test_was_asked_for_in_an_older_item_under_its_spelling(self) -> None:
        story, grant = self.asked(action_digest=BARE)
        action = story.items.items.pop(("action", ACTION))
        story.items.put({("action", BARE): action})
        decision = decide(story.items, story.command(dispatch(), by=WORKER, report=story.report(grant)), story.now, story.commands)
        assert isinstance(decision, Rejected)
        assert decision.code == "runtime.approval_required"

    def also_asked(self, story: Story, grant: Grant, label: object, decision: str | None = None) -> str:
        approval_id = made_up_id("appr", label)
        attributes = ApprovalAttributes(approval_id=approval_id, action_digest=ACTION)
        story.tell(part("approval.requested", attributes, run_id=RUN), by=WORKER, report=story.report(grant))
        if decision is not None:
            story.tell(part(f"approval.{decision}", ApprovalAttributes(approval_id=approval_id)))
        return approval_id

    def test_is_not_done_where_a_later_decision_on_it_is_a_denial(self) -> None:
        story, grant = self.asked()
        self.decide(story)
        self.also_asked(story, grant, "later", "denied")
        assert self.code(story, grant, dispatch(approval_id=APPROVAL)) == "runtime.approval_required"
        self.also_asked(story, grant, "open")
        assert self.code(story, grant, dispatch(approval_id=APPROVAL)) == "runtime.approval_required"
        newest = self.also_asked(story, grant, "newest", "granted")
        story.tell(dispatch(approval_id=newest), by=WORKER, report=story.report(grant))

    def test_is_done_on_the_decision_that_came_last_whichever_was_asked_last(self) -> None:
        story, grant = self.asked()
        self.also_asked(story, grant, "later", "denied")
        self.decide(story)
        story.tell(dispatch(approval_id=APPROVAL), by=WORKER, report=story.report(grant))

    def test_is_done_while_another_decision_on_it_is_open(self) -> None:
        story, grant = self.asked()
        self.decide(story)
        self.also_asked(story, grant, "open")
        story.tell(dispatch(approval_id=APPROVAL), by=WORKER, report=story.report(grant))

    def test_that_was_abandoned_goes_again_only_on_an_approval_granted_since(self) -> None:
        story, grant = self.asked()
        self.decide(story)
        before = self.also_asked(story, grant, "before", "granted")
        story.tell(dispatch(1, approval_id=APPROVAL), by=WORKER, report=story.report(grant))
        story.tell(reconcile(evidence="governed_decision", outcome="abandoned"), by=WORKER, report=story.report(grant))
        assert self.code(story, grant, dispatch(2, approval_id=before)) == "runtime.approval_required"
        since = self.also_asked(story, grant, "since", "granted")
        story.tell(dispatch(2, approval_id=since), by=WORKER, report=story.report(grant))

    def test_is_not_proven_by_its_approval(self) -> None:
        story, grant = self.asked()
        self.decide(story)
        assert story.refusal(receipt(), by=WORKER, report=story.report(grant)) == "resource.not_found"


def test_what_was_abandoned_without_an_approval_does_not_go_again_without_one() -> None:
    """Nobody knows whether it was performed: neither the action nor its request goes again under a fresh identity."""
    story, grant = dispatched(dispatch(1, request=REQUEST))
    dead(story, grant)
    story.tell(reconcile(evidence="governed_decision", outcome="abandoned"))
    grant = story.claim(by=OTHER, label="2")
    for draft in (dispatch(2), dispatch(2, action=OTHER_ACTION, request=REQUEST)):
        assert story.refusal(draft, by=OTHER, report=story.report(grant)) == "runtime.approval_required"
    asked = ApprovalAttributes(approval_id=APPROVAL, action_digest=ACTION)
    story.tell(part("approval.requested", asked, run_id=RUN), by=OTHER, report=story.report(grant))
    story.tell(part("approval.granted", ApprovalAttributes(approval_id=APPROVAL)))
    story.tell(dispatch(2, approval_id=APPROVAL), by=OTHER, report=story.report(grant))


def test_a_receipt_makes_no_approval() -> None:
    story, grant = dispatched()
    story.tell(receipt(), by=WORKER, report=story.report(grant))
    assert story.refusal(part("approval.granted", ApprovalAttributes(approval_id=APPROVAL))) == "resource.not_found"


def test_open_effects_are_bounded() -> None:
    many = [dispatch(number, action=f"sha256:{number:064x}") for number in range(128)]
    story, grant = dispatched(*many)
    assert story.refusal(dispatch(128, action=OTHER_ACTION), by=WORKER, report=story.report(grant)) == "runtime.limit_reached"


def test_a_takeover_keeps_an_effect_in_flight_as_long_as_its_lease() -> None:
    story, grant = dispatched()
    story.now += 60 * SECOND
    story.took_over_at = story.now
    assert story.refusal(reconcile()) == "runtime.effect_in_flight"
    story.tell(kind=Kind.RENEW, by=WORKER, report=story.report(grant))
