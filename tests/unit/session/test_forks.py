"""Forks by reference: what the source tells, the command that begins the child, and what the child judges of its ancestors."""

import pytest
from msgspec import structs

from streams.session import chain
from streams.session.commands import Command, Kind
from streams.session.days import moment
from streams.session.decide import AUTHORITY, Decision, decide
from streams.session.events import CheckpointAttributes, Content, Draft, KeyReference, Link, SessionAttributes
from streams.session.ids import derive_event_id, derive_from_command
from streams.session.limits import ANCESTORS_MAX
from streams.session.outcomes import Rejected, Unavailable
from streams.session.rules.forks import NEVER
from tests.support.examples import made_up_id
from tests.support.recovering import (
    DAY,
    EXACT,
    born,
    checkpoint,
    claim,
    erase,
    fork,
    fork_part,
    history,
    leave_checkpoint,
    lineage,
    native,
    only,
    recovery,
    sent,
)
from tests.support.story import OTHER, PERSON, SECOND, SESSION, SUBJECT, WORKSPACE, Story, part, sealed

CKPT = made_up_id("ckpt")


def talked(days: int = 30) -> Story:
    story = Story().created(days=days)
    story.tell(*[part("message.appended", content=sealed(story.now + (days - 30) * DAY)) for _ in range(2)])
    return story


def with_checkpoint(days: int = 30, **more: object) -> Story:
    """Content at 2 and 3, a Run, a checkpoint at 6 that the event 7 tells of."""
    story = talked(days).with_run()
    leave_checkpoint(story, story.claim(), **{**native(), **more})
    return story


def refused(story: Story, *parts: Draft, **more: object) -> Rejected:
    """Refused: nothing is told, nothing is sent, nothing has changed."""
    before, events = dict(story.items.items), len(story.events)
    decision = story.decide(story.command(*parts, kind=Kind.FORK, **more))  # type: ignore[arg-type]
    assert isinstance(decision, Rejected), decision
    assert (story.items.items, len(story.events)) == (before, events)
    return decision


class TestAtAnEvent:
    def test_the_source_tells_of_its_child(self) -> None:
        story = talked()
        decision = story.tell(fork_part(story, at=2), kind=Kind.FORK)
        (forked,) = decision.drafts
        assert list(decision.origins) == [AUTHORITY]
        assert (forked.type, decision.first_sequence) == ("session.forked", 4)
        assert forked.attributes == SessionAttributes(
            fork_id=made_up_id("fork", SESSION), child_session_id=derive_from_command("sess", forked.command_id, 0), through_sequence=2,
            through_event_id=story.events[1].event_id, source_hash=story.events[1].hash.hex(),
        )  # fmt: skip

    def test_the_child_begins_at_one_and_knows_whence_it_comes(self) -> None:
        story = talked()
        child = fork(story, at=2)
        assert (child.types, child.header.sequence) == (["session.created"], 1)
        found = lineage(child)
        assert (found.source_session_id, found.through_sequence, found.depth) == (SESSION, 2, 1)
        assert (found.through_event_id, found.source_hash) == (story.events[1].event_id, story.events[1].hash.hex())
        assert found.fork_id == only(story, "session.forked").attributes.fork_id  # type: ignore[union-attr]
        assert [(link.relation, link.id) for link in child.events[0].links] == [("parent_session", SESSION)]

    def test_comes_without_disk_and_native_state_even_where_a_checkpoint_is_fresh(self) -> None:
        child = fork(with_checkpoint())
        assert history(child).checkpoint_id is None
        child.with_run()
        found = recovery(claim(child, **EXACT))
        assert (found.mode, found.reason, found.complete) == ("event_log_rebuild", "no_checkpoint", True)
        assert (found.history, found.files, found.native_continuation) == (True, False, False)

    def test_goes_on_where_the_checkpoint_of_its_prefix_has_expired(self) -> None:
        story = with_checkpoint(days=90)
        story.now += 31 * DAY
        assert refused(story, fork_part(story, checkpoint_id=CKPT)).code == "runtime.checkpoint_expired"
        assert fork(story, at=6).types == ["session.created"]

    def test_needs_its_whole_prefix_and_names_the_first_position_that_it_lacks(self) -> None:
        story = talked()
        story.tell(part("message.appended", content=Content("omitted")))
        fork(story, at=3, label="before it")
        answer = refused(story, fork_part(story, at=4))
        assert (answer.code, answer.missing) == ("runtime.session_history_unavailable", ("4-4 content.omitted",))
        story.now += 40 * DAY
        answer = refused(story, fork_part(story, at=3))
        assert answer.missing == ("2-3 content.expired",)
        assert answer.detail == "first unavailable: 2-3 content.expired"

    def test_needs_nothing_behind_it(self) -> None:
        story = Story().created()
        story.tell(part("message.appended"), part("message.appended", content=Content("omitted")))
        fork(story, at=2)
        erase(story)
        fork(story, at=2, label="again")
        assert refused(story, fork_part(story, at=3, label="3")).missing == ("3-3 content.erased",)

    def test_is_told_of_once_however_late_its_command_comes_again(self) -> None:
        """The authority has forgotten by then what it answered to the first."""
        story = talked()
        command = story.command(fork_part(story, at=2), kind=Kind.FORK)
        assert isinstance(story.decide(command), Decision)
        before, events = dict(story.items.items), len(story.events)
        for days in (0, 2, 400):
            again = structs.replace(command, not_after=story.now + days * DAY)
            answer = decide(story.items, again, story.now + days * DAY, story.commands)
            assert isinstance(answer, Rejected)
            assert (answer.code, answer.detail) == ("runtime.already_exists", made_up_id("fork", SESSION))
        assert (story.items.items, len(story.events)) == (before, events)
        fork(story, at=2, label="another")


