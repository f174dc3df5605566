"""A transcript cut into steps, and how far they are by what the log tells."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.runner.crash import Phase
from connectors.runner.plan import Act, NoTranscript, Pause, Plan, Say, make_plan, points, read_records
from connectors.runner.progress import Progress
from connectors.sources.samples import FOLDER
from tests.support.examples import made_up_id
from tests.support.runners import kills_of, reachable

SAMPLE = Path(__file__).parents[3] / "connectors" / "runner" / "sample.jsonl"
RUN, OTHER_RUN = made_up_id("run"), made_up_id("run", "other")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(read_records(SAMPLE), RUN)


def kinds(plan: Plan) -> str:
    return "".join({Say: "s", Act: "a", Pause: "p"}[type(step)] for step in plan.steps)


def test_the_same_transcript_and_run_give_the_same_plan(plan: Plan) -> None:
    assert make_plan(read_records(SAMPLE), RUN) == plan
    other = make_plan(read_records(SAMPLE), OTHER_RUN)
    assert other.digest == plan.digest
    assert {step.digest for step in other.steps if isinstance(step, Act)} & {
        step.digest for step in plan.steps if isinstance(step, Act)
    } == set()


def test_the_first_prompt_is_what_the_run_is_accepted_with_and_later_ones_are_waited_for(plan: Plan) -> None:
    assert msgspec.json.decode(plan.prompt)["message"]["content"].startswith("Write the notice")
    assert kinds(plan) == "ssssasssspssasssspass"


def test_a_step_carries_a_record_as_it_was_written_with_its_calls_and_results(plan: Plan) -> None:
    step = plan.steps[1]
    assert isinstance(step, Say)
    message, called = (msgspec.json.decode(line) for line in step.lines)
    assert (message["type"], called["type"]) == ("message.appended", "tool.called")
    assert message["content"] == read_records(SAMPLE)[step.record].value
    assert message["run_id"] == called["run_id"] == RUN
    assert called["links"] == [{"relation": "cause", "id": "$0"}]
    result = msgspec.json.decode(plan.steps[2].lines[1])  # type: ignore[union-attr]
    assert result["attributes"]["call_id"] == called["attributes"]["call_id"]


def test_a_command_that_sleeps_waits_for_a_time_and_a_prompt_for_a_person(plan: Plan) -> None:
    assert [(step.index, step.kind) for step in plan.steps if isinstance(step, Pause)] == [(9, "human"), (17, "timer")]


def test_only_what_others_see_wants_an_approval(plan: Plan) -> None:
    assert [(step.index, step.action.approval) for step in plan.steps if isinstance(step, Act)] == [(4, False), (12, True), (18, False)]


def test_a_cut_plan_is_the_beginning_of_the_whole_one_and_another_transcript_to_a_run(plan: Plan) -> None:
    cut = make_plan(read_records(SAMPLE), RUN, 5)
    assert cut.steps == plan.steps[:5]
    assert cut.digest != plan.digest


def test_indexes_count_the_steps(plan: Plan) -> None:
    for path in FOLDER.glob("*.jsonl"):
        try:
            steps = make_plan(read_records(path), RUN).steps
        except NoTranscript:
            continue
        assert [step.index for step in steps] == list(range(len(steps)))


def test_a_file_without_a_prompt_is_no_transcript(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text('{"type": "summary"}\nnot json\n')
    with pytest.raises(NoTranscript):
        make_plan(read_records(path), RUN)


def test_every_step_has_its_boundary_and_an_action_has_one_between_sending_and_telling(plan: Plan) -> None:
    assert all(points(step)[0] is Phase.BEGUN for step in plan.steps)
    assert points(plan.steps[12]) == (Phase.BEGUN, Phase.ASKED, Phase.DECIDED, Phase.DISPATCHED, Phase.SENT, Phase.SETTLED)
    kills = kills_of(plan)
    assert [kill for kill in kills if kill not in reachable(kills)] == [kill for kill in kills if kill.phase in ("written", "answered")]


# -- progress


class Told:
    """Events as the interface shows them, of one Run."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.progress, self.sequence = plan, Progress(plan), 0

    def event(self, event_type: str, run_id: str = RUN, **attributes: Any) -> None:
        self.sequence += 1
        self.progress.take({"type": event_type, "sequence": self.sequence, "run_id": run_id, "attributes": attributes})

    def said(self, *steps: int, run_id: str = RUN) -> None:
        for index in steps:
            step = self.plan.steps[index]
            assert isinstance(step, Say)
            self.event("message.appended", run_id, source_index=step.record)

    def digest(self, index: int) -> str:
        step = self.plan.steps[index]
        assert isinstance(step, Act)
        return step.digest


