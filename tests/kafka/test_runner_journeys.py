"""Journeys of the runner on a real broker: what it proves of checkpoints, rebuilding, native continuation and replacement.

Each ends, with `--support DIR`, in a signed statement about exactly the tuple that the runner runs on.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs

from connectors.runner.crash import Phase
from connectors.runner.plan import Act
from connectors.runner.worker import EXACT, Options
from connectors.sources.samples import FOLDER
from connectors.support.journeys import Observed
from session_streams import Conflict
from tests.support.journeys import Journey, journey_of
from tests.support.roles import Roles, installation
from tests.support.runners import (
    FENCED,
    RUNNER,
    Kill,
    Scene,
    Stage,
    check_log,
    files_after,
    files_below,
    settlements,
    trust_replacement,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]
SAMPLE = FOLDER / "berth-pagination.jsonl"
INDETERMINATE, REFUSED, UNAVAILABLE = 7, 1, 4


@pytest.fixture
def journey(request: pytest.FixtureRequest) -> Journey:
    return journey_of(request.config.getoption("--support"), request.node.nodeid, RUNNER)


@pytest.fixture(scope="module")
def roles(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with installation(broker.bootstrap, tmp_path_factory.mktemp("data"), graph=True, custodian=True) as running:
        yield running


@pytest.fixture
def trusted(roles: Roles, tmp_path: Path) -> Iterator[None]:
    """What the runner runs on has been seen to replace attempts that were ready."""
    take_back = trust_replacement(roles.settings, tmp_path)
    yield
    take_back()


@pytest.fixture
def stage(roles: Roles, tmp_path: Path) -> Stage:
    return Stage(roles, SAMPLE, 60, tmp_path, lease_ms=3000)


def act_of(scene: Scene) -> Act:
    return next(step for step in scene.plan.steps if isinstance(step, Act))


def seen(observed: Observed, scene: Scene) -> None:
    """Where it can be looked up."""
    session = scene.client.session(scene.target.session_id)
    observed.session_id, observed.position = session.session_id, session.position


def died(scene: Scene, number: int, kill: Kill, *arguments: str) -> None:
    process = scene.start(number, kill, arguments)
    assert process.wait() == -signal.SIGKILL, process.text()


def completed(scene: Scene, number: int, *arguments: str) -> dict[str, Any]:
    """How the runner that comes to the end began."""
    process = scene.start(number, arguments=arguments)
    assert process.wait() == 0, process.text()
    assert files_below(process.workspace) == files_after(scene.plan, len(scene.plan.steps))
    (begun,) = process.told("begun")
    return begun


def test_an_attempt_that_never_was_ready_is_replaced_freely_and_its_checkpoint_restored(stage: Stage, journey: Journey) -> None:
    with journey("checkpoints") as observed, stage.open() as scene:
        died(scene, 0, Kill(Phase.CHECKPOINTED), "--continuation", "log")
        begun = completed(scene, 1)
        assert (begun["mode"], begun["files"], begun["native"]) == ("checkpoint_restore", "checkpoint", False)
        check_log(scene.events())
        consumed = [event for event in scene.events() if event["type"] == "checkpoint.consumed"]
        assert [event["attempt_generation"] for event in consumed] == [2]
        seen(observed, scene)


def test_without_a_checkpoint_the_conversation_is_rebuilt_from_the_log_and_it_says_so(stage: Stage, journey: Journey) -> None:
    with journey("portable_rebuild") as observed, stage.open() as scene:
        died(scene, 0, Kill(Phase.UPLOADED))
        begun = completed(scene, 1)
        assert (begun["mode"], begun["reason"], begun["native"]) == ("event_log_rebuild", "no_checkpoint", False)
        assert begun["history"] == 1, "the prompt, which is all that was said"
        seen(observed, scene)


def test_native_state_comes_back_with_the_checkpoint_and_only_what_lies_behind_it_is_read(
    stage: Stage, journey: Journey, trusted: None
) -> None:
    with journey("native_continuation") as observed, stage.open() as scene:
        died(scene, 0, Kill(Phase.TOLD, 12), "--snapshot-every", "5")
        begun = completed(scene, 1, "--continuation", "native")
        assert (begun["mode"], begun["native"], begun["files"]) == ("checkpoint_restore", True, "checkpoint")
        assert begun["steps"] == 13
        assert begun["history"] == 3, "steps 10, 11 and 12"
        seen(observed, scene)


def test_a_ready_attempt_is_replaced_on_evidence_and_the_run_goes_on_as_if_nothing_had_been(
    stage: Stage, journey: Journey, trusted: None
) -> None:
    with journey("post_ready_replacement") as observed, stage.open() as undisturbed, stage.open() as scene:
        assert undisturbed.here(options=Options(lease_ms=10_000)).end == "completed"
        last = scene.chain([Kill(Phase.READY), Kill(Phase.SENT, act_of(scene).index), Kill(Phase.SETTLED, act_of(scene).index)])
        scene.judge(undisturbed, last)
        assert scene.counts.replaced == 3
        assert settlements(scene.events()) == {"provider_lookup": 1}
        seen(observed, scene)


def test_without_a_trusted_statement_a_ready_attempt_is_not_replaced_and_everything_missing_is_named(stage: Stage) -> None:
    """The refusal leaves the session as it was; only what nobody has proven is missing, and without a worker's coordinates more."""
    with stage.open() as scene:
        died(scene, 0, Kill(Phase.BEGUN, 3))
        eventually(lambda: scene.events()[-1]["type"] == "attempt.failed", timeout_s=20)
        before = scene.events()
        process = scene.start(1)
        assert process.wait() == REFUSED, process.text()
        (left,) = process.told("left")
        assert (left["end"], left["missing"]) == ("unreplaceable", ["verification"])
        plain, _ = process.told("refused")
        assert plain["asked"] == "claim"
        assert plain["code"] == "runtime.replacement_unavailable"
        assert plain["missing"] == ["recovery_frontier", "verification"], "a plain claim brings no evidence at all"
        with pytest.raises(Conflict) as refused:
            scene.client.request("POST", f"/v1/sessions/{scene.target.session_id}/runs/{scene.target.run_id}/claim", {})
        assert refused.value.missing == ("compatibility", "recovery_frontier", "verification")
        assert scene.events() == before
        assert not process.workspace.exists(), "nothing was touched"


