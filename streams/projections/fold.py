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
from streams.projections.checkpoints import CheckpointsView
from streams.projections.events import event_of, session_named
from streams.projections.projection import BatchFold, Projection, Unreadable
from streams.projections.runs import RunsView
from streams.projections.sessions import SessionsView
from streams.projections.tables import OwnedTable, Tables
from streams.projections.transcript import TranscriptView, any_set_aside
from streams.projections.unsettled import UnsettledView
from streams.store.table import Put, Table

_log = structlog.get_logger(__name__)

LAYOUT_VERSION: Final = 1
"""Of what lies in a store beside the projections' own rows."""

EVENTS: Final = "events"
COMMANDS: Final = "commands"


class Applied(Struct, frozen=True):
    """What a batch did: the sessions that have new events, all that somebody may wait for (`BatchFold.awaited`, and these sessions),
    and how many records were set aside."""

    sessions: frozenset[str]
    awaited: frozenset[str]
    records: int
    unreadable: int


def take(tables: Tables, partition: int, store: Table) -> OwnedTable:
    """Puts a store that this fold has written among `tables`, as far as the store itself says that it is."""
    offsets = store.offsets()
    return tables.add(partition, store, position=offsets.get(EVENTS, 0), commands=offsets.get(COMMANDS, 0), gaps=any_set_aside(store))


ALL: Final[Sequence[Projection]] = (SessionsView(), TranscriptView(), CheckpointsView(), RunsView(), UnsettledView())


class Fold:
    """The projections that share a table. The first one judges whether an event can follow what is there."""

    def __init__(self, projections: Sequence[Projection] = ALL) -> None:
        self._projections = projections

    @property
    def version(self) -> int:
        """Rises whenever one of the projections gives other rows: the sum, since each of them only rises."""
        return LAYOUT_VERSION + sum(projection.version for projection in self._projections)

    def apply(self, table: OwnedTable, records: Sequence[Record]) -> Applied:
        """Records of the table's partition in their order. Raises as `Store.write`."""
        folds = [projection.begin(table.store) for projection in self._projections]
        sessions: set[str] = set()
        commands, unreadable = table.commands, 0
        for record in records:
            try:
                event = event_of(record)
                for fold in folds:
                    fold.apply(event, record)
            except RecordUnreadable as error:
                unreadable += 1
                _set_aside(folds, record, error)
                continue
            sessions.add(event.session_id)
            if event.command_last:
                commands = event.command_offset + 1
        position = records[-1].offset + 1
        table.store.write(_puts(folds), {EVENTS: position, COMMANDS: commands})
        table.commands = commands
        table.unreadable += unreadable
        table.gaps = table.gaps or unreadable > 0
        table.reached(position)
        awaited = sessions.union(*[fold.awaited() for fold in folds])
        return Applied(frozenset(sessions), frozenset(awaited), len(records), unreadable)


def _set_aside(folds: Sequence[BatchFold], record: Record, error: RecordUnreadable) -> None:
    unreadable = Unreadable(record.offset, error.code, session_named(record))
    for fold in folds:
        fold.set_aside(unreadable)
    _log.error(
        "record_unreadable", topic=record.topic, partition=record.partition, offset=record.offset,
        session_id=unreadable.session_id, reason=error.detail,
    )  # fmt: skip


def _puts(folds: Sequence[BatchFold]) -> Iterable[Put]:
    for fold in folds:
        yield from fold.puts()