@pytest.fixture
def told(plan: Plan) -> Told:
    return Told(plan)


def test_a_message_in_the_log_says_that_its_step_is_over(told: Told) -> None:
    told.said(0, 1, 2)
    assert (told.progress.next, told.progress.over_at) == (3, 3)


def test_what_another_run_of_the_session_said_changes_nothing(told: Told) -> None:
    told.said(0, 1, run_id=OTHER_RUN)
    assert told.progress.next == 0


def test_an_effect_without_a_receipt_leaves_its_step_open_and_known(told: Told) -> None:
    told.said(0, 1, 2, 3)
    told.event("effect.dispatched", effect_id="eff_1", action_digest=told.digest(4))
    told.event("effect.indeterminate", effect_id="eff_1")
    assert told.progress.next == 4
    assert told.progress.effects[4].effect_id == "eff_1"
    assert told.progress.effects[4].outcome is None
    assert told.progress.over_at == 4, "what the next step has begun lies behind this position"


@pytest.mark.parametrize(("outcome", "over"), [("succeeded", True), ("failed", True), ("abandoned", True), ("not_performed", False)])
def test_a_settled_effect_ends_its_step_unless_it_is_known_not_to_have_been_done(told: Told, outcome: str, over: bool) -> None:
    told.said(0, 1, 2, 3)
    told.event("effect.dispatched", effect_id="eff_1", action_digest=told.digest(4))
    told.event("effect.reconciled", effect_id="eff_1", outcome=outcome)
    assert told.progress.next == (5 if over else 4)


def test_a_receipt_that_says_nothing_is_one_of_success(told: Told) -> None:
    told.event("effect.dispatched", effect_id="eff_1", action_digest=told.digest(4))
    told.event("effect.receipt_accepted", effect_id="eff_1", receipt_digest="sha256:0")
    assert told.progress.effects[4].outcome == "succeeded"
    assert told.progress.next == 5


def test_a_denied_approval_ends_its_step_and_a_granted_one_does_not(told: Told) -> None:
    told.event("approval.requested", approval_id="appr_1", action_digest=told.digest(12))
    assert told.progress.approvals[12] == ("appr_1", "open")
    told.event("approval.granted", approval_id="appr_1")
    assert (told.progress.approvals[12], told.progress.next) == (("appr_1", "granted"), 0)
    told.event("approval.denied", approval_id="appr_1")
    assert told.progress.next == 13


def test_a_wait_is_known_by_its_step_and_over_once_it_is_answered(told: Told) -> None:
    told.event("wait.opened", wait_id="wait_1", kind="human", reason="step-9")
    told.event("wait.opened", wait_id="wait_2", kind="human", reason="somebody-elses")
    assert (told.progress.waits, told.progress.next) == ({9: "wait_1"}, 0)
    told.event("wait.answered", wait_id="wait_2")
    assert told.progress.next == 0
    told.event("wait.answered", wait_id="wait_1")
    assert told.progress.next == 10


def test_what_is_over_stays_over(told: Told) -> None:
    told.said(5)
    told.said(2)
    assert (told.progress.next, told.progress.over_at) == (6, 1)
