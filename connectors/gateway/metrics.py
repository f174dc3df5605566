"""What the gateway counts, for Prometheus. Labels are routes, statuses and codes: never an id, never a name."""

from functools import cache
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
_BUCKETS: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """One registry a gateway, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("session_streams_gateway_requests", "Requests answered", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "session_streams_gateway_request_seconds", "From headers to answer", ["route"], buckets=_BUCKETS, registry=self.registry
        )
        self.submissions = Counter(
            "session_streams_gateway_commands", "Commands sent, by what became of them", ["outcome"], registry=self.registry
        )
        self.events = Counter("session_streams_gateway_events_appended", "Events acknowledged", registry=self.registry)
        self.gaps = Counter(
            "session_streams_gateway_content_gaps", "Content that a read could not show", ["reason"], registry=self.registry
        )
        self.transfers = Counter(
            "session_streams_gateway_transferred_bytes",
            "Bytes of recovery material taken in or given out",
            ["direction"],
            registry=self.registry,
        )
        self.under_way = Gauge("session_streams_gateway_under_way", "Now under way", ["kind"], registry=self.registry)
        self.ready = Gauge("session_streams_gateway_ready", "1 while the gateway serves", registry=self.registry)

        # Finding a child by its labels takes a lock and strings; there are few, so they are kept.
        self._requests = cache(lambda route, status: self.requests.labels(route, str(status)).inc)
        self._seconds = cache(lambda route: self.seconds.labels(route).observe)
        self._submissions = cache(lambda outcome: self.submissions.labels(outcome).inc)

    def observe(self, route: str, status: int, seconds: float | None) -> None:
        self._requests(route, status)()
        if seconds is not None:
            self._seconds(route)(seconds)

    def submitted(self, outcome: str) -> None:
        self._submissions(outcome)()

    def transferred(self, direction: str, size: int) -> None:
        """`direction`: upload or download."""
        self.transfers.labels(direction).inc(size)

    def text(self) -> bytes:
        return generate_latest(self.registry)
