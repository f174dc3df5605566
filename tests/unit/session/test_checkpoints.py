"""Checkpoints as a resource: who may leave one, of what, up to where, and for how long."""

import pytest

from streams.session.events import CheckpointAttributes, Draft, RunAttributes, SessionAttributes, WaitAttributes
from streams.session.ids import derive_event_id
from streams.session.items import CheckpointState
from streams.session.limits import NATIVE_BYTES_MAX
from streams.session.outcomes import Rejected
from tests.support.examples import made_up_id
from tests.support.recovering import (
    DAY,
    ENVIRONMENT,
    HARNESS,
    checkpoint,
    checkpoint_part,
    claim,
    erase,
    history,
    leave_checkpoint,
    native,
    only,
)
from tests.support.story import NOON, OTHER, PERSON, SECOND, SESSION, SUBJECT, WORKER, Story, part

RUN = made_up_id("run")
MONTH_S = 30 * 24 * 3600


def refused(story: Story, *parts: Draft, by: str = WORKER, **more: object) -> Rejected:
    """Refused, and nothing of it is left."""
    before, events = dict(story.items.items), len(story.events)
    decision = story.decide(story.command(*parts, by=by, **more))  # type: ignore[arg-type]
    assert isinstance(decision, Rejected), decision
    assert (story.items.items, len(story.events)) == (before, events)
    return decision


class TestACheckpoint:
    def test_says_what_it_is_of_and_when_it_ends(self) -> None:
        story = Story()
        grant = story.working()
        left = leave_checkpoint(story, grant)
        boundary = story.events[3]
        assert left == CheckpointState(
            checkpoint_id=made_up_id("ckpt"), run_id=RUN, origin_session_id=SESSION, through_sequence=4,
            through_event_id=boundary.event_id, through_hash=boundary.hash.hex(), harness_revision=HARNESS,
            environment_revision=ENVIRONMENT, continuation_kind="event_log_rebuild", snapshot_kind="stored",
            expires_at=story.now + 30 * DAY, sequence=5,
        )  # fmt: skip
        created = only(story, "checkpoint.created")
        assert (created.run_id, created.attempt_generation, created.native_task_id) == (RUN, 1, grant.native_task_id)
        assert isinstance(created.attributes, CheckpointAttributes)
        assert created.attributes.expires_at == left.expires_at
        assert history(story).checkpoint_id == left.checkpoint_id

    def test_was_taken_against_the_runs_revisions_where_it_names_none(self) -> None:
        story = Story().created().with_run(harness="harness", harness_revision="harness@1", environment_revision="image@1")
        grant = story.claim()
        left = leave_checkpoint(story, grant, harness_revision=None, environment_revision=None)
        assert (left.harness, left.harness_revision, left.environment_revision) == ("harness", "harness@1", "image@1")

    def test_needs_all_that_says_where_it_stands(self) -> None:
        story = Story()
        grant = story.working()
        for name in ("checkpoint_id", "through_sequence", "through_event_id", "through_hash", "continuation_kind", "snapshot_kind"):
            answer = refused(story, checkpoint_part(story, **{name: None}), report=story.report(grant))
            assert (answer.code, answer.detail) == ("request.invalid", f"draft 0: attributes.{name}")

    def test_is_made_once(self) -> None:
        story = Story()
        grant = story.working()
        leave_checkpoint(story, grant)
        assert refused(story, checkpoint_part(story), report=story.report(grant)).code == "runtime.already_exists"

    @pytest.mark.parametrize(
        "claimed", [{"expires_at": NOON + 60 * DAY}, {"origin_session_id": made_up_id("sess", "other")}, {"fork_id": made_up_id("fork")}]
    )
    def test_does_not_say_itself_when_it_ends_or_whence_it_comes(self, claimed: dict[str, object]) -> None:
        story = Story()
        grant = story.working()
        assert refused(story, checkpoint_part(story, **claimed), report=story.report(grant)).code == "request.invalid"

    def test_is_told_as_consumed_by_the_authority_alone(self) -> None:
        story = Story()
        grant = story.working()
        left = leave_checkpoint(story, grant)
        consumed = part("checkpoint.consumed", CheckpointAttributes(checkpoint_id=left.checkpoint_id), run_id=RUN)
        for importing in (False, True):
            answer = refused(story, consumed, report=story.report(grant), importing=importing)
            assert answer.code == "request.invalid"


