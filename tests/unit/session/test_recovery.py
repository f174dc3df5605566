"""From what a worker goes on: each cell of the table of design 02, "Recovery", as a decision of the core."""

import pytest

from streams.session.commands import Kind
from streams.session.decide import Decision
from streams.session.events import (
    AttemptAttributes,
    CheckpointAttributes,
    Content,
    ContextAttributes,
    EffectAttributes,
    RunAttributes,
    SessionAttributes,
    WaitAttributes,
)
from streams.session.outcomes import Grant, Inputs, OpenEffect, Recovery, Rejected, Unavailable
from tests.support.examples import made_up_id
from tests.support.recovering import (
    DAY,
    ENVIRONMENT,
    EXACT,
    HARNESS,
    checkpoint,
    claim,
    erase,
    leave_checkpoint,
    native,
    only,
    recovery,
)
from tests.support.story import OTHER, SECOND, SESSION, SUBJECT, WORKER, Story, part, sealed

RUN = made_up_id("run")
DIGEST = "sha256:" + "1" * 64
WINDOW = {"days": 90}
"""Of content: longer than a checkpoint lasts."""


def message(story: Story, *, days_on: int = 1) -> None:
    content = sealed(story.now + (WINDOW["days"] - 30) * DAY, days_on=days_on)
    story.tell(part("message.appended", content=content))


def talked(**run: object) -> tuple[Story, Grant]:
    """A conversation of one message, and a worker in a Run; its content is readable for 90 days."""
    story = Story().created(days=WINDOW["days"])
    message(story)
    story.with_run(**run)
    return story, story.claim()


def failed(story: Story, grant: Grant) -> None:
    story.tell(part("attempt.failed", AttemptAttributes(reason="no_sandbox"), run_id=RUN), by=WORKER, report=story.report(grant))


def later_run(story: Story, label: str = "later", **asked: object) -> Recovery:
    """An ordinary later Run, which names no checkpoint."""
    run_id = made_up_id("run", label)
    story.with_run(run_id)
    return recovery(claim(story, OTHER, run_id=run_id, **asked))


def granted(decision: Decision | Rejected) -> Grant:
    assert isinstance(decision, Decision), decision
    assert decision.grant is not None
    return decision.grant


