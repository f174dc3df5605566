"""The graph role: the loop that folds events into graphs and, around its tables, what reads them (see `serving`).

A process of its own: what ends a transactional writer (it was fenced, its transaction timed out) must not take the
projector's reads with it.
"""

import threading
from collections.abc import Callable

from connectors.collector import look_rarely
from connectors.owner.app import GraphApplication
from connectors.owner.serving import Serving
from streams.errors import StoreUnusable
from streams.log.log import KafkaLog
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.projections.graph.handler import ROLE, GraphProjection
from streams.projections.graph.serving import GraphTables
from streams.query.graphs import GraphModel, GraphReads
from streams.settings import Settings
from streams.store.store import Store

_PACE_S = 0.05
"""A read of the graph that asks for a position waits this much longer at most; without it every append alone costs the
broker a second transaction."""


def run_graph(
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
    reads = GraphReads(GraphModel(serving.tables, settings.partitions), serving.freshness)
    observer = GraphTables(serving.tables, serving.keeper, serving.freshness)
    application = GraphApplication(serving.token, reads, serving.freshness, serving.tables, lambda: observer.joined)
    try:
        with serving.listening(application, host, port, advertised_host=advertised_host, on_listening=on_listening) as member:
            loop = Loop(
                settings,
                KafkaLog(settings),
                GraphProjection(settings),
                stop,
                crash=crash,
                observer=observer,
                client_id=member,
                pace_s=_PACE_S,
            )
            look_rarely()
            loop.run()
    except StoreUnusable:
        for path in observer.damaged:
            Store.destroy(path)
        raise