class TestTheBoundary:
    def test_is_a_committed_position(self) -> None:
        story = Story()
        grant = story.working()
        for through in (-1, 0, 5, 10**12):
            answer = refused(story, checkpoint_part(story, through_sequence=through), report=story.report(grant))
            assert answer.code == "runtime.checkpoint_boundary"
            assert answer.actual_sequence == 4

    def test_is_none_that_the_command_itself_would_make(self) -> None:
        story = Story()
        grant = story.working()
        message = part("message.appended", run_id=RUN)
        answer = refused(story, message, checkpoint_part(story, through_sequence=5), report=story.report(grant))
        assert answer.code == "runtime.checkpoint_boundary"

    def test_never_goes_back_behind_that_of_the_latest(self) -> None:
        story = Story()
        grant = story.working()
        leave_checkpoint(story, grant, "first", through=3)
        assert refused(story, checkpoint_part(story, label="back", through=2), report=story.report(grant)).code == (
            "runtime.checkpoint_boundary"
        )
        leave_checkpoint(story, grant, "again", through=3)
        leave_checkpoint(story, grant, "on")
        assert history(story).checkpoint_id == made_up_id("ckpt", "on")
        two = [checkpoint_part(story, label="a", through=5), checkpoint_part(story, label="b", through=4)]
        assert refused(story, *two, report=story.report(grant)).code == "runtime.checkpoint_boundary"


class TestWhoMayLeaveOne:
    def test_nobody_without_a_report(self) -> None:
        story = Story()
        story.working()
        assert refused(story, checkpoint_part(story)).code == "request.invalid"
        assert refused(story, checkpoint_part(story), by=PERSON).code == "request.invalid"

    def test_no_generation_but_the_current_one(self) -> None:
        story = Story()
        before = story.working()
        story.now += 31 * SECOND
        current = story.claim(by=OTHER, label="2")
        stale = story.report(before)
        assert refused(story, checkpoint_part(story), report=stale).code == "runtime.attempt_fenced"
        assert refused(story, checkpoint_part(story), by=WORKER, report=story.report(current)).code == "runtime.attempt_fenced"
        story.tell(checkpoint_part(story), by=OTHER, report=story.report(current))

    def test_no_native_task_but_the_one_that_serves_now(self) -> None:
        story = Story()
        grant = story.working()
        for _ in range(2):
            story.tell(part("attempt.ready", run_id=RUN), by=WORKER, report=story.report(story.claim()))
        assert refused(story, checkpoint_part(story), report=story.report(grant)).code == "runtime.attempt_fenced"

    def test_none_of_another_run(self) -> None:
        story = Story()
        grant = story.working()
        story.with_run(made_up_id("run", "other"))
        foreign = checkpoint_part(story, made_up_id("run", "other"))
        assert refused(story, foreign, report=story.report(grant)).code == "runtime.attempt_fenced"
        assert refused(story, checkpoint_part(story, made_up_id("run", "none")), report=story.report(grant)).code == "resource.not_found"

    def test_no_position_but_the_last(self) -> None:
        story = Story()
        grant = story.working()
        assert refused(story, checkpoint_part(story), report=story.report(grant, seen=2)).code == "runtime.position_conflict"

    def test_no_lapsed_or_settled_or_failed_attempt(self) -> None:
        story = Story()
        grant = story.working()
        part_of_it = checkpoint_part(story)
        story.now += 31 * SECOND
        assert refused(story, part_of_it, report=story.report(grant)).code == "runtime.attempt_fenced"
        story.now -= 31 * SECOND
        story.tell(part("run.completed", RunAttributes(outcome="done"), run_id=RUN), by=WORKER, report=story.report(grant))
        assert refused(story, part_of_it, report=story.report(grant)).code == "runtime.already_settled"

    def test_nobody_in_an_imported_run(self) -> None:
        story = Story().created().with_imported_run()
        assert refused(story, checkpoint_part(story), importing=True).code == "runtime.run_unavailable"


class TestMaterial:
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"snapshot_kind": "none"}, "snapshot_id"),
            ({"snapshot_id": None}, "snapshot_id"),
            ({"snapshot_bytes": None}, "snapshot_id"),
            ({"snapshot_digest": None}, "snapshot_id"),
            ({"snapshot_kind": "referenced"}, "snapshot_id"),
            ({"snapshot_kind": "referenced", "snapshot_bytes": None, "snapshot_digest": None}, "snapshot_id"),
            ({"snapshot_bytes": -1}, "snapshot_bytes"),
            ({"continuation_kind": "native"}, "native_id"),
            ({**native(), "native_digest": None}, "native_id"),
            ({**native(), "native_bytes": -1}, "native_bytes"),
            ({**native(), "continuation_kind": "event_log_rebuild"}, "native_id"),
            ({"native_id": made_up_id("snap")}, "native_id"),
            ({"through_hash": "5" * 63}, "through_hash"),
            ({"snapshot_id": made_up_id("ckpt")}, "snapshot_id"),
        ],
    )
    def test_stands_whole_or_not_at_all(self, changes: dict[str, object], field: str) -> None:
        story = Story()
        grant = story.working()
        answer = refused(story, checkpoint_part(story, **changes), report=story.report(grant))
        assert answer.code == "request.invalid"
        assert answer.detail.startswith(f"draft 0: attributes.{field}")

    def test_may_lie_with_a_provider(self) -> None:
        story = Story()
        grant = story.working()
        nothing = dict.fromkeys(("snapshot_id", "snapshot_bytes", "snapshot_digest"))
        assert leave_checkpoint(story, grant, snapshot_kind="referenced", **nothing).snapshot_kind == "referenced"

    def test_of_a_harness_is_at_most_16_mib(self) -> None:
        story = Story()
        grant = story.working()
        assert NATIVE_BYTES_MAX == 16 * 1024 * 1024
        large = {**native(), "native_bytes": NATIVE_BYTES_MAX + 1}
        answer = refused(story, checkpoint_part(story, **large), report=story.report(grant))
        assert answer == Rejected("request.invalid", "draft 0: attributes.native_bytes: at most 16777216")
        largest = {**native(), "native_bytes": NATIVE_BYTES_MAX}
        assert leave_checkpoint(story, grant, **largest).continuation_kind == "native"


