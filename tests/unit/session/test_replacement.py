"""A ready attempt that failed is replaced on evidence, or not at all; the refusal names everything that is missing."""

import pytest

from streams.session.commands import Kind
from streams.session.events import AttemptAttributes, Content, EffectAttributes
from streams.session.limits import OLDEST_VERIFICATION_US
from streams.session.outcomes import Grant, Rejected
from tests.support.examples import made_up_id
from tests.support.recovering import (
    DAY,
    ENVIRONMENT,
    HARNESS,
    VERIFIED,
    claim,
    erase,
    fork,
    leave_checkpoint,
    make_ready,
    native,
    recovery,
    replace_part,
)
from tests.support.story import OTHER, SECOND, WORKER, Story, part

RUN = made_up_id("run")
DIGEST = "sha256:" + "1" * 64
BYTES, COMPATIBILITY, FRONTIER, VERIFICATION = "retained_bytes", "compatibility", "recovery_frontier", "verification"


def died(**checkpoint: object) -> tuple[Story, Grant]:
    """A worker was ready, left a checkpoint, and its lease is over."""
    story = Story()
    grant = story.working(harness="harness")
    make_ready(story, grant)
    leave_checkpoint(story, grant, **{**native(), **checkpoint})
    story.now += 31 * SECOND
    return story, grant


def answer(story: Story, kind: Kind = Kind.REPLACE, **evidence: object) -> Rejected:
    """Refused, and nothing has changed."""
    before, events = dict(story.items.items), list(story.events)
    command = story.command(replace_part(story, **evidence), kind=kind, by=OTHER, lease_ms=30_000)  # type: ignore[arg-type]
    decision = story.decide(command)
    assert isinstance(decision, Rejected), decision
    assert (story.items.items, story.events) == (before, events)
    return decision


