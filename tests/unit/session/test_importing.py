"""What an importer may tell too early or too late: only of what happened elsewhere. Live Runs are judged as everybody's are."""

import pytest

from streams.session.events import ApprovalAttributes, Draft, EffectAttributes, WaitAttributes
from streams.session.outcomes import Grant
from tests.support.examples import made_up_id
from tests.support.story import NOON, SECOND, WORKER, Story, part

RUN, WAIT, APPROVAL, EFFECT = made_up_id("run"), made_up_id("wait"), made_up_id("appr"), made_up_id("eff")
DIGEST = "sha256:" + "1" * 64
DUE = NOON + 20 * SECOND
RECONCILED = EffectAttributes(effect_id=EFFECT, evidence_kind="provider_lookup", outcome="not_performed")


def opened(run_id: str | None, expires_at: int) -> Draft:
    return part("wait.opened", WaitAttributes(wait_id=WAIT, kind="timer", expires_at=expires_at), run_id=run_id)


def asked(run_id: str | None, expires_at: int) -> Draft:
    return part("approval.requested", ApprovalAttributes(approval_id=APPROVAL, action_digest=DIGEST, expires_at=expires_at), run_id=run_id)


def dispatched(approval_id: str | None = None) -> Draft:
    attributes = EffectAttributes(effect_id=EFFECT, provider="mail", request_digest=DIGEST, approval_id=approval_id)
    return part("effect.dispatched", attributes, run_id=RUN)


def expired() -> Draft:
    return part("wait.expired", WaitAttributes(wait_id=WAIT))


def answered() -> Draft:
    return part("wait.answered", WaitAttributes(wait_id=WAIT))


def granted() -> Draft:
    return part("approval.granted", ApprovalAttributes(approval_id=APPROVAL))


def working(*drafts: Draft) -> tuple[Story, Grant]:
    story = Story()
    grant = story.working()
    story.tell(*drafts, by=WORKER, report=story.report(grant))
    return story, grant


class TestInALiveRun:
    def test_an_effect_in_flight_is_not_settled(self) -> None:
        story, grant = working(dispatched())
        assert story.refusal(part("effect.reconciled", RECONCILED), importing=True) == "runtime.effect_in_flight"
        story.tell(part("effect.reconciled", RECONCILED), by=WORKER, report=story.report(grant))

    def test_a_wait_does_not_expire_before_it_is_due(self) -> None:
        story, _ = working(opened(RUN, DUE))
        assert story.refusal(expired(), importing=True) == "runtime.transition_refused"
        story.now = DUE
        story.tell(expired(), importing=True)

    def test_a_wait_is_not_answered_when_it_is_over(self) -> None:
        story, _ = working(opened(RUN, DUE))
        story.now = DUE
        assert story.refusal(answered(), importing=True) == "runtime.wait_expired"

    def test_an_approval_is_neither_decided_nor_used_past_its_time(self) -> None:
        story, grant = working(asked(RUN, DUE))
        story.now = DUE
        assert story.refusal(granted(), importing=True) == "runtime.approval_expired"
        story.now = NOON
        story.tell(granted())
        story.now = DUE
        draft = dispatched(APPROVAL)
        assert story.refusal(draft, by=WORKER, report=story.report(grant), importing=True) == "runtime.approval_expired"

    @pytest.mark.parametrize("draft", [opened(RUN, NOON), asked(RUN, NOON)])
    def test_nothing_begins_that_is_over_already(self, draft: Draft) -> None:
        story = Story()
        grant = story.working()
        assert story.refusal(draft, by=WORKER, report=story.report(grant), importing=True) == "request.invalid"


class TestOutsideOfRuns:
    def test_of_a_live_session_time_is_the_sessions_own(self) -> None:
        story = Story().created()
        for draft in (opened(None, NOON), asked(None, NOON)):
            assert story.refusal(draft, importing=True) == "request.invalid"
        story.tell(opened(None, DUE), asked(None, DUE))
        assert story.refusal(expired(), importing=True) == "runtime.transition_refused"
        story.now = DUE
        assert story.refusal(granted(), importing=True) == "runtime.approval_expired"

    def test_of_an_imported_session_it_is_what_it_was(self) -> None:
        story = Story().created(origin="imported")
        story.tell(opened(None, DUE), expired(), asked(None, NOON - 1), granted(), importing=True)


def test_in_an_imported_run_time_is_what_it_was() -> None:
    """Of a session that is live itself, too."""
    story = Story().created().with_imported_run()
    story.tell(opened(RUN, NOON - 1), answered(), importing=True)
    story.tell(asked(RUN, NOON - 1), granted(), dispatched(APPROVAL), part("effect.reconciled", RECONCILED), importing=True)
    assert story.types[-4:] == ["approval.requested", "approval.granted", "effect.dispatched", "effect.reconciled"]
