"""Claims, leases, generations: how a worker comes to hold a Run, and who loses it."""

import pytest
from msgspec import structs

from streams.session.commands import Kind
from streams.session.events import AttemptAttributes, MessageAttributes, RunAttributes
from streams.session.ids import derive_from_command
from streams.session.outcomes import Rejected
from tests.support.examples import made_up_id
from tests.support.story import OTHER, SECOND, WORKER, Story, part

RUN = made_up_id("run")
MESSAGE = part("message.appended", MessageAttributes(role="assistant"), run_id=RUN)


def test_a_claim_grants_a_generation_a_native_task_and_a_lease() -> None:
    story = Story().created().with_run()
    grant = story.claim(lease_ms=30_000)
    started = next(event for event in story.events if event.type == "attempt.started")
    assert (grant.run_id, grant.generation) == (RUN, 1)
    assert grant.native_task_id == started.native_task_id == derive_from_command("task", started.command_id, 0)
    assert grant.lease_expires_at == story.now + 30 * SECOND
    assert grant.run_sequence == story.run().sequence == 4
    assert story.types[-2:] == ["attempt.started", "run.started"]
    assert isinstance(started.attributes, AttemptAttributes)
    assert (started.attributes.principal_id, started.attributes.lease_expires_at) == (WORKER, grant.lease_expires_at)


def test_a_repeated_claim_tells_the_live_grant_and_appends_nothing() -> None:
    story = Story().created().with_run()
    grant = story.claim()
    decision = story.tell(story.claim_parts(), kind=Kind.CLAIM, by=WORKER)
    assert decision.grant == grant
    assert (decision.drafts, decision.changed, decision.first_sequence) == ((), {}, 0)


def test_a_repeated_claim_tells_the_native_task_that_serves_now() -> None:
    story = Story()
    grant = story.working()
    for _ in range(2):
        story.tell(part("attempt.ready", run_id=RUN), by=WORKER, report=story.report(grant))
    restarted = story.claim()
    assert restarted.native_task_id == story.attempt().native_task_id != grant.native_task_id


@pytest.mark.parametrize(("by", "label"), [(WORKER, "2"), (OTHER, "1"), (OTHER, "2")])
def test_of_two_claims_one_wins(by: str, label: str) -> None:
    story = Story().created().with_run()
    story.claim()
    assert story.refusal(story.claim_parts(label), kind=Kind.CLAIM, by=by) == "runtime.attempt_not_claimable"


def test_an_unnamed_claim_is_never_the_same_claim() -> None:
    story = Story().created().with_run()
    unnamed = part("attempt.started", run_id=RUN)
    story.tell(unnamed, kind=Kind.CLAIM, by=WORKER)
    assert story.refusal(unnamed, kind=Kind.CLAIM, by=WORKER) == "runtime.attempt_not_claimable"


def test_runs_that_nobody_may_claim() -> None:
    story = Story().created()
    offered, kept, imported, settled = (made_up_id("run", label) for label in ("offered", "kept", "imported", "settled"))
    story.with_run(offered).with_run(kept, claimable=False).with_imported_run(imported).with_run(settled)
    story.tell(part("run.cancelled", run_id=settled))
    for run_id, code in {
        kept: "runtime.run_unavailable",
        imported: "runtime.run_unavailable",
        settled: "runtime.already_settled",
        made_up_id("run", "unknown"): "resource.not_found",
    }.items():
        assert story.refusal(story.claim_parts(run_id=run_id), kind=Kind.CLAIM, by=WORKER) == code
    story.claim(run_id=offered)


@pytest.mark.parametrize("lease_ms", [-1, 0, 999, 3_600_001])
def test_a_lease_is_neither_a_blink_nor_an_age(lease_ms: int) -> None:
    story = Story().created().with_run()
    assert story.refusal(story.claim_parts(), kind=Kind.CLAIM, by=WORKER, lease_ms=lease_ms) == "request.invalid"


def test_a_claim_says_nothing_that_only_the_authority_knows() -> None:
    story = Story().created().with_run()
    for fields, code in (
        ({"attempt_generation": 2}, "runtime.attempt_fenced"),
        ({"native_task_id": made_up_id("task")}, "request.invalid"),
    ):
        assert story.refusal(part("attempt.started", run_id=RUN, **fields), kind=Kind.CLAIM, by=WORKER) == code


