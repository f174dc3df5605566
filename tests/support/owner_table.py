"""The tables of an owner in memory: the projections' own fold, and the model that reads what it makes. They are never behind."""

from collections.abc import Sequence

from streams.clock import boottime_s
from streams.log.reader import Record
from streams.projections.fold import Fold
from streams.projections.tables import Tables
from streams.query.queries import ReadModel
from streams.store.memory import MemoryStore


class OwnerTable:
    """All sessions in one partition. `model` reads what was `applied`."""

    def __init__(self) -> None:
        tables = Tables(lease_s=1e9)
        self.model = ReadModel(tables, 1)
        self._fold = Fold()
        self._offset = 0
        self._table = tables.add(0, MemoryStore())
        self._table.answered(boottime_s(), 0)
        self._table.reached(0)

    def apply(self, session_id: str, values: Sequence[bytes]) -> None:
        records = [Record("sessions.events", 0, self._offset + index, session_id.encode(), value, 0) for index, value in enumerate(values)]
        self._offset += len(values)
        if records:
            self._fold.apply(self._table, records)
