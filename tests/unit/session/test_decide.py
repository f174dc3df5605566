"""What every command is judged by, whatever it asks."""

import pytest
from msgspec import structs

from streams.session.commands import Kind, Report
from streams.session.decide import AUTHORITY, PLAIN, RULES, decide
from streams.session.events import FREELY_APPENDED, NO_CONTENT, TYPES, Content, MessageAttributes, SessionAttributes, ThreadAttributes
from streams.session.folds import FOLDS
from streams.session.items import DictItems
from streams.session.outcomes import Rejected
from tests.support.examples import made_up_id
from tests.support.story import NOON, SECOND, SUBJECT, WINDOW_DAYS, WORKER, Story, part, sealed

MESSAGE = part("message.appended", MessageAttributes(role="user"))
DAY = 24 * 3600 * SECOND


def test_every_type_has_a_rule_or_is_plain_and_has_a_fold() -> None:
    assert set(FOLDS) == TYPES
    assert set(RULES) | PLAIN == TYPES
    assert PLAIN == FREELY_APPENDED


def test_events_are_numbered_from_one_without_a_gap() -> None:
    story = Story().created()
    story.tell(MESSAGE, MESSAGE)
    decision = story.tell(MESSAGE)
    assert decision.first_sequence == 4
    assert [event.sequence for event in story.events] == [1, 2, 3, 4]
    assert story.header.sequence == 4


def test_drafts_that_come_through_unchanged_name_their_origin() -> None:
    story = Story().created()
    assert list(story.tell(MESSAGE, MESSAGE).origins) == [0, 1]
    story.with_run()
    decision = story.tell(story.claim_parts(), kind=Kind.CLAIM, by=WORKER)
    assert list(decision.origins) == [AUTHORITY, AUTHORITY]


def test_time_of_acceptance_never_decreases() -> None:
    story = Story().created()
    story.now -= SECOND
    assert story.tell(MESSAGE).accepted_at == NOON


def test_a_command_past_its_time_is_refused() -> None:
    story = Story().created()
    assert story.refusal(MESSAGE, not_after=story.now - 1) == "request.expired"
    story.tell(MESSAGE, not_after=story.now)


def test_an_unknown_session_is_not_found() -> None:
    assert Story().refusal(MESSAGE) == "resource.not_found"
    assert Story().refusal(kind=Kind.RENEW, by=WORKER) == "resource.not_found"
    assert Story().refusal(part("attempt.started"), kind=Kind.CLAIM, by=WORKER) == "resource.not_found"


def test_another_workspaces_session_looks_like_none() -> None:
    story = Story().created()
    command = story.command(MESSAGE, workspace_id=made_up_id("ws", "other"))
    theirs, nobodys = story.decide(command), decide(DictItems(), command, story.now, 0)
    assert theirs == nobodys
    assert isinstance(theirs, Rejected)
    assert theirs.code == "resource.not_found"


def test_a_session_is_created_once() -> None:
    assert Story().created().refusal(part("session.created", SessionAttributes(content_window_days=1))) == "runtime.already_exists"


def test_a_session_may_begin_with_more_than_its_creation() -> None:
    story = Story()
    attributes = SessionAttributes(content_window_days=1)
    story.tell(part("session.created", attributes), part("thread.opened", thread_id=made_up_id("sthr")), MESSAGE)
    assert story.types == ["session.created", "thread.opened", "message.appended"]


@pytest.mark.parametrize("days", [None, 0, -1, 36_501])
def test_a_session_without_a_usable_window_is_not_created(days: int | None) -> None:
    assert Story().refusal(part("session.created", SessionAttributes(content_window_days=days))) == "request.invalid"


def test_only_an_importer_creates_an_imported_session() -> None:
    attributes = SessionAttributes(origin="imported", content_window_days=1)
    assert Story().refusal(part("session.created", attributes)) == "request.invalid"
    Story().tell(part("session.created", attributes), importing=True)


