"""Turns, Runs and their attempts, pins, steering, child work: what may follow what."""

import pytest

from streams.session.events import (
    AttemptAttributes,
    ChildAttributes,
    ContextAttributes,
    EffectAttributes,
    MessageAttributes,
    RunAttributes,
    SteeringAttributes,
    ThreadAttributes,
    WaitAttributes,
)
from tests.support.examples import made_up_id
from tests.support.story import WORKER, Story, part

RUN, TURN, THREAD = made_up_id("run"), made_up_id("turn"), made_up_id("sthr")
MESSAGE = part("message.appended", MessageAttributes(role="assistant"), run_id=RUN)


def test_a_turn_is_completed_once_and_not_reopened() -> None:
    story = Story().created()
    story.tell(part("turn.started", turn_id=TURN))
    assert story.refusal(part("turn.started", turn_id=TURN)) == "runtime.already_exists"
    story.tell(part("turn.completed", turn_id=TURN))
    assert story.refusal(part("turn.completed", turn_id=TURN)) == "runtime.already_settled"
    assert story.refusal(part("turn.started", turn_id=TURN)) == "runtime.already_settled"
    assert story.refusal(part("message.appended", turn_id=TURN)) == "runtime.already_settled"
    assert story.refusal(part("run.accepted", turn_id=TURN, run_id=RUN)) == "runtime.already_settled"


def test_a_run_may_outlast_its_turn() -> None:
    story = Story().created()
    accepted = part("run.accepted", RunAttributes(origin="imported"), run_id=RUN, turn_id=TURN)
    story.tell(part("turn.started", turn_id=TURN), accepted, part("attempt.started", run_id=RUN), importing=True)
    story.tell(part("turn.completed", turn_id=TURN))
    story.tell(part("message.appended", run_id=RUN, turn_id=TURN), importing=True)


def test_events_of_a_run_name_its_own_turn() -> None:
    story = Story().created()
    other = made_up_id("turn", "other")
    story.tell(part("turn.started", turn_id=TURN), part("turn.started", turn_id=other))
    story.tell(part("run.accepted", RunAttributes(origin="imported"), run_id=RUN, turn_id=TURN), importing=True)
    assert story.refusal(part("message.appended", run_id=RUN, turn_id=other), importing=True) == "request.invalid"


def test_threads_are_opened_once_and_children_have_parents() -> None:
    story = Story().created()
    child = made_up_id("sthr", "child")
    of_parent = part("thread.opened", ThreadAttributes(kind="child", parent_thread_id=THREAD), thread_id=child)
    assert story.refusal(of_parent) == "resource.not_found"
    story.tell(part("thread.opened", thread_id=THREAD))
    assert story.refusal(part("thread.opened", thread_id=THREAD)) == "runtime.already_exists"
    assert story.refusal(part("thread.opened", ThreadAttributes(kind="child"), thread_id=child)) == "request.invalid"
    story.tell(of_parent)


@pytest.mark.parametrize("event_type", ["session.closed", "thread.opened", "turn.started"])
def test_what_is_no_part_of_a_run_names_none(event_type: str) -> None:
    story = Story().created().with_imported_run()
    places = {"thread_id": THREAD, "turn_id": None} if event_type.startswith("thread") else {"turn_id": TURN}
    if event_type.startswith("session"):
        places = {}
    assert story.refusal(part(event_type, run_id=RUN, **places), importing=True) == "request.invalid"


def test_a_thread_is_not_handed_to_another_harness() -> None:
    story = Story().created()
    story.tell(part("thread.opened", thread_id=THREAD))
    story.tell(part("run.accepted", RunAttributes(harness="one"), run_id=RUN, thread_id=THREAD))
    second = part("run.accepted", RunAttributes(harness="two"), run_id=made_up_id("run", 2), thread_id=THREAD)
    assert story.refusal(second) == "runtime.handoff_unavailable"
    story.tell(part("run.accepted", RunAttributes(harness="one"), run_id=made_up_id("run", 3), thread_id=THREAD))
    story.tell(part("run.accepted", RunAttributes(harness="two"), run_id=made_up_id("run", 4)))


