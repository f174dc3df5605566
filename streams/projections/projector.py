"""The projector: owns partitions of the event log, and keeps their tables at its end.

    assigned ──> store opened, and wiped where it does not fit the log ──> seek to the store's own offset
             ──> read, fold, write ... ──> revoked: no longer served, at once; the store is closed when another owns it

- A store says itself how far it is (`Store.offsets`); the group's committed offsets play no part.
- Callbacks of the group only take notes: stores are opened and closed between two reads.
- A store kept over a rebalance that gives its partition back is used on.
"""

import threading
import time
from collections.abc import Collection
from typing import Final, Protocol

import structlog

from streams.errors import BrokerUnavailable, StoreUnusable
from streams.log.log import Log, Member
from streams.log.reader import Place, Record
from streams.log.topics import Topics
from streams.projections.fold import EVENTS, Fold, take
from streams.projections.keeper import LeaseKeeper
from streams.projections.tables import OwnedTable, Tables
from streams.settings import Settings
from streams.store.store import Store, StoreIdentity

ROLE: Final = "projector"
GROUP: Final = "projector"

_log = structlog.get_logger(__name__)

_BATCH_RECORDS: Final = 2000
_READ_TIMEOUT_S: Final = 0.1
_RETRY_S: Final = 0.5
_PROGRESS_S: Final = 5.0


class Listener(Protocol):
    """Whoever waits for tables to move. Called in the projector's thread; must not block."""

    def advanced(self, table: OwnedTable, awaited: Collection[str]) -> None: ...

    def gone(self, partitions: Collection[int]) -> None: ...


