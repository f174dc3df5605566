"""Session, thread, Turn."""

from typing import Final

from msgspec import structs

from streams.session import lifecycles as life
from streams.session.events import Draft, SessionAttributes, ThreadAttributes, read
from streams.session.folds.common import Fold, known, moved
from streams.session.items import (
    HEADER,
    LINEAGE,
    Changes,
    ForkState,
    Items,
    LineageState,
    SessionState,
    ThreadState,
    TurnState,
    session_of,
    turn_of,
)
from streams.session.limits import LONGEST_CHECKPOINT_WINDOW_S
from streams.session.words import LIVE, STANDARD


def _session_created(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, SessionAttributes)
    header = SessionState(
        session_id=draft.session_id,
        workspace_id=draft.workspace_id,
        subject_id=draft.subject_id,
        status=life.OPEN,
        origin=attributes.origin or LIVE,
        policy_mode=attributes.policy_mode or STANDARD,
        content_window_days=attributes.content_window_days or 0,
        created_at=accepted_at,
        sequence=sequence,
        last_accepted_at=accepted_at,
        last_command_offset=-1,
        checkpoint_window_s=attributes.checkpoint_window_s or LONGEST_CHECKPOINT_WINDOW_S,
    )
    if attributes.source_session_id is None:
        return ((HEADER, header),)
    lineage = LineageState(
        source_session_id=attributes.source_session_id,
        fork_id=known(attributes.fork_id, draft),
        through_sequence=attributes.through_sequence or 0,
        through_event_id=attributes.through_event_id or "",
        source_hash=attributes.source_hash or "",
        checkpoint_id=attributes.checkpoint_id,
        inherited=attributes.inherited or "",
        depth=attributes.depth or 1,
    )
    return ((HEADER, header), (LINEAGE, lineage))


def _session_closed(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    header = known(session_of(items), draft)
    return ((HEADER, structs.replace(header, status=moved(life.SESSION, draft, header.status), sequence=sequence)),)


def _session_forked(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, SessionAttributes)
    fork_id = known(attributes.fork_id, draft)
    fork = ForkState(
        fork_id=fork_id,
        child_session_id=attributes.child_session_id or "",
        through_sequence=attributes.through_sequence or 0,
        sequence=sequence,
    )
    return ((("fork", fork_id), fork),)


def _thread_opened(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    thread_id = known(draft.thread_id, draft)
    kind = read(draft, ThreadAttributes).kind or "main"
    return ((("thread", thread_id), ThreadState(thread_id=thread_id, kind=kind, sequence=sequence)),)


def _turn_started(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    turn_id = known(draft.turn_id, draft)
    turn = TurnState(turn_id=turn_id, thread_id=draft.thread_id, status=life.STARTED, sequence=sequence)
    return ((("turn", turn_id), turn),)


def _turn_completed(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    turn = known(turn_of(items, known(draft.turn_id, draft)), draft)
    return ((("turn", turn.turn_id), structs.replace(turn, status=moved(life.TURN, draft, turn.status), sequence=sequence)),)


FOLDS: Final[dict[str, Fold | None]] = {
    "session.created": _session_created,
    "session.closed": _session_closed,
    "session.forked": _session_forked,
    "thread.opened": _thread_opened,
    "turn.started": _turn_started,
    "turn.completed": _turn_completed,
}