class TestImportedRuns:
    def test_start_settle_and_stay_settled(self) -> None:
        story = Story().created()
        story.tell(
            part("turn.started", turn_id=TURN),
            part("run.accepted", RunAttributes(origin="imported", claimable=False), run_id=RUN, turn_id=TURN),
            part("attempt.started", run_id=RUN, turn_id=TURN, attempt_generation=1),
            part("message.appended", run_id=RUN, turn_id=TURN, attempt_generation=1),
            part("run.completed", RunAttributes(reward=1.0), run_id=RUN, turn_id=TURN, attempt_generation=1),
            part("turn.completed", turn_id=TURN),
            importing=True,
        )
        assert story.types[1:] == [
            "turn.started", "run.accepted", "attempt.started", "run.started", "message.appended", "run.completed", "turn.completed",
        ]  # fmt: skip
        assert (story.run().status, story.run().sequence, story.run().generation) == ("completed", 7, 1)
        assert story.refusal(MESSAGE, importing=True) == "runtime.already_settled"
        assert story.refusal(part("run.failed", run_id=RUN), importing=True) == "runtime.already_settled"
        assert story.refusal(part("attempt.started", run_id=RUN), importing=True) == "runtime.already_settled"
        assert story.refusal(part("run.accepted", run_id=RUN)) == "runtime.already_settled"

    def test_are_the_importers_alone(self) -> None:
        story = Story().created().with_imported_run()
        assert story.refusal(MESSAGE) == "runtime.run_unavailable"
        assert story.refusal(part("run.cancelled", run_id=RUN)) == "runtime.run_unavailable"
        accepted = part("run.accepted", RunAttributes(origin="imported"), run_id=made_up_id("run", 2))
        assert story.refusal(accepted) == "request.invalid"

    def test_are_never_claimable(self) -> None:
        accepted = part("run.accepted", RunAttributes(origin="imported", claimable=True), run_id=RUN)
        assert Story().created().refusal(accepted, importing=True) == "request.invalid"

    def test_have_generations_one_after_the_other(self) -> None:
        story = Story().created().with_imported_run()
        again = part("attempt.started", run_id=RUN, attempt_generation=2)
        assert story.refusal(again, importing=True) == "runtime.attempt_not_claimable"
        story.tell(part("attempt.failed", run_id=RUN), importing=True)
        assert story.refusal(part("attempt.started", run_id=RUN, attempt_generation=3), importing=True) == "runtime.attempt_fenced"
        story.tell(again, importing=True)
        assert story.refusal(part("message.appended", run_id=RUN, attempt_generation=1), importing=True) == "runtime.attempt_fenced"
        assert story.types.count("run.started") == 1

    def test_have_neither_holder_nor_lease(self) -> None:
        story = Story().created()
        story.tell(part("run.accepted", RunAttributes(origin="imported"), run_id=RUN), importing=True)
        for attributes in (AttemptAttributes(principal_id=WORKER), AttemptAttributes(lease_ms=1)):
            assert story.refusal(part("attempt.started", attributes, run_id=RUN), importing=True) == "request.invalid"

    def test_may_tell_every_step_themselves(self) -> None:
        story = Story().created()
        story.tell(part("run.accepted", RunAttributes(origin="imported"), run_id=RUN), importing=True)
        story.tell(part("run.started", run_id=RUN), part("attempt.started", run_id=RUN), importing=True)
        assert story.types.count("run.started") == 1
        story.tell(part("run.waiting", run_id=RUN), part("run.resumed", run_id=RUN), importing=True)
        assert story.refusal(part("run.resumed", run_id=RUN), importing=True) == "runtime.transition_refused"
        story.tell(part("attempt.ready", run_id=RUN), part("attempt.replaced", run_id=RUN), importing=True)
        assert story.refusal(part("attempt.fenced", run_id=RUN), importing=True) == "runtime.attempt_fenced"


@pytest.mark.parametrize(
    "event_type", ["run.started", "run.waiting", "run.resumed", "attempt.started", "attempt.replaced", "attempt.fenced"]
)
def test_what_the_authority_appends_itself_nobody_sends(event_type: str) -> None:
    story = Story()
    story.working()
    for importing in (False, True):
        assert story.refusal(part(event_type, run_id=RUN), importing=importing) == "request.invalid"


def test_a_run_that_never_started_is_not_completed() -> None:
    story = Story().created()
    story.tell(part("run.accepted", RunAttributes(origin="imported"), run_id=RUN), importing=True)
    assert story.refusal(part("run.completed", run_id=RUN), importing=True) == "runtime.transition_refused"
    story.tell(part("run.failed", run_id=RUN), importing=True)


def test_a_run_is_cancelled_without_a_report() -> None:
    story = Story()
    grant = story.working()
    story.tell(part("run.cancelled", RunAttributes(reason="user"), run_id=RUN))
    assert story.refusal(part("run.cancelled", run_id=RUN)) == "runtime.already_settled"
    assert story.refusal(MESSAGE, by=WORKER, report=story.report(grant)) == "runtime.already_settled"