def test_a_closed_session_refuses_everything() -> None:
    story = Story()
    grant = story.working()
    story.tell(part("session.closed"))
    assert story.refusal(MESSAGE) == "runtime.session_closed"
    assert story.refusal(part("session.closed")) == "runtime.session_closed"
    assert story.refusal(story.claim_parts("2"), kind=Kind.CLAIM, by=WORKER) == "runtime.session_closed"
    assert story.refusal(kind=Kind.RENEW, by=WORKER, report=story.report(grant)) == "runtime.session_closed"


def test_nothing_follows_the_closing_in_its_own_command() -> None:
    assert Story().created().refusal(part("session.closed"), MESSAGE) == "runtime.session_closed"


def test_an_expected_sequence_must_be_the_actual_one() -> None:
    story = Story().created()
    decision = story.decide(story.command(MESSAGE, expected_sequence=2))
    assert isinstance(decision, Rejected)
    assert (decision.code, decision.actual_sequence) == ("runtime.sequence_conflict", 1)
    story.tell(MESSAGE, expected_sequence=1)


def test_a_new_session_is_expected_at_zero() -> None:
    created = part("session.created", SessionAttributes(content_window_days=1))
    assert Story().refusal(created, expected_sequence=1) == "runtime.sequence_conflict"
    Story().tell(created, expected_sequence=0)


def test_a_command_takes_effect_whole_or_not_at_all() -> None:
    story = Story().created()
    assert story.refusal(MESSAGE, part("turn.completed", turn_id=made_up_id("turn")), MESSAGE) == "resource.not_found"
    assert story.types == ["session.created"]


def test_a_command_needs_what_its_kind_is_about() -> None:
    story = Story().created().with_run()
    assert story.refusal() == "request.invalid"
    assert story.refusal(MESSAGE, kind=Kind.CLAIM) == "request.invalid"
    assert story.refusal(story.claim_parts(), story.claim_parts(), kind=Kind.CLAIM) == "request.invalid"
    assert story.refusal(MESSAGE, kind=Kind.RENEW) == "request.invalid"
    assert story.refusal(kind=Kind.RENEW) == "request.invalid"


@pytest.mark.parametrize(
    "changes",
    [
        {"session_id": made_up_id("sess", "other")},
        {"workspace_id": made_up_id("ws", "other")},
        {"subject_id": made_up_id("subj", "other")},
        {"type": "capsule.exported"},
        {"thread_id": made_up_id("sthr")},
        {"turn_id": made_up_id("turn")},
        {"run_id": made_up_id("run")},
        {"attempt_generation": 1},
        {"native_task_id": made_up_id("task")},
    ],
)
def test_a_draft_that_does_not_belong_here_is_refused(changes: dict[str, object]) -> None:
    assert Story().created().refusal(structs.replace(MESSAGE, **changes)) in {"request.invalid", "resource.not_found"}  # type: ignore[arg-type]


def test_event_ids_follow_from_the_command_and_the_place_in_it() -> None:
    story = Story().created()
    command = story.command(MESSAGE, MESSAGE)
    swapped = structs.replace(command, drafts=(command.drafts[1], command.drafts[0]))
    decision = story.decide(swapped)
    assert isinstance(decision, Rejected)
    assert decision.detail == "draft 0: event_id"
    foreign = structs.replace(command, drafts=(structs.replace(command.drafts[0], command_id=made_up_id("cmd", "x")),))
    assert isinstance(story.decide(foreign), Rejected)


def test_ids_that_would_come_to_stand_in_the_state_are_of_their_kind() -> None:
    story = Story().created()
    assert story.refusal(part("thread.opened", thread_id="sthr_someone")) == "request.invalid"
    assert story.refusal(part("turn.started", turn_id="../../etc")) == "request.invalid"
    assert story.refusal(part("thread.opened", ThreadAttributes(kind="Mia Li"), thread_id=made_up_id("sthr"))) == "request.invalid"


