"""Tables whose readers are never told of a value that was acknowledged to be superseded.

An outcome is told by the log once its transaction is committed, some milliseconds before the store has what was committed. In
between a row is neither what it was nor what it becomes, so who asks for it waits. Rows that no open commit changes are read at once.
"""

from collections.abc import Collection

from streams.loop.step import Step
from streams.projections.loop_tables import LoopTables
from streams.projections.tables import NOTHING, Committing


class CommittingTables(LoopTables):
    """`LoopTables` that say which rows are being committed. Where a commit is aborted, its batch is decided again: until the table has
    reached the batch's end, or is given up, nobody knows."""

    def committing(self, steps: Collection[Step]) -> None:
        for step in steps:
            table = self._tables.owned.get(step.partition)
            if table is not None and step.records:
                table.committing = Committing({**step.changelog, **step.local}, step.records[-1].offset + 1)

    def written(self, step: Step) -> None:
        super().written(step)
        table = self._tables.owned.get(step.partition)
        if table is not None and step.records:
            table.committing = NOTHING
