"""Questions to the tables of this process, answered from what is in them now. Waiting is `freshness`'s.

- An answer is given only from a table that is owned and whose lease holds, before and after the reading of it.
- Another workspace's session is not found, in the same words as one that does not exist; so is one of another subject
  than `subject_id`, where that is given.
- Pages are bounded by count and by bytes; one event, however large, always fits.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from schemas.codec import HEADER_BYTES
from streams.errors import Invalid, NotFound
from streams.log.partitioner import partition_of
from streams.projections import checkpoints, runs
from streams.projections.checkpoints import CheckpointRow
from streams.projections.runs import RunRow
from streams.projections.sessions import OPEN, SessionRow, decode_row, listed, listing_key, listing_prefix, row_key
from streams.projections.tables import OwnedTable, Tables
from streams.projections.transcript import Marker, any_set_aside, event_key, events_prefix, markers, sequence_of
from streams.projections.unsettled import decode_unsettled, unsettled_prefix
from streams.query.pages import CheckpointsPage, EventsPage, Gap, ListingCursor, SessionsPage, UnsettledPage, checkpoints_before

MISSING: Final = "sequence.missing"
"""The reason of a gap that no record accounts for."""

LANES_MAX: Final = 16
"""Of one question for Runs."""
_LOOKED_AT_MAX: Final = 20_000
"""Places of a lane that one question looks at: more than it asks for where sessions have closed whose Runs are still taken out."""
_SLICE_EVENTS: Final = 500
_SLICE_BYTES: Final = 1 << 20


class _Place(NamedTuple):
    """Where a Run stands in its lane, the oldest first, and the key of its row."""

    accepted_at: int
    key: bytes
    partition: int


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
        tables = [self._tables.serving(partition) for partition in self.checked(partitions)]
        places: list[tuple[ListingCursor, int]] = []
        for partition in partitions:
            with self._tables.reading(partition) as table:
                places += _listed(table, workspace_id, subject_id, cursor, limit + 1)
        places.sort(reverse=True)
        values = []
        for place, partition in places[:limit]:
            # Each on its own: a row that cannot be read is held against its own table.
            with self._tables.reading(partition) as table:
                values.append(table.store.get(row_key(place.session_id)))
        for table in tables:
            self._tables.still(table)
        rows = tuple(decode_row(value) for value in values if value is not None)
        return SessionsPage(rows, str(places[limit - 1][0]) if len(places) > limit else None)

    def named_event(
        self, workspace_id: str, session_id: str, event_id: str, subject_id: str | None = None, *, through: int | None = None
    ) -> tuple[int | None, int]:
        """Looks for an event among the last few up to `through` (default: the session's end), without decoding them.

        Its sequence, or None; and the `through` of what was not looked at yet, 0 at the session's beginning. Raises as `session`.
        """
        sought = chr(2 * len(event_id)).encode() + event_id.encode()
        with self._tables.reading(self.partition(session_id)) as table:
            row = _row(table, workspace_id, session_id, subject_id)
            last = row.sequence if through is None else min(through, row.sequence)
            looked_bytes = 0
            with table.store.scan(events_prefix(session_id), start=event_key(session_id, last), reverse=True) as pairs:
                for count, (key, value) in enumerate(pairs, 1):
                    sequence = sequence_of(key)
                    if value.startswith(sought, HEADER_BYTES):
                        return sequence, sequence - 1
                    looked_bytes += len(value)
                    if count == _SLICE_EVENTS or looked_bytes > _SLICE_BYTES:
                        return None, sequence - 1
        return None, 0

    # -- checkpoints and Runs -------------------------------------------------------------------------------------------

    def checkpoints(
        self, workspace_id: str, session_id: str, subject_id: str | None = None, *, cursor: str | None, limit: int
    ) -> CheckpointsPage:
        """Newest first, from behind `cursor`. Raises as `session`, or `Invalid`."""
        before = checkpoints_before(cursor)
        start = None if before is None else checkpoints.listed_key(session_id, before)
        with self._tables.reading(self.partition(session_id)) as table:
            _row(table, workspace_id, session_id, subject_id)
            with table.store.scan(checkpoints.checkpoints_prefix(session_id), start=start, reverse=True) as pairs:
                behind = (value for key, value in pairs if key != start)
                rows = [checkpoints.decode_checkpoint(value) for value in islice(behind, limit + 1)]
        return CheckpointsPage(tuple(rows[:limit]), str(rows[limit - 1].sequence) if len(rows) > limit else None)

    def checkpoint(self, workspace_id: str, session_id: str, checkpoint_id: str, subject_id: str | None = None) -> CheckpointRow:
        """Raises as `session`."""
        with self._tables.reading(self.partition(session_id)) as table:
            _row(table, workspace_id, session_id, subject_id)
            value = table.store.get(checkpoints.checkpoint_key(session_id, checkpoint_id))
        if value is None:
            raise NotFound(f"session {session_id} has no checkpoint {checkpoint_id}")
        return checkpoints.decode_checkpoint(value)

    def run(self, workspace_id: str, session_id: str, run_id: str, subject_id: str | None = None) -> RunRow:
        """Raises as `session`."""
        with self._tables.reading(self.partition(session_id)) as table:
            _row(table, workspace_id, session_id, subject_id)
            value = table.store.get(runs.run_key(session_id, run_id))
        if value is None:
            raise NotFound(f"session {session_id} has no run {run_id}")
        return runs.decode_run(value)

    def unsettled(self, workspace_id: str, session_id: str, subject_id: str | None = None, *, limit: int) -> UnsettledPage:
        """At most `limit` things. Raises as `session`."""
        with self._tables.reading(self.partition(session_id)) as table:
            row = _row(table, workspace_id, session_id, subject_id)
            with table.store.scan(unsettled_prefix(session_id)) as pairs:
                items = [decode_unsettled(value) for _, value in islice(pairs, limit + 1)]
            gaps = table.gaps and any_set_aside(table.store, session_id)
        return UnsettledPage(row, tuple(items[:limit]), len(items) > limit, gaps)

    def claimable(
        self, workspace_id: str, lanes: Collection[str], subject_id: str | None, *,
        partitions: Collection[int], limit: int, start: runs.LanePlace | None = None,
    ) -> tuple[RunRow, ...]:  # fmt: skip
        """Runs of the lanes that may be claimed, oldest first, from the place `start` on. Raises as `session`, or `Invalid`."""
        tables = [self._tables.serving(partition) for partition in self.checked(partitions)]
        found: list[RunRow] = []
        is_open: dict[str, bool] = {}
        with ExitStack() as scans:
            prefixes = [runs.lane_prefix(workspace_id, subject_id, lane) for lane in dict.fromkeys(lanes)]
            waiting = [
                scans.enter_context(closing(self._waiting(table.partition, prefix, start))) for table in tables for prefix in prefixes
            ]
            # No row is read before its turn: of most places in most partitions none is.
            places = merge(*waiting)
            while len(found) < limit and (some := list(islice(places, limit - len(found)))):
                found += self._still_waiting(some, subject_id, is_open)
        for table in tables:
            self._tables.still(table)
        return tuple(found)

    def _waiting(self, partition: int, prefix: bytes, start: runs.LanePlace | None) -> Generator[_Place]:
        """The places of one lane, oldest first."""
        first = None if start is None else runs.lane_key(prefix, start)
        with self._tables.reading(partition) as table, table.store.scan(prefix, start=first) as pairs:
            for key, _ in islice(pairs, _LOOKED_AT_MAX):
                yield _Place(*runs.waiting_at(prefix, key), partition)

    def _still_waiting(self, places: Sequence[_Place], subject_id: str | None, is_open: dict[str, bool]) -> list[RunRow]:
        """The Runs at these places, in their order, but for those whose session closed or that changed since the place was read."""
        rows: dict[bytes, RunRow] = {}
        for partition in {place.partition for place in places}:
            keys = {place.key: runs.session_of(place.key) for place in places if place.partition == partition}
            with self._tables.reading(partition) as table:
                _look_up(table, keys.values(), subject_id, is_open)
                left = [key for key, session_id in keys.items() if is_open[session_id]]
                for key, value in zip(left, table.store.get_many(left), strict=True):
                    if value is not None:
                        rows[key] = runs.decode_run(value)
        return [row for place in places if (row := rows.get(place.key)) is not None and row.may_be_claimed]

    def claimed(self, workspace_id: str, claim_digest: str, subject_id: str | None, *, partitions: Collection[int]) -> tuple[RunRow, ...]:
        """Runs of open sessions whose live attempt has this digest: at most one, but for claims that were sent at the same time.

        Raises as `session`, or `Invalid`.
        """
        prefix, found = runs.claim_prefix(workspace_id, claim_digest), []
        for partition in self.checked(partitions):
            with self._tables.reading(partition) as table:
                with table.store.scan(prefix) as pairs:
                    keys = [runs.held_at(prefix, key) for key, _ in islice(pairs, _LOOKED_AT_MAX)]
                rows = [runs.decode_run(value) for value in table.store.get_many(keys) if value is not None]
                held = [row for row in rows if row.is_held]
                is_open: dict[str, bool] = {}
                _look_up(table, [row.session_id for row in held], subject_id, is_open)
                found += [row for row in held if is_open[row.session_id]]
        return tuple(found)

    def checked(self, partitions: Collection[int]) -> Collection[int]:
        """The same. Raises `Invalid` (request.malformed) where one of them is none."""
        if not all(0 <= partition < self._partitions for partition in partitions):
            raise Invalid("partitions: out of range", code="request.malformed")
        return partitions


def _look_up(table: OwnedTable, session_ids: Iterable[str], subject_id: str | None, is_open: dict[str, bool]) -> None:
    """Tells of those sessions of which `is_open` does not tell yet whether they are open, and the subject's where one is given."""
    new = [session_id for session_id in dict.fromkeys(session_ids) if session_id not in is_open]
    for session_id, value in zip(new, table.store.get_many([row_key(each) for each in new]), strict=True):
        row = None if value is None else decode_row(value)
        is_open[session_id] = row is not None and row.status == OPEN and subject_id in (None, row.subject_id)


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
) -> list[tuple[ListingCursor, int]]:
    prefix = listing_prefix(workspace_id, subject_id)
    start = None if cursor is None else listing_key(prefix, cursor.created_at, cursor.session_id)
    with table.store.scan(prefix, start=start, reverse=True) as pairs:
        behind = (key for key, _ in pairs if key != start)
        return [(ListingCursor(*listed(prefix, key)), table.partition) for key in islice(behind, limit)]


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
