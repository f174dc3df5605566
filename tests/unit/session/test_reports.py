"""Only the current generation of a RunAttempt may report into its Run (promise 4 of the log)."""

import pytest
from msgspec import structs

from streams.session.events import Draft, MessageAttributes, RunAttributes
from streams.session.outcomes import Rejected
from tests.support.examples import made_up_id
from tests.support.story import OTHER, PERSON, SECOND, WORKER, Story, part

RUN = made_up_id("run")
MESSAGE = part("message.appended", MessageAttributes(role="assistant"), run_id=RUN)
READY = part("attempt.ready", run_id=RUN)


def test_the_holder_reports_and_learns_the_new_position() -> None:
    story = Story()
    grant = story.working()
    decision = story.tell(MESSAGE, MESSAGE, by=WORKER, report=story.report(grant))
    assert decision.run_sequence == story.run().sequence == story.header.sequence
    story.tell(MESSAGE, by=WORKER, report=story.report(grant, seen=decision.run_sequence))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"generation": 0}, "runtime.attempt_fenced"),
        ({"generation": 2}, "runtime.attempt_fenced"),
        ({"native_task_id": made_up_id("task", "old")}, "runtime.attempt_fenced"),
        ({"native_task_id": None}, "request.invalid"),
        ({"expected_run_sequence": None}, "request.invalid"),
        ({"expected_run_sequence": 1}, "runtime.position_conflict"),
        ({"run_id": made_up_id("run", "unknown")}, "resource.not_found"),
    ],
)
def test_a_report_that_does_not_match_is_refused(changes: dict[str, object], code: str) -> None:
    story = Story()
    grant = story.working()
    report = structs.replace(story.report(grant), **changes)  # type: ignore[arg-type]
    assert story.refusal(MESSAGE, by=WORKER, report=report) == code


@pytest.mark.parametrize("principal", [OTHER, PERSON])
def test_nobody_reports_with_somebody_elses_attempt(principal: str) -> None:
    story = Story()
    grant = story.working()
    assert story.refusal(MESSAGE, by=principal, report=story.report(grant)) == "runtime.attempt_fenced"


def test_a_worker_that_has_not_seen_the_last_event_learns_the_actual_position() -> None:
    story = Story()
    grant = story.working()
    seen = story.run().sequence
    story.tell(MESSAGE, by=WORKER, report=story.report(grant))
    decision = story.decide(story.command(MESSAGE, by=WORKER, report=story.report(grant, seen=seen)))
    assert isinstance(decision, Rejected)
    assert (decision.code, decision.actual_run_sequence) == ("runtime.position_conflict", seen + 1)


def test_events_outside_the_run_do_not_move_its_position() -> None:
    story = Story()
    grant = story.working()
    seen = story.run().sequence
    story.tell(part("message.appended"))
    story.tell(MESSAGE, by=WORKER, report=story.report(grant, seen=seen))


WORKERS_OWN = [
    "message.appended", "source.recorded", "tool.called", "tool.returned", "artifact.recorded", "attempt.ready", "attempt.failed",
    "run.completed", "run.failed",
]  # fmt: skip


@pytest.mark.parametrize("event_type", WORKERS_OWN)
@pytest.mark.parametrize("importing", [False, True])
def test_nothing_of_a_workers_is_written_without_a_report(event_type: str, importing: bool) -> None:
    """The importer's scope opens imported Runs, not live ones."""
    story = Story()
    story.working()
    assert story.refusal(part(event_type, run_id=RUN), importing=importing, by=WORKER) == "request.invalid"