class TestByCheckpoint:
    def test_disk_and_native_state_come_along(self) -> None:
        story = with_checkpoint()
        child = fork(story, checkpoint_id=CKPT)
        assert child.types == ["session.created", "checkpoint.created"]
        child.with_run()
        found = recovery(claim(child, **EXACT))
        assert (found.mode, found.checkpoint_id, found.checkpoint_session_id) == ("checkpoint_restore", CKPT, SESSION)
        assert (found.history, found.files, found.native_continuation) == (True, True, True)
        assert found.through_sequence == 6

    def test_it_is_the_same_checkpoint_with_the_same_end(self) -> None:
        story = with_checkpoint()
        story.now += DAY
        child = fork(story, checkpoint_id=CKPT)
        source, brought = checkpoint(story), checkpoint(child)
        assert brought.expires_at == source.expires_at
        same = ("checkpoint_id", "origin_session_id", "through_sequence", "through_event_id", "through_hash", "continuation_kind")
        assert [getattr(brought, name) for name in same] == [getattr(source, name) for name in same]
        child.now = source.expires_at
        child.with_run()
        assert recovery(claim(child, incomplete_ok=True)).reason == "checkpoint_expired"

    def test_the_source_tells_that_it_was_consumed(self) -> None:
        story = with_checkpoint()
        fork(story, checkpoint_id=CKPT)
        forked, consumed = story.events[-2:]
        assert (forked.type, consumed.type, consumed.run_id) == ("session.forked", "checkpoint.consumed", None)
        assert isinstance(consumed.attributes, CheckpointAttributes)
        assert consumed.attributes.fork_id == made_up_id("fork", SESSION)
        assert consumed.links == (Link("cause", forked.event_id), Link("checkpoint", CKPT))

    def test_native_material_needs_no_readable_history(self) -> None:
        story = Story().created()
        story.tell(part("message.appended", content=Content("omitted")))
        story.with_run()
        claim(story, incomplete_ok=True)
        leave_checkpoint(story, story.claim(label="9"), **native())
        child = a_run(fork(story, checkpoint_id=CKPT))
        found = recovery(claim(child, OTHER, run_id=made_up_id("run", child.session_id), **EXACT))
        assert (found.mode, found.complete, found.history) == ("checkpoint_restore", True, False)

    def test_a_fresh_one_that_is_rebuilt_from_the_log_needs_its_history(self) -> None:
        story = Story().created()
        story.tell(part("message.appended", content=Content("omitted")))
        story.with_run()
        claim(story, incomplete_ok=True)
        leave_checkpoint(story, story.claim(label="9"))
        answer = refused(story, fork_part(story, checkpoint_id=CKPT))
        assert (answer.code, answer.missing) == ("runtime.session_history_unavailable", ("2-2 content.omitted",))

    def test_an_expired_or_erased_one_is_never_taken_for_a_fork_of_the_log(self) -> None:
        story = with_checkpoint(days=90)
        story.now = checkpoint(story).expires_at
        answer = refused(story, fork_part(story, checkpoint_id=CKPT))
        assert (answer.code, answer.detail) == (
            "runtime.checkpoint_expired", f"{CKPT}: checkpoint_expired, expires_at {moment(checkpoint(story).expires_at)}",
        )  # fmt: skip
        story = with_checkpoint()
        erase(story)
        answer = refused(story, fork_part(story, checkpoint_id=CKPT))
        assert (answer.code, answer.detail.partition(": ")[2].split(",")[0]) == ("runtime.checkpoint_expired", "checkpoint_erased")

    def test_an_older_one_may_be_named_while_it_is_fresh(self) -> None:
        story = with_checkpoint()
        grant = story.claim()
        leave_checkpoint(story, grant, "newer")
        assert history(fork(story, checkpoint_id=CKPT)).checkpoint_id == CKPT

    def test_an_unknown_one_is_not_found(self) -> None:
        story = with_checkpoint()
        answer = refused(story, fork_part(story, at=6, checkpoint_id=made_up_id("ckpt", "unknown")))
        assert answer.code == "resource.not_found"


