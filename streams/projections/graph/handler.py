"""Folds the events of a partition into graphs, on the shared loop: items and offsets commit together.

Compaction keeps the last offset, not the highest sequence: only a fenced writer may write `sessions.graph`.

- A record that cannot be read, or that cannot follow, is a gap of its session's graph, and the partition goes on.
- An item is written once a transaction, however many of its events changed it.
- Whatever the cuts between transactions, the same events give the same bytes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from streams.errors import Misconfigured, RecordUnreadable
from streams.graph import fold
from streams.graph.items import HEAD_ID, Edge, Gap, Head, Item, Node, item_id
from streams.graph.rows import made_node
from streams.log.reader import Record, Row
from streams.log.topics import Topics
from streams.loop.handler import Get
from streams.loop.step import Step
from streams.projections.events import event_of, session_named
from streams.projections.graph import encoding
from streams.projections.graph.encoding import FOLD_VERSION, Progress
from streams.settings import Settings
from streams.store.table import Put

ROLE: Final = "graph"
LAYOUT_VERSION: Final = 2
"""Of the rows that only the store has: another one, and the store is made anew from the topic."""

_log = structlog.get_logger(__name__)


class GraphProjection:
    """Handler of the loop for `sessions.events`; its changelog is the table that anyone may load."""

    role = ROLE
    version = LAYOUT_VERSION

    def __init__(self, settings: Settings) -> None:
        topics = Topics(settings.topic_prefix)
        self.input, self.changelog = topics.events, topics.graph

    def handle(self, step: Step) -> None:
        sessions: dict[str, StepRows] = {}
        commands: int | None = None
        for record in step.records:
            try:
                event = event_of(record)
                rows = _rows(sessions, step, event.session_id)
                if not fold.follows(rows, event):
                    raise RecordUnreadable(f"sequence.repeated: {event.sequence}", code="sequence.repeated")
            except RecordUnreadable as error:
                _set_aside(sessions, step, record, error)
                continue
            fold.apply(rows, event)
            if event.command_last:
                commands = event.command_offset + 1
        for rows in sessions.values():
            rows.flush()
        if commands is not None:
            step.put(encoding.progress_key(step.partition), encoding.encode_progress(Progress(commands)))

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        """Raises `Misconfigured` where another fold has made the topic."""
        for key, value in rows:
            assert key is not None
            if encoding.is_progress(key):
                if value is not None:
                    _require_this_fold(encoding.decode_progress(value), self.changelog)
            else:
                session_id = key.partition(b"/")[0].decode()
                known = get(key) if value is None else value
                if known is not None:
                    for index, held in encoding.index_rows(session_id, encoding.decode_item(known)):
                        yield index, None if value is None else held
            yield key, value

    def discard(self) -> None:
        """Keeps nothing between steps."""


class StepRows:
    """`streams.graph.rows.Rows` of one session as a step sees it; decoded once a step, encoded once at its end."""

    def __init__(self, step: Step, session_id: str) -> None:
        self._step, self._session_id = step, session_id
        self._known: dict[str, Item | None] = {}
        self._made: dict[str, str] = {}
        self._dirty: set[str] = set()

    def head(self) -> Head | None:
        item = self._get(HEAD_ID)
        return item if isinstance(item, Head) else None

    def node(self, node_id: str) -> Node | None:
        item = self._get(node_id)
        return item if isinstance(item, Node) else None

    def edge(self, edge_id: str) -> Edge | None:
        item = self._get(edge_id)
        return item if isinstance(item, Edge) else None

    def gap(self, gap_id: str) -> Gap | None:
        item = self._get(gap_id)
        return item if isinstance(item, Gap) else None

    def made_by(self, event_id: str) -> str | None:
        value = self._step.get(encoding.made_key(self._session_id, event_id))
        return self._made.get(event_id) if value is None else value.decode()

    def put(self, item: Item) -> None:
        identifier = item_id(item)
        self._known[identifier] = item
        self._dirty.add(identifier)
        made = made_node(item)
        if made is not None:
            self._made[made[0]] = made[1]

    def flush(self) -> None:
        for identifier in sorted(self._dirty):
            item = self._known[identifier]
            assert item is not None
            self._step.put(encoding.item_key(self._session_id, identifier), encoding.encode_item(item))
            for key, held in encoding.index_rows(self._session_id, item):
                self._step.put_local(key, held)
        self._dirty.clear()

    def _get(self, identifier: str) -> Item | None:
        if identifier not in self._known:
            value = self._step.get(encoding.item_key(self._session_id, identifier))
            self._known[identifier] = None if value is None else encoding.decode_item(value)
        return self._known[identifier]


def _rows(sessions: dict[str, StepRows], step: Step, session_id: str) -> StepRows:
    rows = sessions.get(session_id)
    if rows is None:
        rows = sessions[session_id] = StepRows(step, session_id)
    return rows


def _set_aside(sessions: dict[str, StepRows], step: Step, record: Record, error: RecordUnreadable) -> None:
    session_id = session_named(record)
    _log.error(
        "record_unreadable", role=ROLE, topic=record.topic, partition=record.partition, offset=record.offset,
        session_id=session_id, reason=error.detail,
    )  # fmt: skip
    if session_id is not None:
        fold.set_aside(_rows(sessions, step, session_id), session_id, record.offset, error.code)


def _require_this_fold(progress: Progress, topic: str) -> None:
    if progress.fold_version != FOLD_VERSION:
        raise Misconfigured(
            f"{topic} was made by fold {progress.fold_version}, this code has {FOLD_VERSION}: "
            "stop every graph-projector and run `session-streams rebuild --graph`, which makes it anew from the events"
        )
