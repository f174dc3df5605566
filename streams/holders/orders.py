"""All orders to erase, from the topic's beginning on, for those whose stores have to follow every one of them.

An order is about 200 bytes in memory: a hundred thousand erasures hold 20 MB. Expired days are not among them: what is sealed under a
day opens no more once its secret is gone, and no row goes with it.
"""

import threading
from bisect import bisect_right
from typing import Final

import structlog

from streams.errors import BrokerUnavailable, StreamsError
from streams.holders.caches import orders_in
from streams.log.reader import EndOffsets, PartitionReader, log_start_offsets
from streams.log.retention import REISSUE, SESSION, SUBJECT, Order
from streams.log.topics import Topics
from streams.settings import Settings

_FOLLOWED: Final = frozenset({SUBJECT, SESSION, REISSUE})
_READ_S: Final = 0.1
_LOADED_S: Final = 30.0
_log = structlog.get_logger(__name__)


class Orders:
    """What is known of them. One thread adds, any may ask."""

    def __init__(self) -> None:
        self._orders: list[Order] = []
        self._numbers: list[int] = []
        self._erased: dict[str, int] = {}

    @property
    def reached(self) -> int:
        """The last order's number; all before it are known, too."""
        return self._numbers[-1] if self._numbers else 0

    def add(self, order: Order) -> None:
        """In the topic's order; one that is known is passed over."""
        if order.kind not in _FOLLOWED or order.order <= self.reached:
            return
        if order.kind != REISSUE:
            self._erased.setdefault(order.id, order.order)
        self._orders.append(order)
        self._numbers.append(order.order)

    def after(self, order: int, limit: int) -> list[Order]:
        """The next ones."""
        start = bisect_right(self._numbers, order)
        return self._orders[start : start + limit]

    def is_erased(self, identifier: str | None) -> bool:
        """Whether this subject or session is erased: a look-up in memory. Ids are random, so none is of two workspaces."""
        return identifier in self._erased

    def number_of(self, identifier: str) -> int | None:
        """Of the order by which it was erased first."""
        return self._erased.get(identifier)


class OrderFollower(Orders):
    """Follows the topic in a thread, until `close`."""

    def __init__(self, settings: Settings, role: str) -> None:
        """Raises `BrokerUnavailable`."""
        super().__init__()
        self._place = (Topics(settings.topic_prefix).retention, 0)
        self._ends = EndOffsets(settings, f"{role}.orders")
        self._reader = PartitionReader(settings, f"{role}.orders", log_start_offsets(settings, [self._place]))
        self.failed: StreamsError | None = None
        self._loaded, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="orders", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def require_loaded(self, timeout_s: float = _LOADED_S) -> None:
        """Returns once everything is known that was ordered when it began: nothing is to be decided from it sooner. Raises
        `BrokerUnavailable`, or what ended the following."""
        if not self._loaded.wait(timeout_s):
            raise self.failed or BrokerUnavailable("reading what is erased: timed out")

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        end: int | None = None
        with self._reader as reader:
            while not self._closing.is_set():
                try:
                    if end is None and not self._loaded.is_set():
                        end = self._ends.query([self._place], committed=False)[self._place]
                    for order in orders_in(reader.read(1000, _READ_S)):
                        self.add(order)
                except BrokerUnavailable as error:
                    _log.warning("orders_interrupted", reason=error.detail)
                    continue
                except StreamsError as error:
                    self.failed = error
                    _log.error("orders_failed", reason=error.detail)
                    return
                if end is not None and reader.position(*self._place) >= end:
                    self._loaded.set()
                    end = None