class TestTheBoundary:
    @pytest.mark.parametrize("through", [-1, 0, 4, 10**12])
    def test_is_a_position_of_the_session(self, through: int) -> None:
        story = talked()
        answer = refused(story, fork_part(story, through_sequence=through))
        assert (answer.code, answer.actual_sequence) == ("runtime.checkpoint_boundary", 3)

    def test_is_that_of_the_checkpoint(self) -> None:
        story = with_checkpoint()
        for at in (5, 7):
            assert refused(story, fork_part(story, at=at, checkpoint_id=CKPT)).code == "runtime.checkpoint_boundary"
        for wrong in ({"through_event_id": story.events[0].event_id}, {"source_hash": "5" * 64}):
            assert refused(story, fork_part(story, checkpoint_id=CKPT, **wrong)).code == "runtime.checkpoint_boundary"

    @pytest.mark.parametrize("name", ["fork_id", "through_sequence", "through_event_id", "source_hash"])
    def test_is_told_whole(self, name: str) -> None:
        story = talked()
        answer = refused(story, fork_part(story, **{name: None}))
        assert (answer.code, answer.detail) == ("request.invalid", f"draft 0: attributes.{name}")


class TestAForkIsACommandOfItsOwn:
    def test_and_is_no_draft_among_others(self) -> None:
        story = talked()
        assert story.refusal(fork_part(story)) == "request.invalid"
        assert story.refusal(fork_part(story), importing=True) == "request.invalid"
        assert refused(story, fork_part(story), fork_part(story)).code == "request.invalid"
        assert refused(story, part("message.appended")).code == "request.invalid"
        assert refused(story).code == "request.invalid"

    def test_of_the_session_and_no_run(self) -> None:
        story = talked().with_run()
        grant = story.claim()
        draft = fork_part(story)
        for fields in ({"run_id": made_up_id("run")}, {"attempt_generation": 1}, {"native_task_id": grant.native_task_id}):
            told = part("session.forked", draft.attributes, **fields)
            assert refused(story, told).code == "request.invalid"
        assert refused(story, draft, report=story.report(grant)).code == "request.invalid"

    def test_of_a_session_that_is_there_and_open(self) -> None:
        story = talked()
        draft = fork_part(story)
        assert Story().refusal(draft, kind=Kind.FORK) == "resource.not_found"
        story.tell(part("session.closed"))
        assert refused(story, draft).code == "runtime.session_closed"

    def test_and_its_content_is_judged_as_any(self) -> None:
        story = talked()
        attributes = fork_part(story).attributes
        wrong_day = Content("sealed", KeyReference(SUBJECT, SESSION, "2031-02-31"), bytes(64), bytes(32))
        assert refused(story, part("session.forked", attributes, content=wrong_day)).code == "request.invalid"
        story.tell(part("session.forked", attributes, content=sealed(story.now)), kind=Kind.FORK)
        assert story.header.content_last == 4