def session(window_s: int | None, mode: str = "standard") -> Story:
    story = Story()
    attributes = SessionAttributes(origin="live", policy_mode=mode, content_window_days=30, checkpoint_window_s=window_s)
    story.tell(part("session.created", attributes, subject_id=SUBJECT))
    return story


class TestExpiry:
    @pytest.mark.parametrize("window_s", [1, 3600, MONTH_S - 1, MONTH_S])
    def test_is_created_plus_the_window_that_the_session_pinned(self, window_s: int) -> None:
        story = session(window_s).with_run()
        grant = story.claim()
        story.now += SECOND
        assert leave_checkpoint(story, grant).expires_at == story.now + window_s * SECOND

    def test_is_after_30_days_where_no_policy_says_less(self) -> None:
        story = session(None).with_run()
        assert leave_checkpoint(story, story.claim()).expires_at == NOON + 30 * DAY

    @pytest.mark.parametrize("window_s", [MONTH_S + 1, 10**12, 0, -1])
    def test_is_shortened_by_a_policy_and_never_lengthened(self, window_s: int) -> None:
        story = Story()
        attributes = SessionAttributes(origin="live", content_window_days=30, checkpoint_window_s=window_s)
        decision = story.decide(story.command(part("session.created", attributes, subject_id=SUBJECT)))
        assert isinstance(decision, Rejected)
        assert decision.code == "request.invalid"

    def test_counts_from_when_it_was_accepted_even_where_the_clock_was_set_back(self) -> None:
        story = Story()
        grant = story.working()
        told_at = story.header.last_accepted_at
        story.now -= 3600 * SECOND
        assert leave_checkpoint(story, grant).expires_at == told_at + 30 * DAY

    def test_is_moved_by_nothing_that_happens_afterwards(self) -> None:
        story = Story()
        grant = story.working()
        left = leave_checkpoint(story, grant)
        story.now += 10 * SECOND
        leave_checkpoint(story, grant, "next")
        story.tell(part("wait.opened", WaitAttributes(wait_id=made_up_id("wait"), kind="human"), run_id=RUN), by=WORKER,
                   report=story.report(grant))  # fmt: skip
        story.now += 31 * SECOND
        claim(story, OTHER)
        erase(story)
        story.tell(part("session.closed"))
        assert checkpoint(story) == left


class TestUnderZeroDataRetention:
    def bare(self, story: Story, **more: object) -> Draft:
        nothing = dict.fromkeys(("snapshot_id", "snapshot_bytes", "snapshot_digest"))
        return checkpoint_part(story, **{"snapshot_kind": "none", **nothing, **more})

    def test_a_checkpoint_is_metadata_only(self) -> None:
        story = session(None, "zdr").with_run()
        grant = story.claim()
        for material in (
            {"snapshot_kind": "stored"},
            {"snapshot_kind": "referenced"},
            {"snapshot_id": made_up_id("snap")},
            native(),
        ):
            assert refused(story, self.bare(story, **material), report=story.report(grant)).code == "request.invalid"
        story.tell(self.bare(story), by=WORKER, report=story.report(grant))
        assert checkpoint(story).snapshot_kind == "none"
        assert checkpoint(story).expires_at == story.now + 30 * DAY

    def test_no_other_session_may_leave_out_its_snapshot(self) -> None:
        story = Story()
        grant = story.working()
        assert refused(story, self.bare(story), report=story.report(grant)).code == "request.invalid"


class TestTheBeginningOfASession:
    @pytest.mark.parametrize(
        "told",
        [
            {"source_session_id": made_up_id("sess", "source")},
            {"fork_id": made_up_id("fork")},
            {"through_sequence": 3},
            {"depth": 1},
            {"inherited": ""},
            {"source_hash": "5" * 64},
            {"through_event_id": derive_event_id(made_up_id("cmd"), 0)},
        ],
    )
    def test_says_nothing_of_a_source_that_has_not_told_of_it(self, told: dict[str, object]) -> None:
        story = Story()
        attributes = SessionAttributes(origin="live", content_window_days=30, **told)  # type: ignore[arg-type]
        decision = story.decide(story.command(part("session.created", attributes)))
        assert isinstance(decision, Rejected)
        assert decision.code == "request.invalid"

    def test_pins_the_window(self) -> None:
        assert session(3600).header.checkpoint_window_s == 3600
