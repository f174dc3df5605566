"""Puts a loop's stores among the tables that reads are answered from, under the same leases as the projector's."""

from collections.abc import Collection
from pathlib import Path

from streams.errors import StoreUnusable
from streams.loop.step import Step
from streams.projections.keeper import LeaseKeeper
from streams.projections.projector import Listener
from streams.projections.tables import OwnedTable, Tables
from streams.store.store import Store
from streams.store.table import Reads


class LoopTables:
    """`streams.loop.observer.Observer` of a loop over `sessions.events`."""

    def __init__(self, tables: Tables, keeper: LeaseKeeper, listener: Listener) -> None:
        self._tables, self._keeper, self._listener = tables, keeper, listener
        self._coming: set[int] | None = None
        self._paths: dict[int, Path] = {}
        self.damaged: list[Path] = []
        """Stores that no reader can trust: to be removed once the loop is closed."""

    @property
    def joined(self) -> bool:
        """Whether the group has given out its partitions, and those of this member are restored."""
        return self._coming is not None and not self._coming

    def commands_in(self, store: Reads, partition: int) -> int:
        """Every command below this offset is in the store whole; nobody asks, where it is not kept."""
        return 0

    def assigned(self, partitions: Collection[int]) -> None:
        self._coming = set(partitions)

    def restored(self, partition: int, store: Store) -> None:
        self._tables.add(partition, store, commands=self.commands_in(store, partition))
        self._paths[partition] = store.path
        if self._coming is not None:
            self._coming.discard(partition)
        self._keeper.ask_now()

    def committing(self, steps: Collection[Step]) -> None:
        """Reads of these tables may see what was before, until the store has what comes."""

    def written(self, step: Step) -> None:
        table = self._tables.owned.get(step.partition)
        if table is None or not step.records:
            return
        table.commands = self.commands_in(table.store, step.partition)
        table.reached(step.records[-1].offset + 1)
        self._tell(table, {(record.key or b"").decode("ascii", "replace") for record in step.records})

    def reached(self, partition: int, position: int) -> None:
        """Raises `StoreUnusable` where a reader has met a damaged row: the process leaves, and comes back with a new store."""
        table = self._tables.owned.get(partition)
        if table is None:
            return
        if table.damaged:
            self.damaged.append(self._paths[partition])
            raise StoreUnusable(f"partition {partition}: a row cannot be read")
        further = position > table.position
        # Said again where it has not moved: a table of an empty partition is at its end too.
        table.reached(position)
        if further:
            self._tell(table, ())

    def given_up(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self._tables.drop(partition)
            if self._coming is not None:
                self._coming.discard(partition)
        self._listener.gone(partitions)

    def _tell(self, table: OwnedTable, sessions: Collection[str]) -> None:
        self._listener.advanced(table, sessions)
