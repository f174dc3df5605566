"""Waits stop a Run until the last is closed; an approval authorises one exact frozen action."""

import pytest

from streams.session.events import ApprovalAttributes, Draft, MessageAttributes, WaitAttributes
from streams.session.outcomes import Grant
from tests.support.examples import made_up_id
from tests.support.story import NOON, PERSON, SECOND, WORKER, Story, part

RUN = made_up_id("run")
DIGEST, OTHER_DIGEST = "sha256:" + "1" * 64, "sha256:" + "2" * 64
APPROVAL = made_up_id("appr")


def opening(label: object = 1, *, expires_at: int | None = None, kind: str = "human", run_id: str | None = RUN) -> Draft:
    return part("wait.opened", WaitAttributes(wait_id=made_up_id("wait", label), kind=kind, expires_at=expires_at), run_id=run_id)


def closing(event_type: str, label: object = 1, **fields: object) -> Draft:
    return part(event_type, WaitAttributes(wait_id=made_up_id("wait", label)), **fields)


def waiting(*drafts: Draft) -> tuple[Story, Grant]:
    story = Story()
    grant = story.working()
    story.tell(*drafts, by=WORKER, report=story.report(grant))
    return story, grant


class TestWaits:
    def test_stop_the_run_until_the_last_is_closed(self) -> None:
        story, _ = waiting(opening(1), opening(2))
        assert story.run().status == "waiting"
        assert story.run().open_waits == (made_up_id("wait", 1), made_up_id("wait", 2))
        assert story.types[-3:] == ["wait.opened", "run.waiting", "wait.opened"]
        story.tell(closing("wait.answered", 1))
        assert story.run().status == "waiting"
        story.tell(closing("wait.answered", 2))
        assert story.types[-2:] == ["wait.answered", "run.resumed"]
        assert (story.run().status, story.run().open_waits) == ("running", ())

    def test_stop_an_imported_run_in_the_middle_of_a_command(self) -> None:
        story = Story().created().with_imported_run()
        story.tell(opening(), closing("wait.answered"), part("run.completed", run_id=RUN), importing=True)
        assert story.types[-5:] == ["wait.opened", "run.waiting", "wait.answered", "run.resumed", "run.completed"]

    def test_are_answered_by_anybody_in_the_original_run(self) -> None:
        story, grant = waiting(opening())
        seen = story.run().sequence
        story.tell(closing("wait.answered"), by=PERSON)
        assert story.events[-2].run_id == RUN
        message = part("message.appended", MessageAttributes(role="tool"), run_id=RUN)
        assert story.refusal(message, by=WORKER, report=story.report(grant, seen=seen)) == "runtime.position_conflict"
        story.tell(message, by=WORKER, report=story.report(grant))

    @pytest.mark.parametrize("again", ["wait.answered", "wait.expired"])
    def test_are_closed_once(self, again: str) -> None:
        story, grant = waiting(opening())
        story.tell(closing("wait.answered"))
        assert story.refusal(closing(again)) == "runtime.already_settled"
        assert story.refusal(opening(), by=WORKER, report=story.report(grant)) == "runtime.already_settled"

    def test_are_opened_once(self) -> None:
        story, grant = waiting(opening())
        assert story.refusal(opening(), by=WORKER, report=story.report(grant)) == "runtime.already_exists"

    def test_expire_when_they_are_due_and_not_before(self) -> None:
        due = NOON + 20 * SECOND
        story, _ = waiting(opening(expires_at=due))
        assert story.refusal(closing("wait.expired")) == "runtime.transition_refused"
        story.now = due - 1
        assert story.refusal(closing("wait.expired")) == "runtime.transition_refused"
        story.now = due
        assert story.refusal(closing("wait.answered")) == "runtime.wait_expired"
        story.tell(closing("wait.expired"))
        assert story.types[-2:] == ["wait.expired", "run.resumed"]

    def test_without_an_end_never_expire(self) -> None:
        story, _ = waiting(opening())
        story.now += 10**15
        assert story.refusal(closing("wait.expired")) == "runtime.transition_refused"

    def test_of_a_run_that_is_over_are_not_answered_but_may_expire(self) -> None:
        due = NOON + 20 * SECOND
        story, _ = waiting(opening(expires_at=due))
        story.tell(part("run.cancelled", run_id=RUN))
        assert story.refusal(closing("wait.answered")) == "runtime.already_settled"
        story.now = due
        story.tell(closing("wait.expired"))
        assert story.types[-1] == "wait.expired"
        assert (story.run().status, story.run().open_waits) == ("cancelled", ())

    def test_may_stand_outside_of_runs(self) -> None:
        story = Story().created()
        story.tell(opening(run_id=None))
        story.tell(closing("wait.answered"))
        assert story.types[-2:] == ["wait.opened", "wait.answered"]

    def test_of_a_live_run_are_opened_by_its_worker(self) -> None:
        story = Story()
        story.working()
        assert story.refusal(opening()) == "request.invalid"

    def test_need_a_run_that_has_begun(self) -> None:
        story = Story().created()
        story.tell(part("run.accepted", run_id=RUN))
        assert story.refusal(opening()) == "request.invalid"

    def test_say_what_they_wait_for(self) -> None:
        story = Story().created()
        for attributes in (
            None,
            WaitAttributes(kind="human"),
            WaitAttributes(wait_id=made_up_id("wait")),
            WaitAttributes(wait_id=made_up_id("wait"), kind="timer"),
            WaitAttributes(wait_id=made_up_id("wait"), kind="human", expires_at=NOON),
        ):
            assert story.refusal(part("wait.opened", attributes)) == "request.invalid"
        assert story.refusal(part("wait.answered")) == "request.invalid"
        assert story.refusal(closing("wait.answered")) == "resource.not_found"

    def test_name_their_own_run_or_none(self) -> None:
        story, _ = waiting(opening())
        story.with_run(made_up_id("run", 2))
        assert story.refusal(closing("wait.answered", run_id=made_up_id("run", 2))) == "request.invalid"

    def test_open_at_one_time_are_bounded(self) -> None:
        story, grant = waiting(*[opening(number) for number in range(128)])
        assert story.refusal(opening(128), by=WORKER, report=story.report(grant)) == "runtime.limit_reached"


