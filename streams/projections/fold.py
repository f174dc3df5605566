"""A batch of one partition's records into its table: decode, fold, one write of rows and offsets.

- The write is the only thing that lasts. Killed before it, the process reads the same records again; killed after it,
  it goes on behind them. Nothing in between can be seen.
- A record that cannot be read neither stops the partition nor vanishes: it is counted, logged with its place, and
  marked where its session's readers meet it.
- `commands` moves past a command with its last event only, so a reader who waits for a command never sees half of it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import structlog
from msgspec import Struct

from streams.errors import RecordUnreadable
from streams.log.reader import Record
from streams.log.record import decode_event
from streams.projections.projection import Projection, Step, Unreadable
from streams.projections.sessions import SessionsView
from streams.projections.tables import OwnedTable
from streams.projections.transcript import TranscriptView
from streams.session.events import Event
from streams.session.ids import is_id
from streams.store.table import Put

_log = structlog.get_logger(__name__)

LAYOUT_VERSION: Final = 1
"""Of what lies in a store beside the projections' own rows."""

EVENTS: Final = "events"
COMMANDS: Final = "commands"


class Applied(Struct, frozen=True):
    """What a batch did: the sessions that have new events, and how many records were set aside."""

    sessions: frozenset[str]
    records: int
    unreadable: int


class Fold:
    """The projections that share a table. The first one judges whether an event can follow what is there."""

    def __init__(self, projections: Sequence[Projection] = (SessionsView(), TranscriptView())) -> None:
        self._projections = projections

    @property
    def version(self) -> int:
        """Rises whenever one of the projections gives other rows: the sum, since each of them only rises."""
        return LAYOUT_VERSION + sum(projection.version for projection in self._projections)

    def apply(self, table: OwnedTable, records: Sequence[Record]) -> Applied:
        """Records of the table's partition in their order. Raises as `Store.write`."""
        steps = [projection.begin(table.store) for projection in self._projections]
        sessions: set[str] = set()
        commands, unreadable = table.commands, 0
        for record in records:
            try:
                event = _event(record)
                for step in steps:
                    step.apply(event, record)
            except RecordUnreadable as error:
                unreadable += 1
                _set_aside(steps, record, error)
                continue
            sessions.add(event.session_id)
            if event.command_last:
                commands = event.command_offset + 1
        position = records[-1].offset + 1
        table.store.write(_puts(steps), {EVENTS: position, COMMANDS: commands})
        table.commands = commands
        table.unreadable += unreadable
        table.gaps = table.gaps or unreadable > 0
        table.reached(position)
        return Applied(frozenset(sessions), len(records), unreadable)


def _event(record: Record) -> Event:
    if record.value is None:
        raise RecordUnreadable("value.absent", code="value.absent")
    event = decode_event(record.value)
    if record.key is None or record.key.decode("ascii", "replace") != event.session_id:
        raise RecordUnreadable("key.misplaced: not the event's session", code="key.misplaced")
    return event


def _set_aside(steps: Sequence[Step], record: Record, error: RecordUnreadable) -> None:
    key = (record.key or b"").decode("ascii", "replace")
    unreadable = Unreadable(record.offset, error.code, key if is_id(key, "sess") else None)
    for step in steps:
        step.set_aside(unreadable)
    _log.error(
        "record_unreadable", topic=record.topic, partition=record.partition, offset=record.offset,
        session_id=unreadable.session_id, reason=error.detail,
    )  # fmt: skip


def _puts(steps: Sequence[Step]) -> Iterable[Put]:
    for step in steps:
        yield from step.puts()