class TestALapsedLease:
    def test_of_an_attempt_that_was_never_ready_goes_to_the_next_claim(self) -> None:
        story = Story()
        first = story.working()
        story.now += 31 * SECOND
        second = story.claim(by=OTHER, label="2")
        assert second.generation == first.generation + 1
        assert story.types[-2:] == ["attempt.failed", "attempt.started"]
        failed = story.events[-2]
        assert (failed.attempt_generation, failed.native_task_id) == (1, first.native_task_id)
        assert isinstance(failed.attributes, AttemptAttributes)
        assert failed.attributes.reason == "lease_lapsed"
        assert story.run().status == "running"
        assert story.refusal(MESSAGE, by=WORKER, report=story.report(first)) == "runtime.attempt_fenced"
        story.tell(MESSAGE, by=OTHER, report=story.report(second))

    def test_lasts_to_its_last_moment(self) -> None:
        story = Story()
        grant = story.working()
        story.now = grant.lease_expires_at
        story.tell(MESSAGE, by=WORKER, report=story.report(grant))
        story.now += 1
        assert story.refusal(MESSAGE, by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"

    def test_is_not_revived_by_a_renewal(self) -> None:
        story = Story()
        grant = story.working()
        story.now += 31 * SECOND
        assert story.refusal(kind=Kind.RENEW, by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"

    def test_of_an_attempt_that_was_ready_is_replaced_on_evidence_only(self) -> None:
        story = Story()
        grant = story.working()
        story.tell(part("attempt.ready", run_id=RUN), by=WORKER, report=story.report(grant))
        story.now += 31 * SECOND
        answer = story.decide(story.command(story.claim_parts("2"), kind=Kind.CLAIM, by=OTHER, lease_ms=30_000))
        assert isinstance(answer, Rejected)
        assert answer.code == "runtime.replacement_unavailable"
        assert answer.detail.endswith(
            "; POST .../replace takes it, with harness_revision, environment_revision, replaces and frontier_sequence"
        )

    def test_is_lengthened_once_after_a_takeover(self) -> None:
        """Renewals could not be decided while nobody held the partition."""
        story = Story()
        grant = story.working()
        story.now += 60 * SECOND
        story.took_over_at = story.now
        assert story.refusal(story.claim_parts("2"), kind=Kind.CLAIM, by=OTHER) == "runtime.attempt_not_claimable"
        renewed = story.tell(kind=Kind.RENEW, by=WORKER, report=story.report(grant)).grant
        assert renewed is not None
        assert renewed.lease_expires_at == story.now + 30 * SECOND
        story.now += 31 * SECOND
        story.claim(by=OTHER, label="2")


class TestAFailedAttempt:
    def test_that_was_never_ready_is_replaced_freely(self) -> None:
        story = Story()
        grant = story.working()
        story.tell(part("attempt.failed", AttemptAttributes(reason="no_sandbox"), run_id=RUN), by=WORKER, report=story.report(grant))
        assert story.run().status == "running"
        assert story.claim(by=OTHER, label="2").generation == 2
        assert story.types.count("attempt.failed") == 1
        assert story.types.count("run.started") == 1

    def test_that_was_ready_is_replaced_on_evidence_only(self) -> None:
        story = Story()
        grant = story.working()
        ready, failed = part("attempt.ready", run_id=RUN), part("attempt.failed", run_id=RUN)
        story.tell(ready, failed, by=WORKER, report=story.report(grant))
        assert story.refusal(story.claim_parts("2"), kind=Kind.CLAIM, by=OTHER) == "runtime.replacement_unavailable"

    def test_reports_no_more(self) -> None:
        story = Story()
        grant = story.working()
        story.tell(part("attempt.failed", run_id=RUN), by=WORKER, report=story.report(grant))
        for event_type in ("attempt.ready", "attempt.failed", "run.completed", "message.appended"):
            assert story.refusal(part(event_type, run_id=RUN), by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"
        assert story.refusal(kind=Kind.RENEW, by=WORKER, report=story.report(grant)) == "runtime.attempt_fenced"


class TestRenewals:
    def test_extend_the_lease_and_append_nothing(self) -> None:
        story = Story()
        grant = story.working()
        before = story.header
        story.now += 20 * SECOND
        decision = story.tell(kind=Kind.RENEW, by=WORKER, report=story.report(grant), lease_ms=60_000)
        assert decision.drafts == ()
        assert set(decision.changed) == {("attempt", RUN)}
        assert story.header == before
        assert decision.grant is not None
        assert decision.grant.lease_expires_at == story.attempt().lease_expires_at == story.now + 60 * SECOND

    def test_need_no_run_position_but_all_else(self) -> None:
        story = Story()
        grant = story.working()
        report = structs.replace(story.report(grant), expected_run_sequence=None)
        story.tell(kind=Kind.RENEW, by=WORKER, report=report)
        for changes in ({"generation": 2}, {"native_task_id": made_up_id("task", "old")}):
            assert story.refusal(kind=Kind.RENEW, by=WORKER, report=structs.replace(report, **changes)) == "runtime.attempt_fenced"
        assert story.refusal(kind=Kind.RENEW, by=OTHER, report=report) == "runtime.attempt_fenced"
        assert story.refusal(kind=Kind.RENEW, by=WORKER, report=structs.replace(report, native_task_id=None)) == "request.invalid"

    def test_end_with_the_run(self) -> None:
        story = Story()
        grant = story.working()
        story.tell(part("run.completed", RunAttributes(outcome="done"), run_id=RUN), by=WORKER, report=story.report(grant))
        assert story.refusal(kind=Kind.RENEW, by=WORKER, report=story.report(grant)) == "runtime.already_settled"


def test_a_refused_claim_leaves_the_lapsed_attempt_as_it_was() -> None:
    story = Story()
    story.working()
    story.now += 31 * SECOND
    before = dict(story.items.items)
    decision = story.decide(story.command(part("attempt.started", run_id=RUN, attempt_generation=9), kind=Kind.CLAIM, by=OTHER))
    assert isinstance(decision, Rejected)
    assert story.items.items == before