class TestAnOrdinaryLaterRun:
    def test_restores_a_fresh_checkpoint(self) -> None:
        story, grant = talked()
        left = leave_checkpoint(story, grant, **native())
        found = later_run(story, **EXACT)
        assert (found.mode, found.reason, found.checkpoint_id) == ("checkpoint_restore", None, left.checkpoint_id)
        assert (found.through_sequence, found.through_event_id) == (left.through_sequence, left.through_event_id)
        assert (found.checkpoint_session_id, found.complete, found.unavailable) == (SESSION, True, ())
        assert (found.history, found.files, found.native_continuation) == (True, True, True)

    def test_restores_the_newest_of_several(self) -> None:
        story, grant = talked()
        for label in "abc":
            leave_checkpoint(story, grant, label)
        assert later_run(story).checkpoint_id == made_up_id("ckpt", "c")

    def test_restores_to_the_last_moment_before_expires_at_and_not_at_it(self) -> None:
        story, grant = talked()
        left = leave_checkpoint(story, grant)
        story.now = left.expires_at - 1
        assert later_run(story, "in_time").mode == "checkpoint_restore"
        story.now = left.expires_at
        assert later_run(story, "too_late").reason == "checkpoint_expired"

    def test_rebuilds_where_the_latest_checkpoint_expired_while_its_conversation_is_readable(self) -> None:
        story, grant = talked()
        leave_checkpoint(story, grant, **native())
        story.now += 31 * DAY
        found = later_run(story)
        assert (found.mode, found.reason) == ("event_log_rebuild", "checkpoint_expired")
        assert (found.complete, found.unavailable, found.history) == (True, (), True)
        assert (found.files, found.native_continuation) == (False, False)
        assert (found.checkpoint_id, found.through_sequence, found.through_event_id) == (None, 0, None)

    def test_rebuilds_where_there_is_no_checkpoint(self) -> None:
        story, _ = talked()
        assert (later_run(story).mode, later_run(story, "other").reason) == ("event_log_rebuild", "no_checkpoint")

    def test_rebuilds_where_the_checkpoint_is_erased_and_says_what_is_erased_with_it(self) -> None:
        story, grant = talked()
        leave_checkpoint(story, grant, **native())
        erase(story)
        found = later_run(story, incomplete_ok=True)
        assert (found.mode, found.reason, found.complete) == ("event_log_rebuild", "checkpoint_erased", False)
        assert found.unavailable == (Unavailable(2, 2, "content.erased"),)
        story.now += 31 * DAY
        assert later_run(story, "later still", incomplete_ok=True).reason == "checkpoint_erased"

    def test_restores_what_was_left_after_an_erasure(self) -> None:
        story, grant = talked()
        leave_checkpoint(story, grant, "before")
        erase(story)
        story.tell(part("message.appended", run_id=RUN), by=WORKER, report=story.report(grant))
        leave_checkpoint(story, grant, "after", **native())
        found = later_run(story, **EXACT)
        assert (found.mode, found.checkpoint_id) == ("checkpoint_restore", made_up_id("ckpt", "after"))
        assert (found.complete, found.unavailable) == (True, ())
        assert (found.history, found.files, found.native_continuation) == (False, True, True)

    def test_restores_nothing_from_what_was_left_after_an_erasure_of_a_position_before_it(self) -> None:
        """Its snapshot has seen what is erased."""
        story, grant = talked()
        erase(story)
        at = story.header.sequence
        for label, through in (("before", at - 1), ("at", at)):
            leave_checkpoint(story, grant, label, through)
            found = later_run(story, label, incomplete_ok=True)
            assert (found.mode, found.reason, found.files) == ("event_log_rebuild", "checkpoint_erased", False)
        leave_checkpoint(story, grant, "behind", at + 1, **native())
        found = later_run(story, **EXACT)
        assert (found.mode, found.complete, found.unavailable) == ("checkpoint_restore", True, ())

    @pytest.mark.parametrize(
        "asked",
        [
            {"harness_revision": "harness@8"},
            {"environment_revision": "image@3"},
            {"harness_revision": "harness@8", "environment_revision": ENVIRONMENT},
        ],
    )
    def test_rebuilds_where_the_worker_is_not_what_the_snapshot_was_taken_against(self, asked: dict[str, object]) -> None:
        story, grant = talked()
        leave_checkpoint(story, grant)
        found = later_run(story, **asked)
        assert (found.mode, found.reason, found.files) == ("event_log_rebuild", "checkpoint_incompatible", False)

    def test_is_compatible_by_the_worker_or_else_by_the_run(self) -> None:
        story, grant = talked()
        leave_checkpoint(story, grant)
        for label, run, asked, mode in (
            ("worker", {"harness_revision": "harness@1"}, {"harness_revision": HARNESS, "environment_revision": ENVIRONMENT}, "restore"),
            ("run", {"harness_revision": HARNESS, "environment_revision": ENVIRONMENT}, {}, "restore"),
            ("old", {"harness_revision": "harness@1"}, {}, "rebuild"),
            ("none", {}, {}, "restore"),
        ):
            story.with_run(made_up_id("run", label), **run)
            assert recovery(claim(story, OTHER, run_id=made_up_id("run", label), **asked)).mode.endswith(mode), label

    def test_of_another_harness_rebuilds(self) -> None:
        story, grant = talked(harness="one")
        leave_checkpoint(story, grant)
        story.with_run(made_up_id("run", "other"), harness="another")
        assert recovery(claim(story, OTHER, run_id=made_up_id("run", "other"))).reason == "checkpoint_incompatible"

    @pytest.mark.parametrize(
        ("taken_of", "run", "asked"),
        [
            ({"harness": "one"}, {}, EXACT),
            ({}, {"harness": "one"}, EXACT),
            ({}, {}, {"environment_revision": ENVIRONMENT}),
            ({}, {}, {"harness_revision": HARNESS}),
            ({"harness_revision": None}, {}, EXACT),
            ({"environment_revision": None}, {}, EXACT),
        ],
    )
    def test_continues_natively_only_as_what_is_known_to_be_the_same(
        self, taken_of: dict[str, object], run: dict[str, object], asked: dict[str, object]
    ) -> None:
        """What only one side names differs; a harness that is made anew from the log takes it."""
        for material, reason in ((native(), "checkpoint_incompatible"), ({}, None)):
            story, grant = talked()
            leave_checkpoint(story, grant, **{**material, **taken_of})
            later = made_up_id("run", "later")
            story.with_run(later, **run)
            found = recovery(claim(story, OTHER, run_id=later, **asked))
            assert (found.mode, found.reason) == ("checkpoint_restore" if reason is None else "event_log_rebuild", reason)
            assert found.native_continuation is False

    def test_judges_the_latest_checkpoint_alone(self) -> None:
        """An earlier one would do, and is not taken."""
        story, grant = talked()
        leave_checkpoint(story, grant, "would do")
        leave_checkpoint(story, grant, "latest", harness_revision="harness@8")
        found = later_run(story, harness_revision=HARNESS)
        assert (found.mode, found.reason) == ("event_log_rebuild", "checkpoint_incompatible")

    def test_under_zero_data_retention_rebuilds_from_what_was_omitted(self) -> None:
        story = Story()
        attributes = SessionAttributes(origin="live", policy_mode="zdr", content_window_days=30)
        story.tell(part("session.created", attributes, subject_id=SUBJECT))
        story.with_run()
        assert recovery(claim(story)).reason == "zero_data_retention"
        story.tell(part("message.appended", content=Content("omitted")))
        nothing = dict.fromkeys(("snapshot_id", "snapshot_bytes", "snapshot_digest"))
        leave_checkpoint(story, story.claim(label="9"), snapshot_kind="none", **nothing)
        found = later_run(story, incomplete_ok=True)
        assert (found.mode, found.reason, found.files) == ("event_log_rebuild", "zero_data_retention", False)
        assert found.unavailable == (Unavailable(5, 5, "content.omitted"),)


