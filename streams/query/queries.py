"""Questions to the tables of this process, answered from what is in them now. Waiting is `freshness`'s.

- An answer is given only from a table that is owned and whose lease holds, before and after the reading of it.
- Another workspace's session is not found, in the same words as one that does not exist; so is one of another subject
  than `subject_id`, where that is given.
- Pages are bounded by count and by bytes; one event, however large, always fits.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Final

from streams.errors import Invalid, NotFound
from streams.log.partitioner import partition_of
from streams.projections.sessions import SessionRow, decode_row, listed, listing_key, listing_prefix, row_key
from streams.projections.tables import OwnedTable, Tables
from streams.projections.transcript import Marker, event_key, events_prefix, markers, sequence_of
from streams.query.pages import EventsPage, Gap, ListingCursor, SessionsPage

MISSING: Final = "sequence.missing"
"""The reason of a gap that no record accounts for."""


class ReadModel:
    """Blocking, from memory or local disk; safe from any thread."""

    def __init__(self, tables: Tables, partitions: int) -> None:
        self._tables = tables
        self._partitions = partitions

    def partition(self, session_id: str) -> int:
        return partition_of(session_id.encode(), self._partitions)

    def session(self, workspace_id: str, session_id: str, subject_id: str | None = None) -> SessionRow:
        """Raises `NotFound`, `NotOwner`, `ProjectionBehind`."""
        with self._tables.reading(self.partition(session_id)) as table:
            return _row(table, workspace_id, session_id, subject_id)

    def events(
        self, workspace_id: str, session_id: str, subject_id: str | None = None, *, after: int, limit: int, max_bytes: int
    ) -> EventsPage:
        """Events with sequences above `after`, in order. Raises as `session`."""
        with self._tables.reading(self.partition(session_id)) as table:
            row = _row(table, workspace_id, session_id, subject_id)
            events: list[bytes] = []
            gaps: list[Gap] = []
            last = after
            if row.sequence > after:
                for sequence, value in _events(table, row, after, limit, max_bytes):
                    if sequence > last + 1:
                        gaps.append(Gap(last + 1, sequence - 1, MISSING))
                    events.append(value)
                    last = sequence
            # A gap at the end of the session is told with the page that reaches it, and again once its size is known.
            through = last if last == row.sequence and (last > after or after == 0) else last - 1
            found = markers(table.store, session_id, after, through) if table.gaps else ()
            return EventsPage(row, tuple(events), _explained(gaps, found), last)

    def sessions(
        self, workspace_id: str, subject_id: str | None, *, partitions: Collection[int], cursor: ListingCursor | None, limit: int
    ) -> SessionsPage:
        """Sessions that lie in `partitions`, newest first, from behind `cursor`. Raises as `session`, or `Invalid`."""
        if not all(0 <= partition < self._partitions for partition in partitions):
            raise Invalid("partitions: out of range", code="request.malformed")
        with ExitStack() as reading:
            tables = [reading.enter_context(self._tables.reading(partition)) for partition in partitions]
            places = sorted(
                (place for table in tables for place in _listed(table, workspace_id, subject_id, cursor, limit + 1)),
                key=lambda place: place[0],
                reverse=True,
            )
            values = [table.store.get(row_key(place.session_id)) for place, table in places[:limit]]
        rows = tuple(decode_row(value) for value in values if value is not None)
        return SessionsPage(rows, str(places[limit - 1][0]) if len(places) > limit else None)


def _events(table: OwnedTable, row: SessionRow, after: int, limit: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    taken, taken_bytes = 0, 0
    with table.store.scan(events_prefix(row.session_id), start=event_key(row.session_id, after + 1)) as pairs:
        for key, value in pairs:
            sequence = sequence_of(key)
            # The row was read first: what came behind it belongs to the next page.
            if sequence > row.sequence or taken == limit or (taken and taken_bytes + len(value) > max_bytes):
                return
            taken, taken_bytes = taken + 1, taken_bytes + len(value)
            yield sequence, value


def _row(table: OwnedTable, workspace_id: str, session_id: str, subject_id: str | None) -> SessionRow:
    value = table.store.get(row_key(session_id))
    row = None if value is None else decode_row(value)
    if row is None or row.workspace_id != workspace_id or subject_id not in (None, row.subject_id):
        raise NotFound(f"session {session_id}")
    return row


def _listed(
    table: OwnedTable, workspace_id: str, subject_id: str | None, cursor: ListingCursor | None, limit: int
) -> list[tuple[ListingCursor, OwnedTable]]:
    prefix = listing_prefix(workspace_id, subject_id)
    start = None if cursor is None else listing_key(prefix, cursor.created_at, cursor.session_id)
    with table.store.scan(prefix, start=start, reverse=True) as pairs:
        behind = (key for key, _ in pairs if key != start)
        return [(ListingCursor(*listed(prefix, key)), table) for key in islice(behind, limit)]


def _explained(gaps: list[Gap], found: tuple[Marker, ...]) -> tuple[Gap, ...]:
    """Each gap in the sequences once, with the reason of the record set aside there; further records as empty gaps."""
    explained = {gap.first_sequence: gap for gap in gaps}
    further = []
    for marker in found:
        first = marker.after_sequence + 1
        gap = explained.get(first)
        if gap is not None and gap.offset is None:
            explained[first] = Gap(first, gap.last_sequence, marker.reason, marker.offset)
        else:
            further.append(Gap(first, marker.after_sequence, marker.reason, marker.offset))
    return tuple(sorted([*explained.values(), *further], key=lambda gap: (gap.first_sequence, gap.offset or 0)))