def test_a_provider_that_knows_no_identities_leaves_the_effect_indeterminate_for_everybody_to_see(
    stage: Stage, roles: Roles, trusted: None
) -> None:
    """And a governed decision, not a second try, lets the Run go on."""
    with stage.open() as scene:
        scene.provider.forgetful = True
        act = act_of(scene)
        died(scene, 0, Kill(Phase.SENT, act.index))
        process = scene.start(1, arguments=["--forgetful-provider"])
        assert process.wait() == INDETERMINATE, process.text()
        (left,) = process.told("left")
        effect_id = left["detail"]
        assert "no identities" in left["cause"]
        assert scene.provider.performed == {act.digest: 1}
        graph = httpx.get(
            f"{roles.url}/v1/sessions/{scene.target.session_id}/graph", headers={"authorization": f"Bearer {stage.keys[0]}"}, timeout=20
        ).json()
        (node,) = [node for node in graph["nodes"] if node["id"] == effect_id]
        assert node["state"] == "indeterminate"
        session = f"/v1/sessions/{scene.target.session_id}"
        decided = {"evidence_kind": "governed_decision", "outcome": "succeeded", "content": {"because": "the shell's own log says so"}}
        scene.client.request("POST", f"{session}/effects/{effect_id}/reconcile", decided)
        completed(scene, 2)
        assert scene.provider.performed == {act.digest: 1}
        assert settlements(scene.events()) == {"governed_decision": 1}


def test_an_answer_that_never_came_is_settled_by_asking_and_the_action_stays_one(stage: Stage) -> None:
    """No death at all: the provider performs, and its answer is lost."""
    with stage.open() as scene:
        scene.provider.drop_answers = 1
        completed(scene, 0)
        assert scene.provider.performed == {act_of(scene).digest: 1}
        assert settlements(scene.events()) == {"provider_lookup": 1}