class Projector:
    """One member of the group of projectors. `run` belongs to one thread; `tables` may be read from any."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        tables: Tables,
        keeper: LeaseKeeper,
        listener: Listener,
        *,
        client_id: str,
        joined: threading.Event | None = None,
        fold: Fold | None = None,
    ) -> None:
        """`joined` is set at the first assignment, which may be empty."""
        self._settings = settings
        self._log = log
        self._tables = tables
        self._keeper = keeper
        self._listener = listener
        self._client_id = client_id
        self._fold = fold or Fold()
        self._topic = Topics(settings.topic_prefix).events
        self._stores: dict[int, Store] = {}
        self._progress: dict[int, _Progress] = {}
        self._unsettled = False
        self._cluster_id = ""
        self._joined = joined or threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set. Raises StreamsError of a kind that ends the process; stores are closed either way."""
        self._cluster_id = self._log.cluster_id()
        member = self._log.member(GROUP, self._topic, self._client_id, self._on_assigned, self._on_given_up)
        try:
            while not stop.is_set():
                if self._unsettled:
                    try:
                        self._settle(member)
                    except BrokerUnavailable as error:
                        _log.warning("projector_waits_for_broker", reason=error.detail)
                        stop.wait(_RETRY_S)
                self._advance(member, member.read(_BATCH_RECORDS, _READ_TIMEOUT_S))
                self._rebuild_damaged(member)
        finally:
            member.close()
            self._on_given_up([(self._topic, partition) for partition in self._tables.owned])
            for store in self._stores.values():
                store.close()
            self._stores.clear()

    # -- the group's callbacks, inside `read` ---------------------------------------------------------------------------

    def _on_assigned(self, places: list[Place]) -> dict[Place, int | None]:
        self._unsettled = True
        # Any number will do: `_settle` seeks. Without one the client would look up where the group stands, and may take
        # that answer for its place after the seek.
        return dict.fromkeys(places, 0)

    def _on_given_up(self, places: list[Place]) -> None:
        partitions = [partition for _, partition in places]
        for partition in partitions:
            self._tables.drop(partition)
        self._listener.gone(partitions)

    # -- between two reads ----------------------------------------------------------------------------------------------

    def _settle(self, member: Member) -> None:
        """Closes the stores of partitions that went, opens those that came, and lets the reading begin."""
        owned = {partition for _, partition in member.owned}
        for partition in self._stores.keys() - owned:
            self._stores.pop(partition).close()
        coming = sorted(owned - self._tables.owned.keys())
        if coming:
            places = [(self._topic, partition) for partition in coming]
            ends = self._log.end_offsets(places, committed=False)
            starts = self._log.log_start_offsets(places)
            topic_id = self._log.topic_id(self._topic)
            for place in places:
                self._take(member, place[1], topic_id, starts[place], ends[place])
        self._unsettled = False
        self._joined.set()
        self._keeper.ask_now()
        _log.info("partitions_owned", role=ROLE, topic=self._topic, partitions=sorted(owned))

    def _take(self, member: Member, partition: int, topic_id: str, start: int, end: int) -> None:
        kept = self._stores.pop(partition, None)
        identity = StoreIdentity(ROLE, self._fold.version, self._cluster_id, topic_id, partition)
        if kept is not None and kept.identity != identity:
            kept.close()
            kept = None
        store = kept or Store.open_or_rebuild(self._settings.store_path(ROLE, partition), identity)
        offset = store.offsets().get(EVENTS)
        if offset is not None and not start <= offset <= end:
            _log.warning(
                "store_rebuilt", role=ROLE, partition=partition, topic_id=topic_id,
                reason=f"its offset {offset} is outside of the log, {start} to {end}",
            )  # fmt: skip
            store.wipe()
            store = Store.open(self._settings.store_path(ROLE, partition), identity)
            offset = None
        self._stores[partition] = store
        self._begin(member, partition, store, start if offset is None else offset)

    def _begin(self, member: Member, partition: int, store: Store, offset: int) -> None:
        place = (self._topic, partition)
        member.seek({place: offset})
        table = take(self._tables, partition, store)
        table.reached(offset)
        self._progress[partition] = _Progress(offset)
        member.resume([place])

    def _advance(self, member: Member, records: list[Record]) -> None:
        tables = self._tables.owned
        by_partition: dict[int, list[Record]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        for partition, batch in by_partition.items():
            table = tables.get(partition)
            if table is None:
                continue
            # The table decides what is new to it, wherever the client has begun to read.
            batch = [record for record in batch if record.offset >= table.position]
            if not batch:
                continue
            try:
                applied = self._fold.apply(table, batch)
            except StoreUnusable:
                table.damaged = True
                continue
            self._listener.advanced(table, applied.awaited)
        for partition, table in tables.items():
            # Behind the last record there may be what is never handed out: markers, aborted records.
            position = member.position(self._topic, partition)
            if position is not None and position > table.position and not table.damaged:
                table.reached(position)
                self._listener.advanced(table, ())
            self._progress[partition].tell(table)

    def _rebuild_damaged(self, member: Member) -> None:
        for partition, table in self._tables.owned.items():
            if table.damaged:
                place = (self._topic, partition)
                start = self._log.log_start_offsets([place])[place]
                _log.warning("store_rebuilt", role=ROLE, partition=partition, reason="torn: a row cannot be read or written")
                self._on_given_up([place])
                store = self._stores.pop(partition)
                store.wipe()
                self._stores[partition] = Store.open(store.path, store.identity)
                self._begin(member, partition, self._stores[partition], start)
                self._keeper.ask_now()


class _Progress:
    """Tells how far a table is that has yet to catch up, a line every few seconds, and once when it has."""

    def __init__(self, offset: int) -> None:
        self._began = self._told = time.monotonic()
        self._first = offset
        self._done = False

    def tell(self, table: OwnedTable) -> None:
        if self._done or table.end is None:
            return
        now = time.monotonic()
        if table.lease.ever_held:
            self._done = True
            self._line("partition_caught_up", table, now)
        elif now - self._told >= _PROGRESS_S:
            self._told = now
            self._line("partition_catching_up", table, now)

    def _line(self, event: str, table: OwnedTable, now: float) -> None:
        done = table.position - self._first
        rate = done / max(now - self._began, 1e-3)
        _log.info(
            event, role=ROLE, partition=table.partition, position=table.position, end=table.end, records=done,
            records_per_s=round(rate), seconds=round(now - self._began, 1),
        )  # fmt: skip