class TestWithAllEvidence:
    def test_the_same_run_goes_on_at_a_new_generation(self) -> None:
        story, grant = died()
        decision = story.tell(replace_part(story), kind=Kind.REPLACE, by=OTHER)
        assert [draft.type for draft in decision.drafts] == [
            "attempt.failed", "attempt.replaced", "attempt.started", "checkpoint.consumed",
        ]  # fmt: skip
        assert [draft.attempt_generation for draft in decision.drafts] == [1, 1, 2, 2]
        assert decision.grant is not None
        assert (decision.grant.run_id, decision.grant.generation) == (RUN, 2)
        assert decision.grant.native_task_id != grant.native_task_id
        assert story.run().status == "running"
        assert story.types.count("run.accepted") == 1

    def test_its_evidence_stands_in_the_log(self) -> None:
        story, _ = died()
        seen = story.run().sequence
        story.tell(replace_part(story), kind=Kind.REPLACE, by=OTHER)
        attributes = [event.attributes for event in story.events if event.type == "attempt.started"][-1]
        assert isinstance(attributes, AttemptAttributes)
        assert (attributes.replaces, attributes.frontier_sequence, attributes.verification_digest) == (1, seen, VERIFIED)
        assert (attributes.harness_revision, attributes.environment_revision) == (HARNESS, ENVIRONMENT)
        assert attributes.verified_at == story.now

    def test_the_worker_before_is_fenced(self) -> None:
        story, grant = died()
        story.tell(replace_part(story), kind=Kind.REPLACE, by=OTHER)
        for report in (story.report(grant), story.report(grant, seen=7)):
            assert story.refusal(part("message.appended", run_id=RUN), by=WORKER, report=report) == "runtime.attempt_fenced"
        assert story.refusal(kind=Kind.RENEW, by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"

    def test_what_was_accepted_is_never_rewound(self) -> None:
        story, _ = died()
        before = list(story.events)
        story.tell(replace_part(story), kind=Kind.REPLACE, by=OTHER)
        assert story.events[: len(before)] == before
        assert [event.sequence for event in story.events] == list(range(1, len(story.events) + 1))

    def test_a_failed_attempt_is_not_failed_again(self) -> None:
        story = Story()
        grant = story.working(harness="harness")
        make_ready(story, grant)
        leave_checkpoint(story, grant)
        story.tell(part("attempt.failed", run_id=RUN), by=WORKER, report=story.report(grant))
        decision = story.tell(replace_part(story), kind=Kind.REPLACE, by=OTHER)
        assert [draft.type for draft in decision.drafts][:2] == ["attempt.replaced", "attempt.started"]

    def test_repeated_it_tells_the_live_attempt(self) -> None:
        story, _ = died()
        same = replace_part(story)
        first = story.tell(same, kind=Kind.REPLACE, by=OTHER)
        again = story.tell(same, kind=Kind.REPLACE, by=OTHER)
        assert (again.grant, again.drafts) == (first.grant, ())

    def test_each_next_one_needs_its_own(self) -> None:
        story, _ = died()
        story.tell(replace_part(story), kind=Kind.REPLACE, by=WORKER, lease_ms=30_000)
        make_ready(story, story.claim(WORKER, "2"))
        story.now += 31 * SECOND
        assert answer(story, label="3", replaces=1).missing == (FRONTIER,)
        third = story.tell(replace_part(story, label="3"), kind=Kind.REPLACE, by=OTHER)
        assert third.grant is not None
        assert third.grant.generation == 3

    def test_an_effect_stays_under_its_identity_and_is_not_dispatched_blindly_again(self) -> None:
        story = Story()
        grant = story.working(harness="harness")
        make_ready(story, grant)
        effect = EffectAttributes(effect_id=made_up_id("eff"), provider="mail", request_digest=DIGEST)
        story.tell(part("effect.dispatched", effect, run_id=RUN), by=WORKER, report=story.report(grant))
        leave_checkpoint(story, grant)
        story.now += 31 * SECOND
        found = recovery(story.tell(replace_part(story), kind=Kind.REPLACE, by=WORKER))
        assert [(each.effect_id, each.status) for each in found.open_effects] == [(made_up_id("eff"), "indeterminate")]
        again = EffectAttributes(effect_id=made_up_id("eff", "fresh"), provider="mail", request_digest=DIGEST)
        report = story.report(story.claim(WORKER, "2"))
        assert story.refusal(part("effect.dispatched", again, run_id=RUN), by=WORKER, report=report) == "runtime.effect_indeterminate"


class TestMissing:
    @pytest.mark.parametrize(
        ("evidence", "item"),
        [
            ({"harness_revision": None}, COMPATIBILITY),
            ({"environment_revision": None}, COMPATIBILITY),
            ({"harness_revision": "harness@8"}, COMPATIBILITY),
            ({"replaces": None}, FRONTIER),
            ({"replaces": 2}, FRONTIER),
            ({"frontier_sequence": None}, FRONTIER),
            ({"frontier_sequence": 3}, FRONTIER),
            ({"frontier_sequence": 99}, FRONTIER),
            ({"verification_digest": None}, VERIFICATION),
            ({"verified_at": None}, VERIFICATION),
        ],
    )
    def test_one_thing_it_is_named_alone(self, evidence: dict[str, object], item: str) -> None:
        story, _ = died()
        refused = answer(story, **evidence)
        assert (refused.code, refused.missing) == ("runtime.replacement_unavailable", (item,))
        assert refused.detail == f"{RUN}: generation 1 was ready; missing: {item}"

    def test_a_checkpoint_there_are_no_retained_bytes(self) -> None:
        story = Story()
        make_ready(story, story.working())
        story.now += 31 * SECOND
        assert answer(story).missing == (BYTES,)

    def test_after_its_expiry_there_are_none_either(self) -> None:
        story, _ = died()
        story.now += 31 * DAY
        assert answer(story).missing == (BYTES,)

    def test_nor_after_its_erasure(self) -> None:
        story, _ = died()
        erase(story)
        assert answer(story).missing == (BYTES,)

    @pytest.mark.parametrize("unknown", ["harness_revision", "environment_revision"])
    @pytest.mark.parametrize("kind", [native(), dict.fromkeys(("native_id", "native_bytes", "native_digest"))])
    def test_revisions_of_the_checkpoint_nobody_can_tell_that_they_match(self, unknown: str, kind: dict[str, object]) -> None:
        rebuilt = {"continuation_kind": "event_log_rebuild"} if kind["native_id"] is None else {}
        story, _ = died(**kind, **rebuilt, **{unknown: None})
        assert answer(story).missing == (COMPATIBILITY,)

    @pytest.mark.parametrize(("of_the_run", "of_the_checkpoint"), [(None, None), (None, "harness"), ("harness", "another")])
    def test_a_harness_that_is_known_on_both_sides_nobody_can_tell_either(
        self, of_the_run: str | None, of_the_checkpoint: str | None
    ) -> None:
        story = Story()
        grant = story.working(harness=of_the_run)
        make_ready(story, grant)
        leave_checkpoint(story, grant, harness=of_the_checkpoint)
        story.now += 31 * SECOND
        assert answer(story).missing == (COMPATIBILITY,)

    def test_a_checkpoint_of_that_very_run_there_are_no_retained_bytes(self) -> None:
        story = Story().created().with_run(made_up_id("run", "other"), harness="harness").with_run(harness="harness")
        other = story.claim(run_id=made_up_id("run", "other"))
        make_ready(story, story.claim(label="3"))
        leave_checkpoint(story, other)
        story.now += 31 * SECOND
        assert answer(story).missing == (BYTES,)

    def test_nor_with_one_that_a_fork_brought_along(self) -> None:
        story, _ = died()
        child = fork(story, checkpoint_id=made_up_id("ckpt"))
        child.with_run(harness="harness")
        make_ready(child, child.claim())
        child.now += 31 * SECOND
        assert answer(child).missing == (BYTES,)

    def test_a_readable_history_behind_the_boundary_whether_or_not_the_worker_copes(self) -> None:
        story = Story()
        grant = story.working(harness="harness")
        make_ready(story, grant)
        leave_checkpoint(story, grant, **native())
        omitted = part("message.appended", run_id=RUN, content=Content("omitted"))
        story.tell(omitted, by=WORKER, report=story.report(grant))
        story.now += 31 * SECOND
        for copes in (False, True):
            assert answer(story, incomplete_ok=copes).missing == (FRONTIER,)

    @pytest.mark.parametrize("age", [OLDEST_VERIFICATION_US + 1, -61 * SECOND, -(10**18)])
    def test_a_verification_that_is_current(self, age: int) -> None:
        story, _ = died()
        assert answer(story, verified_at=story.now - age).missing == (VERIFICATION,)

    @pytest.mark.parametrize("age", [OLDEST_VERIFICATION_US, 0, -60 * SECOND])
    def test_nothing_with_a_verification_of_late(self, age: int) -> None:
        story, _ = died()
        story.tell(replace_part(story, verified_at=story.now - age), kind=Kind.REPLACE, by=OTHER)

    def test_everything_all_of_it_is_named(self) -> None:
        story, _ = died()
        story.now += 31 * DAY
        nothing = dict.fromkeys(
            ("replaces", "frontier_sequence", "harness_revision", "environment_revision", "verification_digest", "verified_at")
        )
        assert answer(story, **nothing).missing == (BYTES, COMPATIBILITY, FRONTIER, VERIFICATION)


class TestAPlainClaim:
    def test_of_a_ready_attempt_lists_all_that_only_a_worker_could_bring(self) -> None:
        story, _ = died()
        refused = claim(story, OTHER)
        assert isinstance(refused, Rejected)
        assert (refused.code, refused.missing) == ("runtime.replacement_unavailable", (COMPATIBILITY, FRONTIER, VERIFICATION))

    def test_is_no_replacement_whatever_it_says(self) -> None:
        story, _ = died()
        assert answer(story, Kind.CLAIM).missing == (VERIFICATION,)

    def test_of_an_attempt_that_was_never_ready_is_free(self) -> None:
        story = Story()
        grant = story.working()
        leave_checkpoint(story, grant)
        story.now += 31 * SECOND
        assert recovery(claim(story, OTHER)).mode == "checkpoint_restore"
        assert "attempt.replaced" not in story.types


class TestNoReplacement:
    def test_of_an_attempt_that_lives(self) -> None:
        story = Story()
        grant = story.working()
        make_ready(story, grant)
        leave_checkpoint(story, grant)
        assert answer(story).code == "runtime.attempt_not_claimable"

    def test_of_a_run_that_is_over(self) -> None:
        story, _ = died()
        story.tell(part("run.cancelled", run_id=RUN))
        assert answer(story).code == "runtime.already_settled"

    def test_with_a_report_or_with_other_drafts(self) -> None:
        story, grant = died()
        for parts, report in (([replace_part(story)], story.report(grant)), ([replace_part(story)] * 2, None), ([], None)):
            assert story.refusal(*parts, kind=Kind.REPLACE, by=OTHER, report=report) == "request.invalid"

    def test_after_a_takeover_before_the_lease_has_been_granted_once_more(self) -> None:
        story, _ = died()
        story.took_over_at = story.now
        assert answer(story).code == "runtime.attempt_not_claimable"
        story.now += 30 * SECOND + 1
        story.tell(replace_part(story), kind=Kind.REPLACE, by=OTHER)

    def test_is_needed_where_the_attempt_was_never_ready(self) -> None:
        story = Story()
        story.working()
        story.now += 31 * SECOND
        decision = story.tell(replace_part(story, replaces=9, verified_at=None), kind=Kind.REPLACE, by=OTHER)
        started = decision.drafts[-1].attributes
        assert isinstance(started, AttemptAttributes)
        assert (started.replaces, started.verification_digest) == (None, None)
