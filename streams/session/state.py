"""What is known of a session, and how its events change that: `evolve`.

Folding a session's events in order gives the items that its authority holds, save what is not in the log: the end of a
lease that was renewed, and what was erased. Nothing is judged here; `decide` judges before, once.
"""

from msgspec import structs

from streams.session import history
from streams.session.events import Event
from streams.session.folds import FOLDS
from streams.session.items import (
    HEADER,
    HISTORY,
    KINDS,
    ActionState,
    ApprovalState,
    AttemptState,
    Changes,
    CheckpointState,
    ChildState,
    DictItems,
    EffectState,
    ForkState,
    HistoryState,
    Item,
    ItemKey,
    Items,
    LineageState,
    RunState,
    SessionState,
    ThreadState,
    TurnState,
    WaitState,
    from_record,
    history_of,
    run_of,
    session_of,
    to_record,
)

__all__ = [
    "HEADER",
    "KINDS",
    "ActionState",
    "ApprovalState",
    "AttemptState",
    "Changes",
    "CheckpointState",
    "ChildState",
    "DictItems",
    "EffectState",
    "ForkState",
    "HistoryState",
    "Item",
    "ItemKey",
    "Items",
    "LineageState",
    "RunState",
    "SessionState",
    "ThreadState",
    "TurnState",
    "WaitState",
    "evolve",
    "from_record",
    "to_record",
]


def evolve(items: Items, event: Event) -> Changes:
    """The items that `event` changes, as they are after it, the header and the event's Run included.

    Total over the events of a legal history in their order; anything else is RuntimeError.
    """
    before = session_of(items)
    if event.sequence != (0 if before is None else before.sequence) + 1:
        raise RuntimeError(f"{event.session_id}: event {event.sequence} does not follow")
    if event.type not in FOLDS:
        raise RuntimeError(f"{event.event_id}: nothing is known of {event.type}")
    change = FOLDS[event.type]
    changes = {} if change is None else dict(change(items, event, event.sequence, event.accepted_at))
    header = changes.get(HEADER, before)
    if not isinstance(header, SessionState):
        raise RuntimeError(f"{event.session_id}: its first event is {event.type}")
    header = structs.replace(
        header,
        sequence=event.sequence,
        last_hash=event.hash,
        last_accepted_at=event.accepted_at,
        last_command_offset=event.command_offset,
    )
    place = history.place_of(event.content)
    if place is None:
        changes[HEADER] = header
    else:
        known = changes.get(HISTORY)
        before_it = known if isinstance(known, HistoryState) else history_of(items)
        changes.update(history.noted(header, before_it, {place: (event.sequence, event.sequence)}))
    if event.run_id is not None:
        key = ("run", event.run_id)
        run = changes.get(key) or run_of(items, event.run_id)
        if not isinstance(run, RunState):
            raise RuntimeError(f"{event.event_id}: of a Run that no event has made")
        changes[key] = structs.replace(run, sequence=event.sequence)
    return tuple(changes.items())
