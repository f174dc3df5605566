"""Adds events to a session's graph, one after the other. Only what an event says; nothing is inferred from times or order.

Total: nothing that an event may hold raises. `facts.py` has the table of what each type tells.

Called by the graph projection for the table, by the gateway for the graph as it was, and by the tests.
"""

from typing import Final

from msgspec import structs

from streams.graph.facts import TELLS
from streams.graph.items import ACTOR, CONTAINS, SESSION, Gap, Head
from streams.graph.rows import Rows
from streams.graph.telling import Telling
from streams.session.events import Event, MessageAttributes, SourceAttributes, ToolAttributes

SEQUENCE_MISSING: Final = "sequence.missing"
"""The reason of a gap in the sequences that no record accounts for."""


def follows(rows: Rows, event: Event) -> bool:
    """Whether the event is behind what is in the graph. What is not must not be applied: accepted events are not rewritten."""
    head = rows.head()
    return head is None or event.sequence > head.sequence


def apply(rows: Rows, event: Event) -> None:
    """Adds one event of the session, in order of sequence; sequences that are left out become a gap."""
    telling = Telling(rows, event)
    head = rows.head()
    if rows.node(event.session_id) is None:
        # Any event says that its session is there; only the first one says in which state it began.
        telling.name(event.session_id, SESSION)
    _close_hole(rows, head, event)
    if event.actor_id is not None and rows.node(event.actor_id) is None:
        telling.name(event.actor_id, ACTOR)
        telling.draw(CONTAINS, event.session_id, event.actor_id)
    told = TELLS.get(event.type)
    if told is not None:
        told(telling)
    _source_gap(telling)
    rows.put(
        Head(
            session_id=event.session_id,
            workspace_id=event.workspace_id,
            subject_id=event.subject_id if head is None or event.subject_id is not None else head.subject_id,
            sequence=event.sequence,
        )
    )


def set_aside(rows: Rows, session_id: str, offset: int, reason: str) -> None:
    """A record of the session, at this offset of the event log, could not be read or could not follow."""
    head = rows.head() or Head(session_id=session_id, workspace_id=None, subject_id=None, sequence=0)
    after = head.sequence
    gap = Gap(
        id=f"gap:{after + 1}:{offset}", reason=reason, first_sequence=after + 1, last_sequence=after, node_id=session_id, offset=offset
    )
    rows.put(gap)
    rows.put(structs.replace(head, open_gap=head.open_gap or gap.id))


def _close_hole(rows: Rows, head: Head | None, event: Event) -> None:
    first, last = (1 if head is None else head.sequence + 1), event.sequence - 1
    if last < first:
        return
    known = None if head is None or head.open_gap is None else rows.gap(head.open_gap)
    if known is None:
        reason = SEQUENCE_MISSING
        known = Gap(id=f"gap:{first}:{reason}", reason=reason, first_sequence=first, last_sequence=last, node_id=event.session_id)
    rows.put(structs.replace(known, last_sequence=last))


def _source_gap(telling: Telling) -> None:
    """What the source itself lacked: a parent, a call."""
    match telling.event.attributes:
        case MessageAttributes(source_gap=str(reason)) | SourceAttributes(source_gap=str(reason)) | ToolAttributes(gap=str(reason)):
            telling.miss(reason)
