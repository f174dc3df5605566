"""The owner's numbers for Prometheus, taken from the tables when asked: positions and counts by partition."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.projections.tables import Tables

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class _Owned(Collector):
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def collect(self) -> Iterator[Metric]:
        tables = self._tables.owned.values()
        lag = GaugeMetricFamily(
            "session_streams_projector_lag_records", "Offsets between the table and the log's end as last asked", labels=["partition"]
        )
        serving = GaugeMetricFamily("session_streams_projector_serving", "1 while reads are answered", labels=["partition"])
        position = GaugeMetricFamily("session_streams_projector_position", "Next offset of the event log", labels=["partition"])
        unreadable = CounterMetricFamily(
            "session_streams_projector_unreadable_records", "Records set aside since the partition came", labels=["partition"]
        )
        for table in tables:
            labels = [str(table.partition)]
            if table.end is not None:
                lag.add_metric(labels, max(0, table.end - table.position))
            serving.add_metric(labels, 1.0 if table.lease.held else 0.0)
            position.add_metric(labels, table.position)
            unreadable.add_metric(labels, table.unreadable)
        yield from (lag, serving, position, unreadable)


def text(tables: Tables) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Owned(tables))
    return generate_latest(registry)
