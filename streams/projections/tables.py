"""The tables that a process owns now, and whether it may answer from them.

The projector's thread opens, fills and gives up tables; readers read in `reading`, which asks again before they answer,
since the process may have been stopped in between.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from streams.clock import boottime_s
from streams.errors import NotOwner, ProjectionBehind, StoreUnusable
from streams.projections.lease import Lease
from streams.store.table import Table


class Committing(NamedTuple):
    """Rows whose values are not known until the table has reached `position`: what the store has may be superseded, and what
    comes may never be."""

    keys: Collection[bytes]
    position: int


NOTHING: Final = Committing((), 0)


class OwnedTable:
    """One partition. `position`: every event below is applied (or will never be handed out); `commands`: every command
    below has all its events applied. Both follow the store, never lead it."""

    def __init__(self, partition: int, store: Table, lease: Lease, *, position: int, commands: int, gaps: bool) -> None:
        self.partition = partition
        self.store = store
        self.lease = lease
        self.position = position
        self.commands = commands
        self.end: int | None = None
        """Where the log ended when last asked; None before the first answer."""
        self.unreadable = 0
        self.gaps = gaps
        """Whether a record was set aside, ever: few tables have any, and readers of the others need not look."""
        self.damaged = False
        """Set by whoever met a row that RocksDB cannot read: the table is to be rebuilt."""
        self.committing = NOTHING
        """What a transaction changes that may be committed already and is not in the store yet."""

    def reached(self, position: int) -> None:
        self.position = position
        self.lease.reached(position)

    def answered(self, sent_s: float, end: int) -> None:
        self.end = end
        self.lease.answered(sent_s, end)

    def check(self) -> None:
        """Raises `ProjectionBehind` while the table has yet to catch up for the first time, `NotOwner` without a lease."""
        if not self.lease.held:
            if not self.lease.ever_held:
                raise ProjectionBehind(f"partition {self.partition} is catching up", retry_after_s=1)
            raise NotOwner(f"partition {self.partition}: not known to be up to date")


class Tables:
    """By partition. Replaced as a whole at each change, so that readers need no lock."""

    def __init__(self, lease_s: float, clock: Callable[[], float] = boottime_s) -> None:
        self._lease_s = lease_s
        self._clock = clock
        self.owned: dict[int, OwnedTable] = {}

    def add(self, partition: int, store: Table, *, position: int = 0, commands: int = 0, gaps: bool = False) -> OwnedTable:
        """How far the store is, and whether a record was ever set aside, says who knows what is in it."""
        lease = Lease(self._lease_s, self._clock)
        table = OwnedTable(partition, store, lease, position=position, commands=commands, gaps=gaps)
        self.owned = {**self.owned, partition: table}
        return table

    def drop(self, partition: int) -> None:
        self.owned = {number: table for number, table in self.owned.items() if number != partition}

    def serving(self, partition: int) -> OwnedTable:
        """The table, if it may be read now. Raises `NotOwner` or `ProjectionBehind`."""
        table = self.owned.get(partition)
        if table is None:
            raise NotOwner(f"partition {partition} is not here")
        table.check()
        return table

    @contextmanager
    def reading(self, partition: int) -> Iterator[OwnedTable]:
        """The table for a reading whose answer may be told, since the table was served before it and after it.

        Raises as `serving`; a row that cannot be read marks the table to be rebuilt (`ProjectionBehind`).
        """
        table = self.serving(partition)
        try:
            yield table
        except StoreUnusable as error:
            table.damaged = True
            raise ProjectionBehind(f"partition {partition} is rebuilt", retry_after_s=5) from error
        self.still(table)

    def still(self, table: OwnedTable) -> None:
        """What was read from `table` may be told: it is still here, and its lease holds. Raises as `serving`."""
        if self.owned.get(table.partition) is not table:
            raise NotOwner(f"partition {table.partition} is not here any more")
        table.check()
