"""The graphs' stores as tables that reads are answered from."""

from streams.projections.graph.encoding import decode_progress, progress_key
from streams.projections.loop_tables import LoopTables
from streams.store.table import Reads


class GraphTables(LoopTables):
    """Of the loop that makes the graphs: a read may ask for a position."""

    def commands_in(self, store: Reads, partition: int) -> int:
        return commands_in(store, partition)


def commands_in(store: Reads, partition: int) -> int:
    """Every command below this offset is in the graphs whole."""
    value = store.get(progress_key(partition))
    return 0 if value is None else decode_progress(value).commands
