"""What the custodian asks for: the authority itself judges a lease, and marks what is erased."""

from streams.session.commands import Kind, Report
from streams.session.decide import Decision
from streams.session.events import AttemptAttributes, EffectAttributes, SessionAttributes
from streams.session.outcomes import Rejected, Unavailable
from tests.support.examples import made_up_id
from tests.support.recovering import claim, erase, fork, history, leave_checkpoint, lineage, native, recovery
from tests.support.story import OTHER, PERSON, SECOND, WORKER, Story, part, sealed

RUN = made_up_id("run")


def lapse(story: Story, generation: int = 1, run_id: str = RUN) -> Decision | Rejected:
    before = dict(story.items.items)
    decision = story.decide(story.command(kind=Kind.LAPSE, by=PERSON, report=Report(run_id, generation)))
    if isinstance(decision, Rejected) or not decision.drafts:
        assert story.items.items == before
    return decision


def deadline(answer: Decision | Rejected) -> int:
    assert isinstance(answer, Decision), answer
    assert (answer.drafts, answer.changed, answer.first_sequence) == ((), {}, 0)
    assert answer.grant is not None
    return answer.grant.lease_expires_at


class TestALapse:
    def test_fails_an_attempt_whose_lease_is_over(self) -> None:
        story = Story()
        grant = story.working()
        story.now = grant.lease_expires_at + 1
        decision = lapse(story)
        assert isinstance(decision, Decision)
        (failed,) = decision.drafts
        assert (failed.type, failed.run_id, failed.attempt_generation) == ("attempt.failed", RUN, 1)
        assert failed.native_task_id == grant.native_task_id
        assert isinstance(failed.attributes, AttemptAttributes)
        assert (failed.attributes.reason, failed.attributes.principal_id) == ("lease_lapsed", WORKER)
        assert decision.grant is None
        assert (story.attempt().status, story.run().status) == ("failed", "running")

    def test_tells_the_deadline_of_one_that_has_not(self) -> None:
        story = Story()
        grant = story.working()
        assert deadline(lapse(story)) == grant.lease_expires_at
        story.now = grant.lease_expires_at
        assert deadline(lapse(story)) == grant.lease_expires_at

    def test_tells_the_deadline_that_a_renewal_has_moved(self) -> None:
        story = Story()
        grant = story.working()
        story.now += 20 * SECOND
        story.tell(kind=Kind.RENEW, by=WORKER, report=story.report(grant), lease_ms=60_000)
        story.now += 20 * SECOND
        assert deadline(lapse(story)) == story.now + 40 * SECOND

    def test_counts_the_lease_once_more_after_a_takeover(self) -> None:
        story = Story()
        story.working()
        story.now += 31 * SECOND
        story.took_over_at = story.now
        assert deadline(lapse(story)) == story.now + 30 * SECOND
        story.now += 30 * SECOND
        assert deadline(lapse(story)) == story.now
        story.now += 1
        assert isinstance(lapse(story), Decision)
        assert story.types[-1] == "attempt.failed"

    def test_leaves_the_effects_of_the_dead_worker_indeterminate(self) -> None:
        story = Story()
        grant = story.working()
        effect = EffectAttributes(effect_id=made_up_id("eff"), provider="mail", request_digest="sha256:" + "1" * 64)
        story.tell(part("effect.dispatched", effect, run_id=RUN), by=WORKER, report=story.report(grant))
        story.now += 31 * SECOND
        lapse(story)
        assert story.types[-2:] == ["attempt.failed", "effect.indeterminate"]

    def test_opens_the_run_to_the_next_claim_or_to_a_replacement(self) -> None:
        story = Story()
        story.working()
        story.now += 31 * SECOND
        lapse(story)
        assert story.claim(OTHER, "2").generation == 2
        assert story.types.count("attempt.failed") == 1

    def test_of_an_attempt_that_is_no_more_is_fenced(self) -> None:
        story = Story()
        story.working()
        story.now += 31 * SECOND
        lapse(story)
        for generation in (0, 1, 2):
            answer = lapse(story, generation)
            assert isinstance(answer, Rejected)
            assert (answer.code, answer.detail) == ("runtime.attempt_fenced", f"{RUN} is at generation 1")
        story.claim(OTHER, "2")
        answer = lapse(story)
        assert isinstance(answer, Rejected)
        assert answer.code == "runtime.attempt_fenced"

    def test_of_a_run_that_is_over_says_so(self) -> None:
        story = Story()
        story.working()
        story.tell(part("run.cancelled", run_id=RUN))
        story.now += 31 * SECOND
        answer = lapse(story)
        assert isinstance(answer, Rejected)
        assert answer.code == "runtime.already_settled"

    def test_of_what_has_no_lease_is_refused(self) -> None:
        story = Story().created().with_imported_run().with_run(made_up_id("run", "offered"))
        for run_id, generation, code in (
            (RUN, 1, "runtime.run_unavailable"),
            (made_up_id("run", "offered"), 0, "runtime.attempt_fenced"),
            (made_up_id("run", "none"), 1, "resource.not_found"),
        ):
            answer = lapse(story, generation, run_id)
            assert isinstance(answer, Rejected)
            assert answer.code == code

    def test_names_its_attempt_and_brings_no_drafts(self) -> None:
        story = Story()
        story.working()
        assert story.refusal(kind=Kind.LAPSE) == "request.invalid"
        assert story.refusal(part("message.appended"), kind=Kind.LAPSE, report=Report(RUN, 1)) == "request.invalid"

    def test_of_a_closed_session_finds_it_closed(self) -> None:
        story = Story()
        story.working()
        story.tell(part("session.closed"))
        story.now += 31 * SECOND
        answer = lapse(story)
        assert isinstance(answer, Rejected)
        assert answer.code == "runtime.session_closed"


