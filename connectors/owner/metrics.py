"""The owner's numbers for Prometheus, taken from the tables when asked: positions and counts by partition."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.clock import now_us
from streams.custodian.timers import armed_in, first_due
from streams.errors import NotOwner, StoreUnusable
from streams.log.retention import ACCEPTED, DESTROYED, ENFORCED
from streams.projections.tables import Tables
from streams.retention.driver import Driver

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class _Owned(Collector):
    def __init__(self, tables: Tables, role: str) -> None:
        self._tables, self._role = tables, role

    def collect(self) -> Iterator[Metric]:
        tables = self._tables.owned.values()
        lag = GaugeMetricFamily(
            f"session_streams_{self._role}_lag_records", "Offsets between the table and the log's end as last asked", labels=["partition"]
        )
        serving = GaugeMetricFamily(f"session_streams_{self._role}_serving", "1 while reads are answered", labels=["partition"])
        position = GaugeMetricFamily(f"session_streams_{self._role}_position", "Next offset of the event log", labels=["partition"])
        unreadable = CounterMetricFamily(
            f"session_streams_{self._role}_unreadable_records", "Records set aside since the partition came", labels=["partition"]
        )
        for table in tables:
            labels = [str(table.partition)]
            if table.end is not None:
                lag.add_metric(labels, max(0, table.end - table.position))
            serving.add_metric(labels, 1.0 if table.lease.held else 0.0)
            position.add_metric(labels, table.position)
            unreadable.add_metric(labels, table.unreadable)
        yield from (lag, serving, position, unreadable)


class _Timers(Collector):
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
                count, first = armed_in(table.store.get), first_due(table.store)
            except (NotOwner, StoreUnusable):
                continue  # it is being given up, or rebuilt
            armed.add_metric(labels, count)
            late.add_metric(labels, 0.0 if first is None else max(0.0, (now_us() - first) / 1e6))
        yield from (armed, late)


def text(tables: Tables, role: str) -> bytes:
    return _told(_Owned(tables, role))


def text_of_custodian(tables: Tables, role: str) -> bytes:
    """As `text`, with the timers."""
    return _told(_Owned(tables, role), _Timers(tables))


class _Erasures(Collector):
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def collect(self) -> Iterator[Metric]:
        driver, now = self._driver, now_us()
        count = GaugeMetricFamily("session_streams_retention_erasures", "Erasures that are not complete", labels=["state"])
        lag = GaugeMetricFamily(
            "session_streams_retention_erasure_lag_seconds", "Age of the oldest erasure in this state; 0 where none is", labels=["state"]
        )
        for state in (ACCEPTED, DESTROYED, ENFORCED):
            of_state = driver.under_way(state)
            count.add_metric([state], len(of_state))
            lag.add_metric([state], max((now - each.accepted_at for each in of_state), default=0) / 1e6)
        scopes = CounterMetricFamily(
            "session_streams_retention_destroyed_scopes", "Subjects and sessions whose secrets were destroyed since the start"
        )
        scopes.add_metric([], driver.destroyed_scopes)
        days = CounterMetricFamily("session_streams_retention_expired_days", "Days whose secrets were destroyed since the start")
        days.add_metric([], driver.destroyed_days)
        late = GaugeMetricFamily(
            "session_streams_retention_expiry_lag_seconds", "How long the oldest day that is there has been due; 0 where none is"
        )
        late.add_metric([], driver.days.late_us(now) / 1e6)
        stopped = GaugeMetricFamily(
            "session_streams_retention_stopped", "1 while nothing is destroyed because this clock and the broker's disagree"
        )
        stopped.add_metric([], 1.0 if driver.clock.stopped else 0.0)
        offset = GaugeMetricFamily("session_streams_retention_clock_offset_seconds", "By how much the broker's clock is ahead, once known")
        if driver.clock.known is not None:
            offset.add_metric([], driver.clock.known.ahead_us / 1e6)
        yield from (count, lag, scopes, days, late, stopped, offset)


def text_of_retention(tables: Tables, role: str, driver: Driver) -> bytes:
    """As `text`, with erasures and expired days."""
    return _told(_Owned(tables, role), _Erasures(driver))


def _told(*collectors: Collector) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)