class TestContent:
    def test_sealed_for_the_sessions_subject_is_accepted(self) -> None:
        story = Story().created()
        story.tell(part("message.appended", content=sealed(), subject_id=SUBJECT))
        story.tell(part("message.appended", content=sealed()))

    def test_sealed_for_somebody_else_is_refused(self) -> None:
        story = Story().created()
        assert story.refusal(part("message.appended", content=sealed(subject_id=None))) == "request.invalid"
        assert story.refusal(part("message.appended", content=sealed(subject_id=made_up_id("subj", "x")))) == "request.invalid"
        assert story.refusal(part("message.appended", content=sealed(session_id=made_up_id("sess", "x")))) == "request.invalid"

    def test_of_a_session_without_a_subject_uses_no_subject(self) -> None:
        story = Story().created(subject_id=None)
        story.tell(part("message.appended", content=sealed(subject_id=None)))
        assert story.refusal(part("message.appended", content=sealed())) == "request.invalid"

    def test_torn_is_refused(self) -> None:
        whole = sealed()
        story = Story().created()
        assert story.refusal(part("message.appended", content=Content("sealed", whole.key_reference, None, bytes(32)))) == "request.invalid"
        assert story.refusal(part("message.appended", content=Content("sealed", None, bytes(64), bytes(32)))) == "request.invalid"

    def test_of_the_creation_follows_the_policy_that_it_pins(self) -> None:
        attributes = SessionAttributes(content_window_days=WINDOW_DAYS)
        Story().tell(part("session.created", attributes, subject_id=SUBJECT, content=sealed()))
        assert Story().refusal(part("session.created", attributes, content=sealed())) == "request.invalid"

    def test_never_enters_a_session_that_keeps_none(self) -> None:
        story = Story().created(mode="zdr")
        assert story.refusal(part("message.appended", content=sealed())) == "request.invalid"
        story.tell(part("message.appended", content=Content("omitted")), part("message.appended", content=NO_CONTENT))

    @pytest.mark.parametrize(
        ("days_on", "accepted"),
        [(-1, False), (0, True), (1, True), (2, False)],
    )
    def test_names_a_day_that_ends_in_time(self, days_on: int, accepted: bool) -> None:
        """Accepted at noon: the content expires at noon, so its own day and the next one end within two days after it."""
        story = Story().created()
        content = sealed(days_on=days_on)
        if accepted:
            story.tell(part("message.appended", content=content))
        else:
            assert story.refusal(part("message.appended", content=content)) == "request.invalid"

    @pytest.mark.parametrize(
        ("days_on", "accepted"),
        [(-2, False), (-1, True), (0, True), (1, True), (2, False)],
    )
    def test_accepted_at_midnight_may_name_the_day_that_ends_at_that_moment(self, days_on: int, accepted: bool) -> None:
        story = Story(now=NOON + DAY // 2).created()
        content = sealed(story.now, days_on=days_on)
        if accepted:
            story.tell(part("message.appended", content=content))
        else:
            assert story.refusal(part("message.appended", content=content)) == "request.invalid"

    @pytest.mark.parametrize(("seconds_before_midnight", "accepted"), [(59, True), (61, False)])
    def test_may_come_from_a_gateway_that_has_seen_midnight_first(self, seconds_before_midnight: int, accepted: bool) -> None:
        story = Story(now=NOON + DAY // 2 - seconds_before_midnight * SECOND).created()
        content = sealed(story.now, days_on=2)
        if accepted:
            story.tell(part("message.appended", content=content))
        else:
            assert story.refusal(part("message.appended", content=content)) == "request.invalid"


def test_a_refusal_tells_no_free_text_of_the_request() -> None:
    story = Story().created().with_run()
    name = "Mia Li 3668"
    for draft in (
        structs.replace(MESSAGE, thread_id=name),
        structs.replace(MESSAGE, run_id=name),
        structs.replace(MESSAGE, type=name),
        structs.replace(MESSAGE, native_task_id=name, run_id=made_up_id("run")),
        part("turn.started", turn_id=name),
    ):
        for report in (None, Report(name, 1, name, 1)):
            decision = story.decide(story.command(draft, report=report))
            assert isinstance(decision, Rejected)
            assert "Mia" not in decision.detail
