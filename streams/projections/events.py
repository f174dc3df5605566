"""A record of the event log as every fold takes it: the event that it is, or whose it would have been."""

from streams.errors import RecordUnreadable
from streams.log.reader import Record
from streams.log.record import decode_event
from streams.session.events import Event
from streams.session.ids import is_id


def event_of(record: Record) -> Event:
    """Raises `RecordUnreadable`, also where the key is not the event's session: it then lies where no reader looks for it."""
    if record.value is None:
        raise RecordUnreadable("value.absent", code="value.absent")
    event = decode_event(record.value)
    if record.key is None or record.key.decode("ascii", "replace") != event.session_id:
        raise RecordUnreadable("key.misplaced: not the event's session", code="key.misplaced")
    return event


def session_named(record: Record) -> str | None:
    """The session that the key names, whatever the value is; None where it names none."""
    key = (record.key or b"").decode("ascii", "replace")
    return key if is_id(key, "sess") else None
