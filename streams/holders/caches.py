"""A process that keeps secrets in memory: it forgets what an order names, and says so.

It registers before it caches anything, and then follows from where the topic ends: what was destroyed before, it cannot load. Where it
is not heard of, nobody waits for it longer than a lease, since what it has cached lives no longer (design 04, "Caches live for a lease").
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from streams.clock import boottime_s, now_us
from streams.errors import BrokerUnavailable, RecordUnreadable, StreamsError
from streams.log.confirmations import ConfirmationLog
from streams.log.reader import PartitionReader, Record, end_offsets, log_start_offsets
from streams.log.requests import new_reply_to
from streams.log.retention import CACHE, Confirmation, Order, decode_retention, order_of
from streams.log.topics import Topics
from streams.settings import Settings

_BEFORE: Final = 200
"""Offsets before the end that are read at the start, to know where the orders stand: to forget what nobody has harms nobody."""
_READ_S: Final = 0.1
_log = structlog.get_logger(__name__)


class CacheHolder:
    """From its making until `close`. `forget` is called from its thread."""

    def __init__(self, settings: Settings, role: str, forget: Callable[[Sequence[Order]], None]) -> None:
        """Raises `BrokerUnavailable` where it cannot register."""
        self.process = new_reply_to(f"{role}.{settings.instance}")
        self._forget, self._heartbeat_s = forget, settings.lease_s / 3
        self._enforced = 0
        self._log = ConfirmationLog(settings, role)
        place = (Topics(settings.topic_prefix).retention, 0)
        try:
            self._log.tell_now(self._confirmation())
            end = end_offsets(settings, [place], committed=False)[place]
            start = log_start_offsets(settings, [place])[place]
        except StreamsError:
            self._log.close()
            raise
        self._reader = PartitionReader(settings, f"{role}.retention", {place: max(start, end - _BEFORE)})
        self.failed: StreamsError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="retention-holder", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Says that it holds nothing any more."""
        self._closing.set()
        self._thread.join()
        self._log.tell(self._confirmation(leaving=True))
        self._log.close()

    def _follow(self) -> None:
        told_s = boottime_s()
        with self._reader as reader:
            while not self._closing.is_set():
                try:
                    records = reader.read(1000, _READ_S)
                except BrokerUnavailable as error:
                    _log.warning("retention_interrupted", reason=error.detail)
                    records = []
                except StreamsError as error:
                    self.failed = error
                    _log.error("retention_failed", reason=error.detail)
                    return
                orders = orders_in(records)
                if orders:
                    self._forget(orders)
                    self._enforced = max(self._enforced, orders[-1].order)
                if orders or boottime_s() - told_s >= self._heartbeat_s:
                    told_s = boottime_s()
                    self._log.tell(self._confirmation())
                self._log.serve()

    def _confirmation(self, *, leaving: bool = False) -> Confirmation:
        return Confirmation(
            holder_id=self.process, kind=CACHE, process=self.process, enforced_through=self._enforced, purged_through=self._enforced,
            leaving=leaving, told_at=now_us(),
        )  # fmt: skip


def orders_in(records: Sequence[Record]) -> list[Order]:
    """What a holder has to follow, in order. A row that cannot be read is told of and passed over: no holder can do better, and the
    custodian waits no longer than a lease for those that keep secrets."""
    found = []
    for record in records:
        if record.value is None:
            continue
        try:
            order = order_of(decode_retention(record.value))
        except RecordUnreadable as error:
            _log.error("retention_unreadable", offset=record.offset, reason=error.detail)
            continue
        if order is not None:
            found.append(order)
    return found
