"""The Faust app: one agent folds `sessions.events` into tables, one page shows them.

Rules: one record at a time, in order (`concurrency=1`, no `take`); an exception in the fold ends the process, since
Faust would acknowledge the record and go on without it; no producer is started and no topic is made.
"""

from typing import ClassVar

import faust
import msgspec
import structlog
from faust.app.base import BootStrategy
from faust.exceptions import ConsumerNotStarted
from faust.types import StreamT, TransportT
from faust.web import Request, Response, View

from connectors.taps.clients import group_of
from connectors.taps.consumer import TapConsumer, transport_for
from connectors.taps.tables import PartitionTables
from connectors.taps.view import MINUTES_SHOWN, view_of
from streams.log.topics import Topics
from streams.settings import Settings

PATH = "/tap/"
_log = structlog.get_logger(__name__)


class _ReadOnly(BootStrategy):
    enable_kafka_producer = False


class TapApp(faust.App):
    """Tables by partition; those of a partition that was taken away stay, and it goes on there where it comes back."""

    BootStrategy: ClassVar[type[BootStrategy]] = _ReadOnly

    def __init__(self, settings: Settings, host: str, port: int, tables_of: dict[int, PartitionTables]) -> None:
        self.failure: BaseException | None = None
        self.ends: dict[int, int] = {}
        """Where each partition ended when last asked."""
        self._settings = settings
        self._tables_of = tables_of
        super().__init__(
            id=group_of(settings),
            broker=";".join(f"kafka://{address}" for address in settings.bootstrap.split(",")),
            autodiscover=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            stream_wait_empty=False,
            broker_session_timeout=settings.member_session_timeout_s,
            web_bind=host,
            web_port=port,
            web_router_enabled=False,
            web_tables_enabled=False,
            web_metrics_enabled=False,
        )
        name = Topics(settings.topic_prefix).events
        events = self.topic(name, key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw")
        self.agent(events, concurrency=1, name="sessions")(self._fold)
        self.page(PATH, name="tap")(_show)

    async def on_first_start(self) -> None:
        """Nothing is kept on disk, so no folder is made."""

    @property
    def tables_of(self) -> dict[int, PartitionTables]:
        """By partition, of those that this process reads now."""
        try:
            places = self.consumer.assignment()
        except ConsumerNotStarted:
            return {}
        return {place.partition: self._tables(place.partition) for place in places}

    def counted(self) -> dict[int, int]:
        """By partition, the first offset that is not counted."""
        return {partition: tables.next_offset for partition, tables in self.tables_of.items()}

    async def waiting(self) -> set[int]:
        """Partitions that are not read to where they ended when last asked, or are not read at all."""
        tables = self.tables_of
        waiting = set(self.ends) - set(tables)
        assert isinstance(self.consumer, TapConsumer)
        for partition, each in tables.items():
            if not await self.consumer.has_read(partition, self.ends.get(partition, 0), counted=each.next_offset):
                waiting.add(partition)
        return waiting

    def _new_transport(self) -> TransportT:
        transport = transport_for(self._settings, lambda partition: self._tables(partition).next_offset)
        return transport(self.conf.broker_consumer, self)

    def _tables(self, partition: int) -> PartitionTables:
        return self._tables_of.setdefault(partition, PartitionTables())

    async def _fold(self, stream: StreamT[bytes]) -> None:
        async for event in stream.events():
            message = event.message
            try:
                self._tables(message.partition).apply(message.offset, message.value)
            except Exception as error:
                self.failure = error
                _log.error("tap_fold_failed", partition=message.partition, offset=message.offset, exc_info=error)
                raise


async def _show(view: View, request: Request) -> Response:
    """`?minutes=N`: so many rows of minutes. 503 where nothing can be said (yet, or any more)."""
    app = view.app
    assert isinstance(app, TapApp)
    tables = app.tables_of
    if not tables or app.failure is not None:
        return view.json({"code": "service.unavailable", "detail": "no partition is read"}, status=503)
    asked = request.query.get("minutes", str(MINUTES_SHOWN))
    if not (asked.isascii() and asked.isdigit()):
        return view.json({"code": "request.invalid", "detail": "minutes"}, status=400)
    answer = view_of(tables, app.ends, minutes=int(asked[:9]))
    return view.bytes(msgspec.json.encode(answer), content_type="application/json")