class TestAHistoryThatIsNotFullyReadable:
    def test_is_refused_by_default_and_told_with_its_ranges_and_reasons(self) -> None:
        story, _ = talked()
        story.tell(part("message.appended", content=Content("omitted")))
        story.now += 100 * DAY
        story.with_run(made_up_id("run", "later"))
        before = dict(story.items.items)
        answer = claim(story, OTHER, run_id=made_up_id("run", "later"))
        assert isinstance(answer, Rejected)
        assert answer.code == "runtime.session_history_unavailable"
        assert answer.missing == ("2-2 content.expired", "6-6 content.omitted")
        assert answer.detail == "first unavailable: 2-2 content.expired"
        assert story.items.items == before

    def test_is_taken_by_a_worker_that_copes(self) -> None:
        story, _ = talked()
        story.now += 100 * DAY
        found = later_run(story, incomplete_ok=True)
        assert (found.mode, found.complete, found.history) == ("event_log_rebuild", False, False)
        assert found.unavailable == (Unavailable(2, 2, "content.expired"),)
        started = story.events[-2]
        assert isinstance(started.attributes, AttemptAttributes)
        assert (started.attributes.complete, started.attributes.incomplete_ok) == (False, True)

    def test_does_not_matter_before_the_boundary_of_a_native_continuation(self) -> None:
        story, _ = talked()
        story.now += 100 * DAY
        grant = granted(claim(story, incomplete_ok=True))
        leave_checkpoint(story, grant, **native())
        found = later_run(story, **EXACT)
        assert (found.mode, found.complete, found.unavailable) == ("checkpoint_restore", True, ())
        assert not found.history, "what lies before the boundary cannot be read all the same"

    def test_matters_behind_the_boundary(self) -> None:
        story, grant = talked()
        leave_checkpoint(story, grant, **native())
        story.tell(part("message.appended", content=Content("omitted")))
        found = later_run(story, incomplete_ok=True, **EXACT)
        assert (found.mode, found.complete) == ("checkpoint_restore", False)
        assert found.unavailable == (Unavailable(7, 7, "content.omitted"),)

    def test_matters_from_the_beginning_where_the_harness_is_rebuilt(self) -> None:
        story, _ = talked()
        story.now += 100 * DAY
        grant = granted(claim(story, incomplete_ok=True))
        leave_checkpoint(story, grant)
        found = later_run(story, incomplete_ok=True)
        assert (found.mode, found.complete, found.files, found.native_continuation) == ("checkpoint_restore", False, True, False)