class TestAnErasure:
    def test_tells_nothing_in_the_log_and_moves_no_position(self) -> None:
        story = Story()
        story.working()
        before, events = story.header, len(story.events)
        decision = erase(story)
        assert (decision.drafts, decision.grant, decision.first_sequence, decision.sent) == ((), None, 0, ())
        assert set(decision.changed) == {("history", "")}
        assert (story.header, len(story.events)) == (before, events)
        assert history(story).erased_through == before.sequence

    def test_reaches_a_closed_session(self) -> None:
        story = Story().created()
        story.tell(part("message.appended", content=sealed()), part("session.closed"))
        erase(story)
        assert history(story).erased_through == 3

    def test_is_repeatable_and_goes_only_forward(self) -> None:
        story = Story().created()
        erase(story)
        once = dict(story.items.items)
        erase(story)
        assert story.items.items == once
        story.tell(part("message.appended"))
        erase(story)
        assert history(story).erased_through == 2

    def test_takes_the_checkpoints_before_it_and_keeps_what_came_after(self) -> None:
        story = Story()
        grant = story.working()
        story.tell(part("message.appended", content=sealed()))
        leave_checkpoint(story, grant, **native())
        erase(story)
        story.now += 31 * SECOND
        found = recovery(claim(story, OTHER, incomplete_ok=True))
        assert (found.reason, found.unavailable) == ("checkpoint_erased", (Unavailable(5, 5, "content.erased"),))
        story.tell(part("message.appended", content=sealed()))
        assert recovery(claim(story, OTHER)).unavailable == (Unavailable(5, 6, "content.erased"),)

    def test_of_a_fork_takes_what_it_has_of_its_ancestors(self) -> None:
        story = Story().created()
        story.tell(part("message.appended", content=sealed()))
        child = fork(story)
        decision = erase(child)
        assert set(decision.changed) == {("history", ""), ("lineage", "")}
        assert lineage(child).erased
        assert lineage(child).source_session_id == story.session_id

    def test_of_what_is_not_there_is_refused(self) -> None:
        assert Story().refusal(kind=Kind.ERASE) == "resource.not_found"
        story = Story().created()
        assert story.refusal(kind=Kind.ERASE, workspace_id=made_up_id("ws", "other")) == "resource.not_found"
        assert history(story).erased_through == 0

    def test_brings_no_drafts(self) -> None:
        story = Story().created()
        assert story.refusal(part("message.appended"), kind=Kind.ERASE) == "request.invalid"
        assert story.refusal(part("session.closed", SessionAttributes()), kind=Kind.ERASE) == "request.invalid"


def forked_with_content() -> Story:
    story = Story().created()
    story.tell(part("message.appended", content=sealed()))
    return fork(story)


def tell_disinherit(story: Story) -> None:
    story.tell(kind=Kind.DISINHERIT, by=PERSON)


class TestADisinheritance:
    def test_takes_what_a_fork_has_of_its_ancestors_and_leaves_its_own_content(self) -> None:
        child = forked_with_content()
        tell_disinherit(child)
        assert lineage(child).erased
        assert history(child).erased_through == 0
        child.with_run()
        found = recovery(claim(child, OTHER, incomplete_ok=True))
        assert found.unavailable == (Unavailable(2, 2, "content.erased", lineage(child).source_session_id),)

    def test_takes_the_checkpoints_so_far_and_keeps_what_came_after(self) -> None:
        child = forked_with_content()
        grant = child.with_run().claim()
        leave_checkpoint(child, grant, **native())
        tell_disinherit(child)
        child.now += 31 * SECOND
        assert recovery(claim(child, OTHER, incomplete_ok=True)).reason == "checkpoint_erased"

    def test_reaches_a_closed_fork_and_is_repeatable(self) -> None:
        child = forked_with_content()
        child.tell(part("session.closed"))
        tell_disinherit(child)
        once = dict(child.items.items)
        tell_disinherit(child)
        assert child.items.items == once

    def test_of_what_is_no_fork_is_refused(self) -> None:
        assert Story().refusal(kind=Kind.DISINHERIT) == "resource.not_found"
        assert Story().created().refusal(kind=Kind.DISINHERIT) == "request.invalid"
