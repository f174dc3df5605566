"""The tap role: rebuild the tables, run the Faust app from there, and watch that it gets on.

What lies in the log at the start is read past Faust, which takes ten times as long for a record; Faust goes on where the
tables then stand. Nothing is answered before.

Faust's consumer and agents have been seen to stop without an error. So the broker is asked, apart from Faust, where the
partitions end; where a tap has records to read and does not get on for `STALLED_AFTER_S`, the process ends, and whoever
supervises starts it again: it loses nothing but time.
"""

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Final

import structlog

from connectors.taps.app import TapApp
from connectors.taps.tables import PartitionTables
from streams.errors import BrokerUnavailable, Fatal, Misconfigured, StreamsError
from streams.log.reader import EndOffsets, PartitionReader, end_offsets, log_start_offsets
from streams.log.topics import Topics, verify
from streams.settings import Settings

ROLE: Final = "tap"
STALLED_AFTER_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.1
_ASK_EVERY_S: Final = 2.0
_STOP_TIMEOUT_S: Final = 8.0
_REBUILD_RECORDS: Final = 2000

_log = structlog.get_logger(__name__)


def run_tap(settings: Settings, host: str, port: int, stop: threading.Event) -> None:
    """Runs until `stop` is set. Raises `Fatal` where it cannot go on, `Misconfigured` where the topics do not fit."""
    verify(settings)
    # Faust tells every step of a rebalance; aiokafka a hundred lines a second while a broker is away, which the watch
    # tells once in a while.
    for name, level in (("faust", logging.WARNING), ("mode", logging.WARNING), ("aiokafka", logging.CRITICAL)):
        logging.getLogger(name).setLevel(level)
    tables_of = rebuilt(settings, stop)
    if not stop.is_set():
        asyncio.run(_run(TapApp(settings, host, port, tables_of), settings, stop))


def rebuilt(settings: Settings, stop: threading.Event) -> dict[int, PartitionTables]:
    """Tables by partition, up to where the committed log ends now; less where `stop` is set meanwhile."""
    topic = Topics(settings.topic_prefix).events
    places = [(topic, partition) for partition in range(settings.partitions)]
    tables_of = {partition: PartitionTables() for _, partition in places}
    ends = end_offsets(settings, places, committed=True)
    began_s = time.monotonic()
    with PartitionReader(settings, ROLE, log_start_offsets(settings, places)) as reader:
        while not stop.is_set() and any(reader.position(*place) < end for place, end in ends.items()):
            for record in reader.read(_REBUILD_RECORDS, _LOOK_EVERY_S):
                tables_of[record.partition].apply(record.offset, record.value)
    events = sum(tables.events for tables in tables_of.values())
    _log.info("tap_rebuilt", events=events, seconds=round(time.monotonic() - began_s, 3))
    return tables_of


async def _run(app: TapApp, settings: Settings, stop: threading.Event) -> None:
    watch = asyncio.create_task(_watch(app, settings))
    try:
        await _start(app)
        _log.info("tap_started", group=app.conf.id, port=app.conf.web_port)
        while not stop.is_set() and app.failure is None and not app.should_stop and not watch.done():
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        watch.cancel()
        try:
            await asyncio.wait_for(app.stop(), _STOP_TIMEOUT_S)
        except TimeoutError:
            _log.warning("tap_stop_timed_out")
    if stop.is_set():
        return
    reason = app.failure or app.crash_reason or (watch.exception() if watch.done() and not watch.cancelled() else None)
    raise reason if isinstance(reason, StreamsError) else Fatal(f"the tap ended: {reason!r}")


async def _start(app: TapApp) -> None:
    try:
        await app.start()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise Misconfigured(f"cannot listen on {app.conf.web_bind}:{app.conf.web_port}: {error.strerror}") from error


async def _watch(app: TapApp, settings: Settings) -> None:
    """Raises `Fatal` where the app stands still before the end."""
    topic = Topics(settings.topic_prefix).events
    places = [(topic, partition) for partition in range(settings.partitions)]
    broker = EndOffsets(settings, ROLE)
    stall = Stall()
    while True:
        await asyncio.sleep(_ASK_EVERY_S)
        try:
            ends = await asyncio.to_thread(broker.query, places, committed=True)
        except BrokerUnavailable as error:
            _log.warning("tap_cannot_ask", detail=error.detail)
            stall = Stall()
            continue
        app.ends = {partition: end for (_, partition), end in ends.items()}
        stall.look(await app.waiting(), app.counted(), time.monotonic())


class Stall:
    """Tells a tap that stands still from one that has nothing to do."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}
        """By waiting partition: what was counted, and since when it stands there."""

    def look(self, waiting: Collection[int], counted: Mapping[int, int], now_s: float) -> None:
        """`waiting`: partitions with records to read; `counted`: next offsets. Raises `Fatal`."""
        for partition in [partition for partition in self._seen if partition not in waiting]:
            del self._seen[partition]
        for partition in waiting:
            offset = counted.get(partition, 0)
            before, since_s = self._seen.get(partition, (offset, now_s))
            if before != offset:
                since_s = now_s
            elif now_s - since_s >= STALLED_AFTER_S:
                raise Fatal(f"partition {partition} stands still at {offset} for {now_s - since_s:.0f} s, with records to read")
            self._seen[partition] = offset, since_s
