"""The custodian role: the loop that keeps timers, who listens for its answers, the sweep of orphans, and its HTTP.

main thread    the loop
outcomes       hears what the authority answered
sweeping       throws away uploads that nothing names
lease-keeper, web-custodian    as of every owner (see `serving`): whether it is up to date, and its numbers
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from connectors.collector import look_rarely
from connectors.edge.submit import new_reply_to
from connectors.owner.app import InternalApplication
from connectors.owner.serving import Serving
from connectors.owner.sweeping import NamedUploads, Sweeping
from streams.clock import now_us
from streams.custodian.custodian import ROLE, Custodian
from streams.custodian.timers import DUE, armed_in, due_before
from streams.errors import NotOwner, StoreUnusable
from streams.log.log import KafkaLog
from streams.log.requests import OutcomeFollower
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.projections.loop_tables import LoopTables
from streams.projections.tables import Tables
from streams.settings import Settings
from streams.store.store import Store

_PACE_S: Final = 0.05
"""A lapse can wait so long; without it every append alone costs the broker one more transaction."""


def run_custodian(
    settings: Settings,
    host: str,
    port: int,
    stop: threading.Event,
    *,
    advertised_host: str | None = None,
    on_listening: Callable[[int], None] | None = None,
    crash_at: str | None = None,
) -> None:
    """As `connectors.owner.projector.run_projector`. `crash_at` (`point:count`) has the process killed there, for tests."""
    crash = None if crash_at is None else KillAt.parse(crash_at)
    serving = Serving(settings, ROLE, stop)
    observer = LoopTables(serving.tables, serving.keeper, serving.freshness)
    application = InternalApplication(serving.token, serving.freshness, serving.tables, lambda: observer.joined)
    application.role, application.more = ROLE, (TimerNumbers(serving.tables),)
    reply_to = new_reply_to(f"{ROLE}.{settings.instance}")
    custodian = Custodian(settings, reply_to)
    sweeping = Sweeping(settings, NamedUploads(serving.tables, settings.partitions))
    try:
        with ExitStack() as running:
            running.enter_context(closing(OutcomeFollower(settings, ROLE, reply_to, custodian.answered)))
            listening = serving.listening(application, host, port, advertised_host=advertised_host, on_listening=on_listening)
            member = running.enter_context(listening)
            loop = Loop(
                settings,
                KafkaLog(settings),
                custodian,
                stop,
                crash=crash,
                observer=observer,
                client_id=member,
                pace_s=_PACE_S,
                timekeeper=custodian,
            )
            sweeping.start()
            running.callback(sweeping.close)
            look_rarely()
            loop.run()
    except StoreUnusable:
        for path in observer.damaged:
            Store.destroy(path)
        raise


class TimerNumbers(Collector):
    """By partition: how many timers are armed, and how late the first of them is."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def collect(self) -> Iterator[Metric]:
        armed = GaugeMetricFamily("session_streams_custodian_timers", "Timers that are armed", labels=["partition"])
        late = GaugeMetricFamily(
            "session_streams_custodian_late_seconds", "How long the first timer has been due; 0 where none is", labels=["partition"]
        )
        for table in self._tables.owned.values():
            labels = [str(table.partition)]
            try:
                count = armed_in(table.store.get)
                with table.store.scan(DUE) as rows:
                    first = next(rows, None)
            except (NotOwner, StoreUnusable):
                continue  # it is being given up, or rebuilt
            armed.add_metric(labels, count)
            late.add_metric(labels, 0.0 if first is None else max(0.0, (now_us() - due_before(first[0])) / 1e6))
        yield from (armed, late)
