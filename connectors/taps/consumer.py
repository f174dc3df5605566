"""How Faust reads for a tap: committed records, and from where the tables stand instead of from committed offsets.

Rules: a partition that is assigned is read from its tables' `next_offset` on, from the log's beginning where there are
none. What Faust acknowledges (past an exception too) and commits decides nothing: it only shows other tools how far the
group is.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar, Final

import aiokafka
from faust.transport.drivers import aiokafka as driver

from connectors.taps.clients import new_consumer
from streams.settings import Settings

NextOffset = Callable[[int], int]
"""By partition: the first offset that its tables have not counted; 0 where nothing is counted."""

_POSITION_TIMEOUT_S: Final = 5.0


class TapConsumer(driver.Consumer):
    """Faust's consumer of one app; `transport_for` names the app's settings and tables."""

    settings: ClassVar[Settings]
    next_offset: ClassVar[NextOffset]

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Called when partitions were assigned, and when a read came in while the flow stood still."""
        assigned = self.assignment()
        for place, earliest in (await self.earliest_offsets(*assigned)).items():
            await self.seek(place, max(earliest, type(self).next_offset(place.partition)))

    async def has_read(self, partition: int, end: int, *, counted: int) -> bool:
        """Whether everything below `end` was fetched, markers passed, and counted."""
        for place in self.assignment():
            if place.partition == partition:
                try:
                    position = await asyncio.wait_for(self.position(place), _POSITION_TIMEOUT_S)
                except TimeoutError:
                    return False
                handed_out = self._read_offset[place] or 0
                return position is not None and position >= end and handed_out <= counted
        return False


class _Thread(driver.AIOKafkaConsumerThread):
    consumer: TapConsumer

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        # Faust's own reads committed records only along with its transactions, which a tap has no use for.
        return new_consumer(self.consumer.settings)


def transport_for(settings: Settings, next_offset: NextOffset) -> type[driver.Transport]:
    """The transport class of an app whose tables answer `next_offset`."""
    consumer = type("TapConsumer", (TapConsumer,), {"settings": settings, "next_offset": staticmethod(next_offset)})
    return type("TapTransport", (driver.Transport,), {"Consumer": consumer})
