"""The tables that a process owns now, and whether it may answer from them.

The projector's thread opens, fills and gives up tables; readers ask `serving`, read, and ask again before they answer,
since the process may have been stopped in between.
"""

from collections.abc import Callable

from streams.clock import boottime_s
from streams.errors import NotOwner, ProjectionBehind
from streams.projections.lease import Lease
from streams.projections.transcript import any_set_aside
from streams.store.table import Table


class OwnedTable:
    """One partition. `position`: every event below is applied (or will never be handed out); `commands`: every command
    below has all its events applied. Both follow the store, never lead it."""

    def __init__(self, partition: int, store: Table, lease: Lease) -> None:
        self.partition = partition
        self.store = store
        self.lease = lease
        offsets = store.offsets()
        self.position = offsets.get("events", 0)
        self.commands = offsets.get("commands", 0)
        self.end: int | None = None
        """Where the log ended when last asked; None before the first answer."""
        self.unreadable = 0
        self.gaps = any_set_aside(store)
        """Whether a record was set aside, ever: few tables have any, and readers of the others need not look."""
        self.damaged = False
        """Set by whoever met a row that RocksDB cannot read: the table is to be rebuilt."""

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

    def add(self, partition: int, store: Table) -> OwnedTable:
        table = OwnedTable(partition, store, Lease(self._lease_s, self._clock))
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

    def still(self, table: OwnedTable) -> None:
        """What was read from `table` may be told: it is still here, and its lease holds. Raises as `serving`."""
        if self.owned.get(table.partition) is not table:
            raise NotOwner(f"partition {table.partition} is not here any more")
        table.check()
