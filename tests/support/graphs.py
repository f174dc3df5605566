"""Graphs without Kafka: the projection's own handler over a store in memory, the model that reads it, and facts to tell."""

from collections.abc import Iterable, Sequence

from streams.graph import fold
from streams.graph.items import Graph, Item, in_order
from streams.graph.memory import MemoryGraph
from streams.log.reader import Record
from streams.log.record import encode_draft, encode_event
from streams.loop.step import Step
from streams.projections.graph.encoding import decode_item, session_prefix
from streams.projections.graph.handler import GraphProjection
from streams.projections.tables import Tables
from streams.query.graphs import GraphModel, GraphPage
from streams.session.events import Draft, Event
from streams.settings import Settings
from streams.store.memory import MemoryStore


def folded(events: Iterable[Event]) -> MemoryGraph:
    rows = MemoryGraph()
    for event in events:
        fold.apply(rows, event)
    return rows


def event_value(event: Event) -> bytes:
    """As the authority writes it."""
    added = {name: getattr(event, name) for name in ("sequence", "command_offset", "command_last", "accepted_at", "previous_hash", "hash")}
    draft = Draft(**{name: getattr(event, name) for name in Draft.__struct_fields__})
    return encode_event(encode_draft(draft), **added)


def records(events: Iterable[Event], *, partition: int = 0, first_offset: int = 0) -> list[Record]:
    return [
        Record("sessions.events", partition, first_offset + index, event.session_id.encode(), event_value(event), 0)
        for index, event in enumerate(events)
    ]


class GraphStore:
    """One partition's table, as the loop makes it; `changelog` is what went to the topic, in order."""

    def __init__(self, settings: Settings | None = None, partition: int = 0) -> None:
        self.settings = settings or Settings(partitions=1)
        self.partition = partition
        self.store = MemoryStore()
        self.changelog: list[tuple[bytes, bytes | None]] = []
        self._handler = GraphProjection(self.settings)

    def apply(self, batch: Sequence[Record]) -> None:
        """One transaction."""
        step = Step(self.partition, self.store, list(batch), 0, 0)  # type: ignore[arg-type]
        self._handler.handle(step)
        self.changelog += step.changelog.items()
        self.store.write([*step.changelog.items(), *step.local.items()], {})

    def restored(self) -> MemoryStore:
        """A store made of the changelog as compaction leaves it: the last record of each key."""
        store = MemoryStore()
        for row in dict(self.changelog).items():
            store.write(list(self._handler.restored(store.get, [row])), {})
        return store

    def model(self) -> GraphModel:
        tables = Tables(3600)
        table = tables.add(self.partition, self.store)
        table.answered(tables._clock(), 0)
        table.reached(0)
        return GraphModel(tables, self.settings.partitions)


def items_in(store: MemoryStore, session_id: str) -> dict[bytes, Item]:
    """What a table holds of a session."""
    with store.scan(session_prefix(session_id)) as pairs:
        return {key: decode_item(value) for key, value in pairs}


def graph_of(page: GraphPage) -> Graph:
    return in_order(page.head, [decode_item(value) for value in page.items], truncated=page.truncated)