@pytest.mark.parametrize("event_type", WORKERS_OWN)
def test_a_worker_writes_into_its_own_run_only(event_type: str) -> None:
    story = Story()
    grant = story.working()
    other = made_up_id("run", "other")
    story.with_run(other)
    story.claim(by=OTHER, label="2", run_id=other)
    assert story.refusal(part(event_type, run_id=other), by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"


def test_a_bad_report_is_refused_even_where_none_is_needed() -> None:
    story = Story()
    grant = story.working()
    story.now += 31 * SECOND
    assert story.refusal(part("message.appended"), by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"


def test_a_draft_speaks_for_the_reporting_attempt_or_for_none() -> None:
    story = Story()
    grant = story.working()
    own = {"attempt_generation": 1, "native_task_id": grant.native_task_id}
    story.tell(structs.replace(MESSAGE, **own), by=WORKER, report=story.report(grant))
    for changes in ({"attempt_generation": 2}, {"native_task_id": made_up_id("task", "old")}):
        draft: Draft = structs.replace(MESSAGE, **changes)  # type: ignore[arg-type]
        assert story.refusal(draft, by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"
    assert story.refusal(part("run.cancelled", run_id=RUN, attempt_generation=1)) == "request.invalid"


def test_lifecycle_events_are_completed_with_the_attempt_that_reports_them() -> None:
    story = Story()
    grant = story.working()
    story.tell(READY, by=WORKER, report=story.report(grant))
    assert (story.events[-1].attempt_generation, story.events[-1].native_task_id) == (1, grant.native_task_id)


def test_nothing_follows_the_end_of_the_attempt_or_the_run_in_one_command() -> None:
    story = Story()
    grant = story.working()
    report = story.report(grant)
    assert story.refusal(MESSAGE, part("attempt.failed", run_id=RUN), MESSAGE, by=WORKER, report=report) == "runtime.attempt_fenced"
    assert story.refusal(part("run.completed", run_id=RUN), MESSAGE, by=WORKER, report=report) == "runtime.already_settled"


def test_a_settled_run_is_never_reopened() -> None:
    story = Story()
    grant = story.working()
    story.tell(MESSAGE, part("run.completed", RunAttributes(outcome="done"), run_id=RUN), by=WORKER, report=story.report(grant))
    for event_type in WORKERS_OWN:
        assert story.refusal(part(event_type, run_id=RUN), by=WORKER, report=story.report(grant)) == "runtime.already_settled"


class TestARestartOfTheHarness:
    """attempt.ready once more: a new native task is minted, what spoke for the old one is fenced."""

    def test_mints_a_native_task(self) -> None:
        story = Story()
        grant = story.working()
        story.tell(READY, by=WORKER, report=story.report(grant))
        assert story.attempt().native_task_id == grant.native_task_id
        decision = story.tell(READY, by=WORKER, report=story.report(grant))
        assert decision.grant is not None
        assert decision.grant.native_task_id == story.attempt().native_task_id == story.events[-1].native_task_id
        assert decision.grant.native_task_id != grant.native_task_id
        assert decision.grant.generation == 1
        assert story.refusal(MESSAGE, by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"
        story.tell(MESSAGE, by=WORKER, report=story.report(decision.grant))

    def test_that_ends_in_the_same_command_grants_nothing(self) -> None:
        story = Story()
        grant = story.working()
        assert story.tell(READY, part("attempt.failed", run_id=RUN), by=WORKER, report=story.report(grant)).grant is None

    def test_never_returns_to_an_earlier_task(self) -> None:
        story = Story()
        grants = [story.working()]
        for _ in range(4):
            decision = story.tell(READY, by=WORKER, report=story.report(grants[-1]))
            assert decision.grant is not None
            grants.append(decision.grant)
        minted = [grant.native_task_id for grant in grants[1:]]
        assert len(set(minted)) == len(minted)
        for old in grants[1:-1]:
            assert story.refusal(READY, by=WORKER, report=story.report(old)) == "runtime.attempt_fenced"

    def test_is_not_asked_for_by_naming_a_task(self) -> None:
        story = Story()
        grant = story.working()
        chosen = structs.replace(READY, native_task_id=made_up_id("task", "chosen"))
        assert story.refusal(chosen, by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"
