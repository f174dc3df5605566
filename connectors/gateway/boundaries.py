"""Positions of a session as checkpoints and forks name them: the gateway says which event stands there, and its hash."""

from collections.abc import Sequence

from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import RecordUnreadable, StreamsError
from streams.log.record import decode_event
from streams.session import refusals
from streams.session.events import Event


async def event_at(gateway: Gateway, call: Call, session_id: str, sequence: int) -> Event:
    """What stands at a position never changes, so the table is waited for only where it does not have the event: no event is missed
    because a table is behind.

    Raises `StreamsError` (runtime.checkpoint_boundary) where no event stands there that can be read, and what the owner raises.
    """
    principal = call.principal
    for at_end in (False, True):
        page = await gateway.owners.events(
            principal.workspace_id, session_id, subject_id=principal.subject_id, after=sequence - 1, limit=1, max_bytes=1,
            position=call.position(), wait_s=gateway.limits.position_wait_s, at_end=at_end,
        )  # fmt: skip
        principal.require_sight_of(session_id, page.session.workspace_id, page.session.subject_id)
        event = _readable(page.events)
        if event is not None and event.sequence == sequence:
            return event
    raise outside(f"through_sequence {sequence}: {session_id} is at {page.end_sequence}")


def _readable(values: Sequence[bytes]) -> Event | None:
    try:
        return decode_event(values[0]) if values else None
    except RecordUnreadable:
        return None


def outside(detail: str) -> StreamsError:
    """What is named is no position of the session, or not that event's."""
    return StreamsError(detail, code=refusals.CHECKPOINT_BOUNDARY)