class TestTheCommandThatBeginsTheChild:
    def test_is_derived_to_the_last_field(self) -> None:
        story = with_checkpoint()
        command = story.command(fork_part(story, checkpoint_id=CKPT), kind=Kind.FORK)
        decision = story.decide(command)
        assert isinstance(decision, Decision)
        command_id = derive_from_command("cmd", command.command_id, 0)
        child_id = derive_from_command("sess", command.command_id, 0)
        boundary, left = story.events[5], checkpoint(story)
        created = SessionAttributes(
            origin="live", policy_mode="standard", content_window_days=30, checkpoint_window_s=2_592_000,
            fork_id=made_up_id("fork", SESSION), source_session_id=SESSION, checkpoint_id=CKPT, through_sequence=6,
            through_event_id=boundary.event_id, source_hash=boundary.hash.hex(), inherited=f"{SESSION}=2026-02-01:2-3", depth=1,
        )  # fmt: skip
        brought = CheckpointAttributes(
            checkpoint_id=CKPT, origin_session_id=SESSION, through_sequence=6, through_event_id=boundary.event_id,
            through_hash=boundary.hash.hex(), harness_revision=left.harness_revision, environment_revision=left.environment_revision,
            continuation_kind="native", snapshot_kind="stored", expires_at=left.expires_at, fork_id=made_up_id("fork", SESSION),
        )  # fmt: skip
        place = {"session_id": child_id, "workspace_id": WORKSPACE, "subject_id": SUBJECT, "command_id": command_id}
        assert sent(decision) == Command(
            command_id=command_id, session_id=child_id, workspace_id=WORKSPACE, kind=Kind.CHILD, principal_id=PERSON,
            request_digest=command.request_digest, issued_at=story.now, not_after=NEVER,
            drafts=(
                Draft(
                    event_id=derive_event_id(command_id, 0), type="session.created", attributes=created,
                    links=(Link("parent_session", SESSION),), **place,
                ),
                Draft(event_id=derive_event_id(command_id, 1), type="checkpoint.created", attributes=brought, **place),
            ),
        )  # fmt: skip

    def test_hands_on_what_the_source_has_pinned(self) -> None:
        story = Story()
        pinned = SessionAttributes(origin="live", policy_mode="zdr", content_window_days=7, checkpoint_window_s=3600)
        story.tell(part("session.created", pinned, subject_id=SUBJECT))
        header = fork(story).header
        assert (header.policy_mode, header.content_window_days, header.checkpoint_window_s) == ("zdr", 7, 3600)
        assert (header.subject_id, header.workspace_id, header.origin) == (SUBJECT, WORKSPACE, "live")

    def test_pins_what_is_stricter_of_the_sources_policy_and_that_of_now(self) -> None:
        """A policy change holds for sessions created after it: a fork is one."""
        story = talked()
        for number, (now, pinned) in enumerate(
            (
                ({"policy_mode": "zdr"}, ("zdr", 30, 2_592_000)),
                ({"content_window_days": 7, "checkpoint_window_s": 60}, ("standard", 7, 60)),
                ({"policy_mode": "standard", "content_window_days": 90, "checkpoint_window_s": 2_592_000}, ("standard", 30, 2_592_000)),
            )
        ):
            header = born(story, sent(story.tell(fork_part(story, label=number, **now), kind=Kind.FORK))).header
            assert (header.policy_mode, header.content_window_days, header.checkpoint_window_s) == pinned

    def test_brings_no_disk_into_a_session_that_keeps_none(self) -> None:
        story = with_checkpoint()
        answer = refused(story, fork_part(story, checkpoint_id=CKPT, policy_mode="zdr"))
        assert (answer.code, answer.detail.partition(": ")[2].split(",")[0]) == ("runtime.checkpoint_expired", "zero_data_retention")
        fork(story, checkpoint_id=CKPT)

    def test_never_expires(self) -> None:
        story = talked()
        command = sent(story.tell(fork_part(story), kind=Kind.FORK))
        story.now += 365 * DAY
        assert born(story, command).header.sequence == 1

    def test_begins_it_once(self) -> None:
        story = talked()
        command = sent(story.tell(fork_part(story), kind=Kind.FORK))
        child = born(story, command)
        before = dict(child.items.items)
        answer = child.decide(command)
        assert isinstance(answer, Rejected)
        assert answer.code == "runtime.already_exists"
        assert child.items.items == before

    def test_is_believed_of_nobody_that_leaves_something_out(self) -> None:
        story = with_checkpoint()
        command = sent(story.tell(fork_part(story, checkpoint_id=CKPT), kind=Kind.FORK))
        created, brought = command.drafts

        def without(draft: Draft, name: str) -> Draft:
            return structs.replace(draft, attributes=structs.replace(draft.attributes, **{name: None}))  # type: ignore[type-var]

        broken = [
            (),
            (brought,),
            (created, brought, brought),
            *[(without(created, name), brought) for name in ("source_session_id", "fork_id", "through_sequence", "inherited", "depth")],
            *[(created, without(brought, name)) for name in ("origin_session_id", "expires_at", "fork_id", "through_sequence")],
            (created, structs.replace(brought, run_id=made_up_id("run"))),
        ]
        for drafts in broken:
            answer = Story(story.now, command.session_id).decide(structs.replace(command, drafts=drafts))
            assert isinstance(answer, Rejected), drafts
            assert answer.code in {"request.invalid", "resource.not_found"}


