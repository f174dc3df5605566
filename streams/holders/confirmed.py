"""Follows what holders say, from the beginning of what the topic still has.

A process that says nothing for some leases is forgotten: what it had in memory is old by then.
"""

import threading
from collections import OrderedDict
from typing import Final

import structlog
from msgspec import Struct

from streams.clock import boottime_s, now_us
from streams.errors import BrokerUnavailable, RecordUnreadable, StreamsError
from streams.log.confirmations import ConfirmationLog
from streams.log.reader import EndOffsets, PartitionReader, log_start_offsets
from streams.log.retention import CACHE, PARTITION, SINK, Confirmation, Purged, decode_confirmation
from streams.log.topics import Topics
from streams.settings import Settings

_ORDERS_MAX: Final = 50_000
"""Orders whose reports are kept."""
_LEASES: Final = 3
_READ_S: Final = 0.02
_HURRIED_S: Final = 0.05
_log = structlog.get_logger(__name__)


class CacheSeen(Struct, frozen=True):
    """`heard_s` by `boottime_s`."""

    enforced_through: int
    heard_s: float


class Confirmations:
    """What was said, by holder. Not thread-safe: `ConfirmationFollower` is."""

    def __init__(self, lease_s: float) -> None:
        self._forgotten_s = _LEASES * lease_s
        self.caches: dict[str, CacheSeen] = {}
        self.partitions: dict[str, int] = {}
        self.sinks: dict[str, int] = {}
        self.sinks_left: set[str] = set()
        """Taken off the list by hand (`remove_sink`)."""
        self.reports: OrderedDict[int, dict[str, Purged]] = OrderedDict()

    def apply(self, told: Confirmation, now_s: float) -> None:
        if told.kind == CACHE:
            if told.leaving:
                self.caches.pop(told.holder_id, None)
            else:
                self.caches[told.holder_id] = CacheSeen(told.enforced_through, now_s)
        elif told.kind == PARTITION:
            # Of two processes the later one may tell less, until it has caught up.
            self.partitions[told.holder_id] = told.purged_through
        elif told.kind == SINK:
            if told.leaving:
                self.sinks.pop(told.holder_id, None)
                self.sinks_left.add(told.holder_id)
            else:
                self.sinks[told.holder_id] = told.purged_through
                self.sinks_left.discard(told.holder_id)
        for report in told.purged:
            of_order = self.reports.setdefault(report.order, {})
            of_order[told.holder_id] = _with(of_order.get(told.holder_id), report)
            while len(self.reports) > _ORDERS_MAX:
                self.reports.popitem(last=False)

    def prune(self, now_s: float) -> None:
        silent = [holder for holder, seen in self.caches.items() if now_s - seen.heard_s > self._forgotten_s]
        for holder in silent:
            del self.caches[holder]


def _with(before: Purged | None, told: Purged) -> Purged:
    """A store that was made anew tells only what was left: what it told before stays true."""
    if before is None:
        return told
    counts = {what: max(before.counts.get(what, 0), told.counts.get(what, 0)) for what in {**before.counts, **told.counts}}
    return Purged(order=told.order, counts=counts, tombstones_at=max(before.tombstones_at or 0, told.tombstones_at or 0) or None)


class ConfirmationFollower:
    """In a thread, until `close`. `known_as_of_s` (by `boottime_s`): everything that was said until then is known."""

    def __init__(self, settings: Settings, role: str) -> None:
        """Raises `BrokerUnavailable`."""
        self._place = (Topics(settings.topic_prefix).confirmations, 0)
        self._lease_s = settings.lease_s
        self._ends = EndOffsets(settings, f"{role}.confirmations")
        self._reader = PartitionReader(settings, f"{role}.confirmations", log_start_offsets(settings, [self._place]))
        self._said = Confirmations(settings.lease_s)
        self._lock = threading.Lock()
        self.known_as_of_s = float("-inf")
        self.hurried = False
        """Whether somebody waits for what is said next: the end is asked for more often then."""
        self.failed: StreamsError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="confirmations", daemon=True)
        self._thread.start()

    def caches(self) -> dict[str, int]:
        """Holder -> the order up to which nothing destroyed is readable there."""
        with self._lock:
            self._said.prune(boottime_s())
            return {holder: seen.enforced_through for holder, seen in self._said.caches.items()}

    def partitions(self) -> dict[str, int]:
        with self._lock:
            return dict(self._said.partitions)

    def sinks(self) -> dict[str, int]:
        with self._lock:
            return dict(self._said.sinks)

    def sinks_left(self) -> set[str]:
        with self._lock:
            return set(self._said.sinks_left)

    def reports(self, order: int) -> dict[str, Purged]:
        with self._lock:
            return dict(self._said.reports.get(order, {}))

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        asked_s, end, next_ask_s = 0.0, None, 0.0
        with self._reader as reader:
            while not self._closing.is_set():
                try:
                    if end is None and boottime_s() >= min(next_ask_s, asked_s + (_HURRIED_S if self.hurried else self._lease_s)):
                        asked_s = boottime_s()
                        next_ask_s = asked_s + (_HURRIED_S if self.hurried else self._lease_s / 4)
                        end = self._ends.query([self._place], committed=False)[self._place]
                    self._apply(reader)
                except BrokerUnavailable as error:
                    _log.warning("confirmations_interrupted", reason=error.detail)
                    continue
                except StreamsError as error:
                    self.failed = error
                    _log.error("confirmations_failed", reason=error.detail)
                    return
                if end is not None and reader.position(*self._place) >= end:
                    self.known_as_of_s, end = asked_s, None

    def _apply(self, reader: PartitionReader) -> None:
        records = reader.read(1000, _READ_S)
        with self._lock:
            for record in records:
                try:
                    if record.value is not None:
                        self._said.apply(decode_confirmation(record.value), boottime_s())
                except RecordUnreadable as error:
                    _log.error("confirmation_unreadable", offset=record.offset, reason=error.detail)


def remove_sink(settings: Settings, holder_id: str) -> None:
    """Nobody waits for it any more: what it still holds is no longer this installation's to erase. Raises `BrokerUnavailable`."""
    log = ConfirmationLog(settings, "holders")
    try:
        log.tell_now(
            Confirmation(
                holder_id=holder_id, kind=SINK, process="operator", enforced_through=0, purged_through=0, leaving=True, told_at=now_us()
            )
        )  # fmt: skip
    finally:
        log.close()
