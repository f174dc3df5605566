"""Brings one partition's store up to its changelog, a bounded piece at a time, so that the member goes on polling.

The end is the high watermark (read uncommitted) as it was when the restore began, and the committed reader must reach
it: a reader that takes the last stable offset for the end, while a predecessor's transaction still hangs, restores
stale state.
"""

import time
from collections.abc import Iterator

import structlog

from streams.clock import now_us
from streams.errors import BrokerUnavailable
from streams.log.log import Log
from streams.log.reader import Record
from streams.log.topics import TOMBSTONE_HORIZON_MS
from streams.loop.crash import Crash, CrashPoint
from streams.loop.handler import Handler
from streams.store.store import Store

_log = structlog.get_logger(__name__)

CHANGELOG = "changelog"
INPUT = "input"
WRITTEN_AT_MS = "written_at_ms"
"""Names under which a store keeps its offsets (next to read), and when it was last written."""

_BATCH = 5000


class Restore:
    """One partition's restore. `step` until it answers True, then `close`."""

    def __init__(self, log: Log, handler: Handler, partition: int, store: Store, crash: Crash) -> None:
        """Raises `BrokerUnavailable`."""
        self._handler, self._partition, self._store, self._crash = handler, partition, store, crash
        place = (handler.changelog, partition)
        self._end = log.end_offsets([place], committed=False)[place]
        log_start = log.log_start_offsets([place])[place]
        start = self._start(log_start)
        self._begun_s, self._records, self._reported_s = time.monotonic(), 0, time.monotonic()
        self._reader = log.reader(handler.role, {place: start})

    def _start(self, log_start: int) -> int:
        offsets = self._store.offsets()
        start = offsets.get(CHANGELOG, log_start)
        age_ms = now_us() // 1000 - offsets.get(WRITTEN_AT_MS, 0)
        reason = None
        if start > self._end or start < log_start:
            reason = f"its changelog offset {start} is outside {log_start}..{self._end}"
        elif offsets and age_ms > TOMBSTONE_HORIZON_MS:
            reason = "it was last written before the tombstone horizon"
        if reason is None:
            return start
        _log.warning("store_rebuilt", role=self._handler.role, partition=self._partition, reason=reason)
        self._store.wipe()
        return log_start

    def step(self, budget_s: float) -> bool:
        """Applies what arrives within the budget; True once the end is reached. Raises StreamsError."""
        deadline = time.monotonic() + budget_s
        while not self._finished():
            try:
                records = self._reader.read(_BATCH, max(0.0, min(0.1, deadline - time.monotonic())))
            except BrokerUnavailable as error:
                _log.warning("restore_interrupted", role=self._handler.role, partition=self._partition, reason=error.detail)
                records = []
            if records:
                self._store.write(self._puts(records), self._offsets())
                self._records += len(records)
                self._crash.reached(CrashPoint.IN_RESTORE)
            if time.monotonic() >= deadline:
                break
        finished = self._finished()
        if finished:
            self._store.write((), self._offsets())
        self._report(finished)
        return finished

    def close(self) -> None:
        self._reader.close()

    def _finished(self) -> bool:
        return self._reader.position(self._handler.changelog, self._partition) >= self._end

    def _offsets(self) -> dict[str, int]:
        position = self._reader.position(self._handler.changelog, self._partition)
        return {CHANGELOG: position, WRITTEN_AT_MS: now_us() // 1000}

    def _puts(self, records: list[Record]) -> Iterator[tuple[bytes, bytes | None]]:
        for record in records:
            yield from self._handler.restored(self._store, record)

    def _report(self, finished: bool) -> None:
        now_s = time.monotonic()
        if finished or now_s - self._reported_s >= 5:
            self._reported_s = now_s
            _log.info(
                "store_restored" if finished else "store_restoring",
                role=self._handler.role,
                partition=self._partition,
                records=self._records,
                position=self._reader.position(self._handler.changelog, self._partition),
                end=self._end,
                seconds=round(now_s - self._begun_s, 3),
            )