def test_a_request_that_never_left_is_sent_under_the_same_identity(stage: Stage, trusted: None) -> None:
    with stage.open() as scene:
        died(scene, 0, Kill(Phase.DISPATCHED, act_of(scene).index))
        completed(scene, 1)
        assert scene.provider.performed == {act_of(scene).digest: 1}
        assert settlements(scene.events()) == {"idempotency_mechanism": 1}
        assert sum(event["type"] == "effect.dispatched" for event in scene.events()) == 1


def test_an_action_that_is_denied_is_never_sent_and_the_run_goes_on(roles: Roles, recordings: Path, tmp_path: Path) -> None:
    stage = Stage(roles, recordings / "coding_sessions" / "session_038.jsonl.gz", 60, tmp_path)
    with stage.open(decision="denied") as scene:
        assert scene.here().end == "completed"
        acts = [step for step in scene.plan.steps if isinstance(step, Act)]
        asked = {step.digest for step in acts if step.action.approval}
        assert asked
        assert scene.provider.performed == {step.digest: 1 for step in acts if step.digest not in asked}
        assert not any(
            event["type"] == "effect.dispatched" and event["attributes"]["action_digest"] in asked for event in scene.events()
        )  # fmt: skip


def test_a_runner_that_stood_still_and_was_replaced_wakes_up_fenced_and_touches_nothing(stage: Stage, trusted: None) -> None:
    with stage.open(answers=False) as scene:
        first = scene.start(0)
        eventually(lambda: any(event["type"] == "wait.opened" for event in scene.events()), timeout_s=60)
        eventually(lambda: bool(first.told("waits")), timeout_s=60)
        os.kill(first.process.pid, signal.SIGSTOP)
        second = scene.start(1)
        eventually(lambda: bool(second.told("begun")), timeout_s=60)
        left_behind, at = files_below(first.workspace), len(scene.events())
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.wait() == FENCED, first.text()
        assert files_below(first.workspace) == left_behind
        assert {event.get("attempt_generation") for event in scene.events()[at:]} <= {None, 2}
        scene.answer()
        assert second.wait() == 0, second.text()
        check_log(scene.events())


def test_a_run_is_taken_by_exactly_one_of_two_runners(stage: Stage) -> None:
    with stage.open() as scene:
        processes = [scene.start(0), scene.start(1)]
        assert [process.wait() for process in processes] == [0, 0], [process.text() for process in processes]
        assert sorted(told["end"] for process in processes for told in process.told("left")) == ["completed", "over"]
        check_log(scene.events())
        assert sum(event["type"] == "attempt.started" for event in scene.events()) == 1


def test_a_lane_hands_out_what_was_never_ready_again_and_a_ready_attempt_to_nobody(stage: Stage) -> None:
    with stage.open() as scene:
        for kill in (Kill(Phase.CLAIMED), Kill(Phase.BEGUN, 3)):
            process = scene.start(0, kill, by_lane=True)
            assert process.wait() == -signal.SIGKILL, process.text()
        eventually(lambda: scene.events()[-1]["type"] == "attempt.failed", timeout_s=30)
        process = scene.start(1, arguments=["--patience-s", "2"], by_lane=True)
        assert process.wait() == UNAVAILABLE, process.text()
        check_log(scene.events())


def test_a_run_that_was_opened_for_another_transcript_is_left_alone(stage: Stage, roles: Roles, tmp_path: Path) -> None:
    other = Stage(roles, FOLDER / "tide-tables.jsonl", 60, tmp_path / "other")
    with stage.open() as scene, other.open() as elsewhere:
        elsewhere.target = scene.target
        process = elsewhere.start(0)
        assert process.wait() == REFUSED
        (left,) = process.told("left")
        assert left["end"] == "other_transcript"
        assert not process.workspace.exists()


def test_another_environment_is_not_compatible_with_what_was_retained(stage: Stage, trusted: None) -> None:
    """A snapshot that was taken against another revision is not restored: the claim says why, and the log has everything."""
    with stage.open() as scene:
        died(scene, 0, Kill(Phase.CHECKPOINTED))
        left = scene.here(options=Options(lease_ms=10_000, exact=structs.replace(EXACT, environment_revision="directory-2")))
        assert left.begun is not None
        assert (left.begun.mode, left.begun.reason) == ("event_log_rebuild", "checkpoint_incompatible")
        assert files_below(stage.folder / "undisturbed") == files_after(scene.plan, len(scene.plan.steps))