class TestTheChain:
    def test_of_a_child_is_its_own_and_covers_where_it_was_forked(self) -> None:
        """Its attributes are hashed: the source, the position, the source's hash there."""
        story = talked()
        child = fork(story, at=2)
        first = child.events[0]
        assert first.previous_hash == chain.genesis(child.session_id)
        assert isinstance(first.attributes, SessionAttributes)
        assert (first.attributes.source_session_id, first.attributes.through_sequence) == (SESSION, 2)
        assert first.attributes.source_hash == story.events[1].hash.hex()

    def test_of_a_source_goes_on_over_what_it_tells_of_its_child(self) -> None:
        story = talked()
        fork(story)
        story.tell(part("message.appended"))
        assert [event.sequence for event in story.events] == [1, 2, 3, 4, 5]
        assert story.events[4].previous_hash == story.events[3].hash


def a_run(story: Story) -> Story:
    return story.with_run(made_up_id("run", story.session_id))


def unavailable(story: Story) -> tuple[Unavailable, ...]:
    return recovery(
        claim(story, OTHER, label=str(story.commands), run_id=made_up_id("run", story.session_id), incomplete_ok=True, **EXACT)
    ).unavailable


class TestAncestors:
    def test_expire_in_the_child_as_in_the_source(self) -> None:
        story = talked()
        child = a_run(fork(story, at=3))
        child.now += 30 * DAY
        assert unavailable(child) == ()
        child.now += 2 * DAY
        assert unavailable(child) == (Unavailable(2, 3, "content.expired", SESSION),)
        answer = claim(child.with_run(made_up_id("run", "strict")), OTHER, run_id=made_up_id("run", "strict"))
        assert isinstance(answer, Rejected)
        assert answer.missing == (f"{SESSION} 2-3 content.expired",)

    def test_expire_in_a_grandchild_each_in_its_own_time(self) -> None:
        story = talked()
        child = fork(story, at=2)
        child.now += 10 * DAY
        child.tell(part("message.appended", content=sealed(child.now, session_id=child.session_id)))
        grandchild = a_run(fork(child))
        assert lineage(grandchild).depth == 2
        grandchild.now += 25 * DAY
        assert unavailable(grandchild) == (Unavailable(2, 2, "content.expired", SESSION),)
        grandchild.now += 10 * DAY
        assert unavailable(grandchild) == (
            Unavailable(2, 2, "content.expired", SESSION),
            Unavailable(2, 2, "content.expired", child.session_id),
        )
        answer = refused(grandchild, fork_part(grandchild))
        assert (answer.code, answer.missing[0]) == ("runtime.session_history_unavailable", f"{SESSION} 2-2 content.expired")

    def test_have_nothing_behind_the_position_of_the_fork(self) -> None:
        story = talked()
        assert lineage(fork(story, at=1)).inherited == ""
        assert lineage(fork(story, at=2, label="2")).inherited == f"{SESSION}=2026-02-01:2-2"

    def test_whose_content_is_erased_are_erased_in_the_child_once_it_is_told(self) -> None:
        story = with_checkpoint()
        child = a_run(fork(story, checkpoint_id=CKPT))
        erase(child)
        found = recovery(claim(child, OTHER, run_id=made_up_id("run", child.session_id), incomplete_ok=True))
        assert (found.mode, found.reason) == ("event_log_rebuild", "checkpoint_erased")
        assert found.unavailable == (Unavailable(2, 3, "content.erased", SESSION),)
        assert refused(child, fork_part(child)).missing == (f"{SESSION} 2-3 content.erased",)
        assert refused(child, fork_part(child, checkpoint_id=CKPT)).code == "runtime.checkpoint_expired"

    def test_whose_content_was_erased_before_the_fork_is_erased_in_it_from_the_beginning(self) -> None:
        story = talked()
        erase(story)
        story.with_run()
        claim(story, incomplete_ok=True)
        leave_checkpoint(story, story.claim(label="9"), **native())
        child = a_run(fork(story, checkpoint_id=CKPT))
        assert lineage(child).inherited == f"{SESSION}=erased:2-3"
        assert unavailable(child) == ()  # the native state stands for them
        grandchild = a_run(fork(child, checkpoint_id=CKPT))
        erase(child)
        assert unavailable(grandchild) == ()
        erase(grandchild)
        grandchild.now += 31 * SECOND
        assert unavailable(grandchild) == (Unavailable(2, 3, "content.erased", SESSION),)

    def test_are_bounded_in_number(self) -> None:
        story = talked()
        for _ in range(ANCESTORS_MAX):
            story = fork(story)
        assert lineage(story).depth == ANCESTORS_MAX
        answer = refused(story, fork_part(story))
        assert (answer.code, answer.detail) == ("runtime.limit_reached", f"{story.session_id} has {ANCESTORS_MAX} ancestors")

    def test_lend_their_checkpoint_to_a_grandchild_at_the_position_where_the_child_tells_of_it(self) -> None:
        story = with_checkpoint()
        child = fork(story, checkpoint_id=CKPT)
        child.tell(part("message.appended"))
        assert refused(child, fork_part(child, at=3, checkpoint_id=CKPT)).code == "runtime.checkpoint_boundary"
        grandchild = a_run(fork(child, checkpoint_id=CKPT))
        assert lineage(grandchild).through_sequence == 2
        assert checkpoint(grandchild).expires_at == checkpoint(story).expires_at
        assert checkpoint(grandchild).origin_session_id == SESSION

    def test_do_not_limit_the_boundary_of_the_childs_own_checkpoints(self) -> None:
        child = a_run(fork(with_checkpoint(), checkpoint_id=CKPT))
        grant = child.claim(run_id=made_up_id("run", child.session_id))
        own = leave_checkpoint(child, grant, "own", through=1)
        assert (own.through_sequence, own.origin_session_id) == (1, child.session_id)
        assert history(child).checkpoint_id == own.checkpoint_id
