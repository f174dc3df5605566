"""Session, thread, Turn: what opens and closes them. None of their events belongs to a Run."""

from collections.abc import Callable
from typing import Final

from streams.session import refusals
from streams.session.commands import Kind
from streams.session.events import Draft, SessionAttributes, ThreadAttributes, read
from streams.session.items import thread_of, turn_of
from streams.session.lifecycles import COMPLETED
from streams.session.limits import LONGEST_CHECKPOINT_WINDOW_S, LONGEST_WINDOW_DAYS
from streams.session.outcomes import Rejected
from streams.session.words import IMPORTED
from streams.session.work import Work

OF_A_FORK: Final = ("source_session_id", "fork_id", "through_sequence", "through_event_id", "source_hash", "inherited", "depth")
"""What the beginning of a fork says, and that of no other session."""


def session_created(work: Work, draft: Draft) -> Draft | Rejected:
    if work.header is not None:
        return refusals.exists(work.header.session_id)
    attributes = read(draft, SessionAttributes)
    if (draft.thread_id, draft.turn_id) != (None, None):
        return refusals.invalid(work.index, "thread_id and turn_id: a new session has none")
    if attributes.origin == IMPORTED and not work.command.importing:
        return refusals.invalid(work.index, "attributes.origin")
    if not 1 <= (attributes.content_window_days or 0) <= LONGEST_WINDOW_DAYS:
        return refusals.invalid(work.index, "attributes.content_window_days")
    window_s = attributes.checkpoint_window_s
    if window_s is not None and not 1 <= window_s <= LONGEST_CHECKPOINT_WINDOW_S:
        return refusals.invalid(work.index, f"attributes.checkpoint_window_s: 1 to {LONGEST_CHECKPOINT_WINDOW_S}")
    forked = [getattr(attributes, name) is not None for name in OF_A_FORK]
    if not (all(forked) if work.command.kind is Kind.CHILD else not any(forked)):
        return refusals.invalid(work.index, "attributes.source_session_id: a fork begins where its source says so")
    return draft


def session_forked(work: Work, draft: Draft) -> Draft | Rejected:
    return refusals.invalid(work.index, "type: a fork is a command of its own")


def session_closed(work: Work, draft: Draft) -> Draft | Rejected:
    """A session may be closed at any time; the drafts after it, and every later command, meet a closed session."""
    return draft


def thread_opened(work: Work, draft: Draft) -> Draft | Rejected:
    attributes = read(draft, ThreadAttributes)
    if draft.thread_id is None:
        return refusals.invalid(work.index, "thread_id")
    if thread_of(work, draft.thread_id) is not None:
        return refusals.exists(draft.thread_id)
    if draft.turn_id is not None and turn_of(work, draft.turn_id) is None:
        return refusals.not_found(work.index, "turn_id")
    parent = attributes.parent_thread_id
    if (attributes.kind == "child") != (parent is not None):
        return refusals.invalid(work.index, "attributes.parent_thread_id: a child thread has one, and no other")
    if parent is not None and thread_of(work, parent) is None:
        return refusals.not_found(work.index, "attributes.parent_thread_id")
    return draft


def turn_started(work: Work, draft: Draft) -> Draft | Rejected:
    if draft.turn_id is None:
        return refusals.invalid(work.index, "turn_id")
    turn = turn_of(work, draft.turn_id)
    if turn is not None:
        return refusals.settled(turn.turn_id, turn.status) if turn.status == COMPLETED else refusals.exists(turn.turn_id)
    if draft.thread_id is not None and thread_of(work, draft.thread_id) is None:
        return refusals.not_found(work.index, "thread_id")
    return draft


def turn_completed(work: Work, draft: Draft) -> Draft | Rejected:
    return draft if draft.turn_id is not None else refusals.invalid(work.index, "turn_id")


def outside_runs(rule: Callable[[Work, Draft], Draft | Rejected]) -> Callable[[Work, Draft], Draft | Rejected]:
    """The rule, for drafts that name neither Run nor attempt."""

    def judged(work: Work, draft: Draft) -> Draft | Rejected:
        if (draft.run_id, draft.attempt_generation, draft.native_task_id) != (None, None, None):
            return refusals.invalid(work.index, "run_id")
        return rule(work, draft)

    return judged


RULES: Final = {
    "session.created": outside_runs(session_created),
    "session.closed": outside_runs(session_closed),
    "session.forked": session_forked,
    "thread.opened": outside_runs(thread_opened),
    "turn.started": outside_runs(turn_started),
    "turn.completed": outside_runs(turn_completed),
}
