"""Follows a compacted topic whole: a table in memory that says how fresh it is."""

import threading
import time

import structlog

from streams.clock import boottime_s
from streams.errors import BrokerUnavailable, StreamsError
from streams.log.reader import EndOffsets, PartitionReader, log_start_offsets
from streams.settings import Settings

_log = structlog.get_logger(__name__)


class CompactedFollower:
    """One-partition topics. `rows` is replaced, never changed in place, so a reader keeps a consistent table."""

    def __init__(self, settings: Settings, role: str, topic: str) -> None:
        """Raises `BrokerUnavailable`."""
        self._place = (topic, 0)
        self._lease_s = settings.lease_s
        self._ends = EndOffsets(settings, role)
        self._reader = PartitionReader(settings, f"{role}.{topic}", log_start_offsets(settings, [self._place]))
        self.rows: dict[bytes, bytes] = {}
        self._fresh_until_s = 0.0
        self.failed: StreamsError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"follow-{topic}", daemon=True)
        self._thread.start()

    @property
    def fresh(self) -> bool:
        """Whether the table held, less than a lease ago, everything that was committed then."""
        return boottime_s() < self._fresh_until_s

    def wait_fresh(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self.fresh and time.monotonic() < deadline and self._thread.is_alive():
            time.sleep(0.01)
        return self.fresh

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        asked_s, end, next_ask_s = 0.0, None, 0.0
        with self._reader as reader:
            while not self._closing.is_set():
                try:
                    if end is None and boottime_s() >= next_ask_s:
                        asked_s = boottime_s()
                        next_ask_s = asked_s + self._lease_s / 4
                        end = self._ends.query([self._place], committed=True)[self._place]
                    self._apply(reader)
                except BrokerUnavailable as error:
                    _log.warning("follower_interrupted", topic=self._place[0], reason=error.detail)
                    continue
                except StreamsError as error:
                    self.failed = error
                    _log.error("follower_failed", topic=self._place[0], reason=error.detail)
                    return
                if end is not None and reader.position(*self._place) >= end:
                    self._fresh_until_s = asked_s + self._lease_s
                    end = None

    def _apply(self, reader: PartitionReader) -> None:
        records = reader.read(1000, 0.05)
        if not records:
            return
        rows = dict(self.rows)
        for record in records:
            if record.key is None:
                continue
            if record.value is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = record.value
        self.rows = rows