class TestWhatIsKept:
    def busy(self) -> tuple[Story, Grant]:
        story = Story().created()
        story.tell(part("turn.started", turn_id=made_up_id("turn")), part("thread.opened", thread_id=made_up_id("sthr")))
        inputs = RunAttributes(lane="coding", harness="harness", harness_revision=HARNESS, environment_revision=ENVIRONMENT)
        story.tell(part("run.accepted", inputs, run_id=RUN, turn_id=made_up_id("turn"), thread_id=made_up_id("sthr"), content=sealed()))
        story.tell(part("context.pinned", ContextAttributes(pin_kind="memory", revision="7"), run_id=RUN))
        grant = story.claim()
        effect = EffectAttributes(effect_id=made_up_id("eff"), provider="mail", request_digest=DIGEST)
        story.tell(
            part("effect.dispatched", effect, run_id=RUN),
            part("wait.opened", WaitAttributes(wait_id=made_up_id("wait"), kind="human"), run_id=RUN),
            by=WORKER,
            report=story.report(grant),
        )
        return story, grant

    def test_the_run_its_inputs_pins_waits_and_effect_identities(self) -> None:
        story, _ = self.busy()
        story.now += 31 * SECOND
        found = recovery(claim(story, OTHER))
        assert found.inputs == Inputs(4, made_up_id("turn"), made_up_id("sthr"), "coding", "harness", HARNESS, ENVIRONMENT)
        assert story.events[found.inputs.accepted_sequence - 1].type == "run.accepted"
        assert found.pins == ("memory 7 -",)
        assert found.open_waits == (made_up_id("wait"),)
        assert story.run().turn_id == made_up_id("turn")
        assert story.types.count("run.accepted") == 1

    def test_an_effect_of_a_dead_worker_is_told_as_indeterminate_by_the_very_claim_that_ends_its_attempt(self) -> None:
        story, _ = self.busy()
        story.now += 31 * SECOND
        found = recovery(claim(story, OTHER))
        assert found.open_effects == (OpenEffect(made_up_id("eff"), "indeterminate", DIGEST, DIGEST),)

    def test_an_effect_in_flight_is_told_as_dispatched_to_its_own_worker(self) -> None:
        story, _ = self.busy()
        found = recovery(story.tell(story.claim_parts(), kind=Kind.CLAIM, by=WORKER))
        assert [effect.status for effect in found.open_effects] == ["dispatched"]

    def test_no_newer_context_than_was_pinned(self) -> None:
        story, _ = self.busy()
        story.with_run(made_up_id("run", "newer"), harness_revision="harness@8")
        story.tell(part("context.pinned", ContextAttributes(pin_kind="memory", revision="8"), run_id=made_up_id("run", "newer")))
        story.now += 31 * SECOND
        found = recovery(claim(story, OTHER))
        assert (found.pins, found.inputs.harness_revision) == (("memory 7 -",), HARNESS)
        grant = story.claim(OTHER, "9")
        newer = part("context.pinned", ContextAttributes(pin_kind="memory", revision="8"), run_id=RUN)
        assert story.refusal(newer, by=OTHER, report=story.report(grant)) == "runtime.already_settled"

    def test_a_wait_that_is_answered_resumes_with_the_same_pins(self) -> None:
        story, _ = self.busy()
        before = story.run().pins
        story.tell(part("wait.answered", WaitAttributes(wait_id=made_up_id("wait"))))
        assert (story.run().status, story.run().pins) == ("running", before)

    def test_the_frontier_is_the_committed_position_with_the_grant(self) -> None:
        story, _ = self.busy()
        story.now += 31 * SECOND
        assert recovery(claim(story, OTHER)).frontier_sequence == story.header.sequence
        assert recovery(claim(story, OTHER)).frontier_sequence == story.header.sequence


class TestTheLogTells:
    def test_how_an_attempt_began_and_what_it_consumed(self) -> None:
        story, grant = talked()
        left = leave_checkpoint(story, grant, **native())
        later_run(story, incomplete_ok=True, **EXACT)
        started, consumed = story.events[-3], story.events[-1]
        assert (started.type, story.types[-2], consumed.type) == ("attempt.started", "run.started", "checkpoint.consumed")
        assert isinstance(started.attributes, AttemptAttributes)
        assert (started.attributes.recovery_mode, started.attributes.checkpoint_id) == ("checkpoint_restore", left.checkpoint_id)
        assert isinstance(consumed.attributes, CheckpointAttributes)
        assert consumed.attributes.checkpoint_id == left.checkpoint_id
        assert (consumed.run_id, consumed.attempt_generation) == (started.run_id, 1)
        assert [(link.relation, link.id) for link in consumed.links] == [
            ("cause", started.event_id),
            ("checkpoint", left.checkpoint_id),
        ]
        assert checkpoint(story) == left, "consuming a checkpoint does not change it"

    def test_why_nothing_was_restored(self) -> None:
        story, _ = talked()
        started = only(story, "attempt.started")
        assert isinstance(started.attributes, AttemptAttributes)
        assert (started.attributes.recovery_mode, started.attributes.recovery_reason) == ("event_log_rebuild", "no_checkpoint")
        assert "checkpoint.consumed" not in story.types


def test_evidence_that_nobody_judged_does_not_stand_in_the_log() -> None:
    story, grant = talked()
    failed(story, grant)
    recovery(claim(story, OTHER, replaces=7, frontier_sequence=99, verification_digest=DIGEST, verified_at=1))
    attributes = [event.attributes for event in story.events if event.type == "attempt.started"][-1]
    assert isinstance(attributes, AttemptAttributes)
    assert (attributes.replaces, attributes.frontier_sequence, attributes.verification_digest, attributes.verified_at) == (None,) * 4
