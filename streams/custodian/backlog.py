"""How far the sessions' log went when an order became known: a partition says that it holds nothing of what was erased only once it has
read so far. What is accepted later arms again (`following.py`)."""

import threading
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final

import structlog

from streams.errors import StreamsError
from streams.holders.orders import Orders
from streams.log.reader import EndOffsets
from streams.log.topics import Topics
from streams.settings import Settings

_SAMPLES_MAX: Final = 64
_LOOK_S: Final = 0.1
_log = structlog.get_logger(__name__)


class Backlog:
    """What is known of it. One thread notes, another asks."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Mapping[int, int]]] = deque()
        self.known = 0
        """Of orders up to this one it is known how far the log went then."""

    def note(self, order: int, ends: Mapping[int, int]) -> None:
        """`ends`: partition -> its end, asked for once the order was known."""
        samples = self._samples
        if len(samples) >= _SAMPLES_MAX:
            # The latest ones least: where orders never end, one that is some seconds old is reached all the same.
            samples = deque(islice(samples, 0, None, 2))
        samples.append((order, ends))
        self._samples, self.known = samples, order

    def covered(self, partition: int, position: int) -> int:
        """The last order, of those that were asked about, whose backlog lies below a position of the partition; 0: of none."""
        return max((order for order, ends in tuple(self._samples) if ends.get(partition, 0) <= position), default=0)


class BacklogFollower(Backlog):
    """Asks for the log's ends whenever there is a new order, in a thread, until `close`."""

    def __init__(self, settings: Settings, role: str, orders: Orders) -> None:
        super().__init__()
        self._orders, self._ends = orders, EndOffsets(settings, f"{role}.backlog")
        topic = Topics(settings.topic_prefix).events
        self._places = [(topic, partition) for partition in range(settings.partitions)]
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="backlog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closing.wait(_LOOK_S):
            reached = self._orders.reached
            if reached <= self.known:
                continue
            try:
                # What an open transaction has written counts: it may be committed after the order.
                ends = self._ends.query(self._places, committed=False)
            except StreamsError as error:
                _log.warning("backlog_unknown", reason=error.detail)
                continue
            self.note(reached, {partition: end for (_, partition), end in ends.items()})
