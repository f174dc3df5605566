"""Brings one partition's store up to its changelog, a bounded piece at a time, so that the member goes on polling.

A store that has much to read is opened for filling meanwhile: what a kill takes from it, it takes with its offsets.

The end is the high watermark (read uncommitted) as it was when the restore began, and the committed reader must reach
it: a reader that takes the last stable offset for the end, while a predecessor's transaction still hangs, restores
stale state.
"""

import time
from collections.abc import Callable

import structlog

from streams.clock import now_us
from streams.errors import BrokerUnavailable, StoreUnusable
from streams.log.log import Log
from streams.log.reader import Row
from streams.loop.crash import Crash, CrashPoint
from streams.loop.handler import Handler
from streams.settings import Settings
from streams.store.table import Table

_log = structlog.get_logger(__name__)

CHANGELOG = "changelog"
INPUT = "input"
WRITTEN_AT_MS = "written_at_ms"
"""Names under which a store keeps its offsets (next to read), and when it was last written."""

_BATCH = 5000
"""Records of one write batch."""
_FILLED_FROM = 20_000
"""To read so many offsets takes longer than to open a store twice."""
_TOLD_EVERY_S = 5.0


class Restore:
    """One partition's restore. `step` until it answers True, then `close`."""

    def __init__(
        self,
        log: Log,
        handler: Handler,
        partition: int,
        store: Table,
        crash: Crash,
        *,
        horizon_s: float = Settings.tombstone_horizon_s,
        fill_from: int = _FILLED_FROM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`horizon_s`: how long the changelog keeps tombstones; a store that was away for longer may have missed one. `fill_from`:
        offsets to read from which on it is worth opening the store for filling. `clock`: of what is told.

        Raises `BrokerUnavailable`, and `StoreUnusable` where the store's offsets do not fit the changelog.
        """
        self._handler, self._partition, self._store, self._crash = handler, partition, store, crash
        self._begun_ms, self._horizon_ms = now_us() // 1000, horizon_s * 1000
        place = (handler.changelog, partition)
        self._end = log.end_offsets([place], committed=False)[place]
        log_start = log.log_start_offsets([place])[place]
        start = self._start(log_start)
        self._first = start
        self._clock, self._records = clock, 0
        self._begun_s = self._reported_s = clock()
        if self._end - start >= fill_from:
            store.begin_filling()
        self._reader = log.reader(handler.role, {place: start})

    def _start(self, log_start: int) -> int:
        offsets = self._store.offsets()
        start = offsets.get(CHANGELOG, log_start)
        age_ms = self._begun_ms - offsets.get(WRITTEN_AT_MS, self._begun_ms)
        if start > self._end or start < log_start:
            raise StoreUnusable(f"its changelog offset {start} is outside {log_start}..{self._end}")
        if age_ms > self._horizon_ms:
            raise StoreUnusable("it was last written before the tombstone horizon")
        return start

    def step(self, budget_s: float) -> bool:
        """Applies what arrives within the budget; True once the end is reached. Raises StreamsError."""
        deadline = time.monotonic() + budget_s
        while not self._finished():
            try:
                rows = self._reader.read_rows(_BATCH, max(0.0, min(0.1, deadline - time.monotonic())))
            except BrokerUnavailable as error:
                _log.warning("restore_interrupted", role=self._handler.role, partition=self._partition, reason=error.detail)
                rows = []
            if rows:
                self._write(rows, whole=False)
                self._records += len(rows)
                self._crash.reached(CrashPoint.IN_RESTORE)
            if time.monotonic() >= deadline:
                break
        finished = self._finished()
        if finished:
            self._write([], whole=True)
            self._store.end_filling()
        self._report(finished)
        return finished

    def close(self) -> None:
        self._reader.close()

    def _finished(self) -> bool:
        return self._reader.position(self._handler.changelog, self._partition) >= self._end

    def _write(self, rows: list[Row], *, whole: bool) -> None:
        puts: dict[bytes, bytes | None] = {}

        def get(key: bytes) -> bytes | None:
            # What an earlier record of this batch put is not in the store yet.
            return puts[key] if key in puts else self._store.get(key)

        puts.update(self._handler.restored(get, rows))
        offsets = {CHANGELOG: self._reader.position(self._handler.changelog, self._partition)}
        if whole or WRITTEN_AT_MS not in self._store.offsets():
            # A store that is part of the way is as old as before: what it has not read may have lost a tombstone since.
            offsets[WRITTEN_AT_MS] = self._begun_ms
        self._store.write(puts.items(), offsets)

    def _report(self, finished: bool) -> None:
        """A line every few seconds, and one at the end. Offsets have holes, so what is left is told in offsets."""
        now_s = self._clock()
        if finished or now_s - self._reported_s >= _TOLD_EVERY_S:
            self._reported_s = now_s
            position, seconds = self._reader.position(self._handler.changelog, self._partition), now_s - self._begun_s
            _log.info(
                "store_restored" if finished else "store_restoring",
                role=self._handler.role,
                partition=self._partition,
                records=self._records,
                records_per_s=round(self._records / max(seconds, 1e-3)),
                position=position,
                end=self._end,
                percent=100 if finished else 100 * (position - self._first) // max(1, self._end - self._first),
                seconds=round(seconds, 3),
            )
