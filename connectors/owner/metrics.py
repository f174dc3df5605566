"""The owner's numbers for Prometheus, taken from the tables when asked: positions and counts by partition."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.projections.tables import Tables

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


def text(tables: Tables, role: str, more: Sequence[Collector] = ()) -> bytes:
    """`more`: what the role counts besides."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (_Owned(tables, role), *more):
        registry.register(collector)
    return generate_latest(registry)