def asking(*, expires_at: int | None = None, run_id: str | None = RUN, approval_id: str = APPROVAL) -> Draft:
    return part(
        "approval.requested", ApprovalAttributes(approval_id=approval_id, action_digest=DIGEST, expires_at=expires_at), run_id=run_id
    )


def deciding(event_type: str = "approval.granted", **attributes: object) -> Draft:
    return part(event_type, ApprovalAttributes(approval_id=APPROVAL, **attributes))  # type: ignore[arg-type]


class TestApprovals:
    @pytest.mark.parametrize("first", ["approval.granted", "approval.denied"])
    @pytest.mark.parametrize("second", ["approval.granted", "approval.denied"])
    def test_are_decided_once(self, first: str, second: str) -> None:
        story, grant = waiting(asking())
        story.tell(deciding(first))
        assert story.events[-1].run_id == RUN
        assert story.refusal(deciding(second)) == "runtime.already_settled"
        assert story.refusal(asking(), by=WORKER, report=story.report(grant)) == "runtime.already_settled"

    def test_stop_nothing(self) -> None:
        story, _ = waiting(asking())
        assert story.run().status == "running"

    def test_are_for_the_frozen_action_alone(self) -> None:
        story, _ = waiting(asking())
        assert story.refusal(deciding(action_digest=OTHER_DIGEST)) == "runtime.approval_mismatch"
        story.tell(deciding(action_digest=DIGEST))

    def test_say_what_was_decided(self) -> None:
        story, _ = waiting(asking())
        assert story.refusal(deciding(decision="denied")) == "request.invalid"
        story.tell(deciding(decision="granted"))

    def test_are_not_decided_after_they_expired(self) -> None:
        due = NOON + 20 * SECOND
        story, _ = waiting(asking(expires_at=due))
        story.now = due
        assert story.refusal(deciding()) == "runtime.approval_expired"

    def test_of_a_run_that_is_over_are_not_decided(self) -> None:
        story, _ = waiting(asking())
        story.tell(part("run.cancelled", run_id=RUN))
        assert story.refusal(deciding()) == "runtime.already_settled"

    def test_are_asked_for_by_the_worker(self) -> None:
        story = Story()
        story.working()
        assert story.refusal(asking()) == "request.invalid"

    def test_say_what_they_are_for(self) -> None:
        story = Story().created()
        for attributes in (
            None,
            ApprovalAttributes(approval_id=APPROVAL),
            ApprovalAttributes(action_digest=DIGEST),
            ApprovalAttributes(approval_id=APPROVAL, action_digest=DIGEST, expires_at=NOON),
        ):
            assert story.refusal(part("approval.requested", attributes)) == "request.invalid"
        assert story.refusal(deciding()) == "resource.not_found"
        assert story.refusal(part("approval.granted")) == "request.invalid"
        story.tell(asking(run_id=None))
        assert story.refusal(asking(run_id=None)) == "runtime.already_exists"