class TestPinnedContext:
    def pin(self, revision: str, kind: str = "memory") -> object:
        return part("context.pinned", ContextAttributes(pin_kind=kind, revision=revision), run_id=RUN)

    def test_is_never_moved(self) -> None:
        story = Story().created().with_run()
        story.tell(self.pin("1"))
        story.tell(self.pin("1"))
        assert story.refusal(self.pin("2")) == "runtime.already_settled"
        story.tell(self.pin("2", kind="skills"))
        assert story.run().pins == ("memory 1 -", "skills 2 -")

    def test_of_a_running_run_comes_from_its_worker(self) -> None:
        story = Story()
        grant = story.working()
        assert story.refusal(self.pin("1")) == "request.invalid"
        story.tell(self.pin("1"), by=WORKER, report=story.report(grant))

    def test_says_which_and_is_bounded(self) -> None:
        story = Story().created().with_run()
        assert story.refusal(part("context.pinned", ContextAttributes(revision="1"), run_id=RUN)) == "request.invalid"
        assert story.refusal(part("context.pinned", ContextAttributes(pin_kind="memory"), run_id=RUN)) == "request.invalid"
        assert story.refusal(part("context.pinned", ContextAttributes(pin_kind="memory", revision="1"))) == "resource.not_found"
        story.tell(*[self.pin("1", kind=f"kind-{number}") for number in range(16)])
        assert story.refusal(self.pin("1", kind="kind-16")) == "runtime.limit_reached"


class TestSteering:
    STEER = part("steering.applied", SteeringAttributes(kind="instruction", target_run_id=RUN))

    def test_belongs_to_the_run_that_it_targets(self) -> None:
        story = Story().created().with_run()
        story.tell(self.STEER)
        assert story.events[-1].run_id == RUN
        assert story.run().sequence == story.header.sequence

    def test_of_a_settled_run_is_unavailable(self) -> None:
        story = Story().created().with_run()
        story.tell(part("run.cancelled", run_id=RUN))
        assert story.refusal(self.STEER) == "runtime.steering_unavailable"

    def test_of_an_imported_run_is_unavailable(self) -> None:
        assert Story().created().with_imported_run().refusal(self.STEER) == "runtime.steering_unavailable"

    def test_needs_a_target_that_exists(self) -> None:
        story = Story().created()
        assert story.refusal(self.STEER) == "resource.not_found"
        assert story.refusal(part("steering.applied", SteeringAttributes(kind="instruction"))) == "request.invalid"


class TestChildWork:
    CHILD = ChildAttributes(child_id=made_up_id("chld"), kind="subagent", native=True)

    def test_is_settled_once(self) -> None:
        story = Story().created().with_imported_run()
        assert story.refusal(part("child.settled", self.CHILD), importing=True) == "resource.not_found"
        story.tell(part("child.started", self.CHILD, run_id=RUN), importing=True)
        assert story.refusal(part("child.started", self.CHILD, run_id=RUN), importing=True) == "runtime.already_exists"
        story.tell(part("child.settled", self.CHILD), importing=True)
        assert story.events[-1].run_id == RUN
        assert story.refusal(part("child.settled", self.CHILD), importing=True) == "runtime.already_settled"
        assert story.refusal(part("child.started", self.CHILD, run_id=RUN), importing=True) == "runtime.already_settled"

    def test_of_a_live_run_is_reported_by_its_worker(self) -> None:
        story = Story()
        grant = story.working()
        assert story.refusal(part("child.started", self.CHILD, run_id=RUN)) == "request.invalid"
        story.tell(part("child.started", self.CHILD, run_id=RUN), by=WORKER, report=story.report(grant))
        assert story.refusal(part("child.settled", self.CHILD)) == "request.invalid"

    def test_may_be_settled_after_its_run(self) -> None:
        story = Story()
        grant = story.working()
        story.tell(part("child.started", self.CHILD, run_id=RUN), by=WORKER, report=story.report(grant))
        story.tell(part("run.completed", run_id=RUN), by=WORKER, report=story.report(grant))
        story.tell(part("child.settled", self.CHILD))
        assert story.run().status == "completed"

    def test_belongs_to_a_run(self) -> None:
        assert Story().created().refusal(part("child.started", self.CHILD)) == "resource.not_found"


def test_consequences_say_what_they_follow_from() -> None:
    story = Story()
    grant = story.working()
    wait = WaitAttributes(wait_id=made_up_id("wait"), kind="human")
    effect = EffectAttributes(effect_id=made_up_id("eff"), provider="mail", request_digest="0" * 64)
    story.tell(part("wait.opened", wait, run_id=RUN), part("effect.dispatched", effect, run_id=RUN), by=WORKER, report=story.report(grant))
    story.tell(part("run.cancelled", run_id=RUN))
    by_type = {event.type: event for event in story.events}
    for event_type, cause in {
        "run.started": "attempt.started",
        "run.waiting": "wait.opened",
        "effect.indeterminate": "run.cancelled",
    }.items():
        causes = [link.id for link in by_type[event_type].links if link.relation == "cause"]
        assert causes == [by_type[cause].event_id]
        assert by_type[event_type].sequence == by_type[cause].sequence + 1
        assert by_type[event_type].actor_id is None
    assert len({event.event_id for event in story.events}) == len(story.events)
