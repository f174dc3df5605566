"""The graph role: the loop that folds events into graphs, the leases of its tables, and the internal HTTP that reads them.

A process of its own: what ends a transactional writer (it was fenced, its transaction timed out) must not take the
projector's reads with it.

main thread   the loop: consume, fold, commit, write
lease-keeper  asks for the log's end
web-graph     serves
"""

import sys
import threading
from collections.abc import Callable
from typing import Final

from connectors.owner.app import GraphApplication
from connectors.owner.token import internal_token
from connectors.web import WebServer
from streams.errors import StoreUnusable
from streams.log.log import KafkaLog
from streams.log.owners import client_id
from streams.log.reader import EndOffsets
from streams.log.topics import Topics, verify
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.projections.graph.handler import ROLE, GraphProjection
from streams.projections.graph.serving import GraphTables
from streams.projections.keeper import LeaseKeeper
from streams.projections.tables import Tables
from streams.query.freshness import Freshness
from streams.query.graphs import GraphModel, GraphReads
from streams.settings import Settings
from streams.store.store import Store

_SWITCH_INTERVAL_S: Final = 0.001
"""The fold computes in one thread while another answers."""


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
    """As `connectors.owner.run.run_projector`, for graphs. `crash_at` (`point:count`) has the process killed there, for tests."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    verify(settings)
    crash = None if crash_at is None else KillAt.parse(crash_at)
    tables = Tables(settings.lease_s)
    ends = EndOffsets(settings, ROLE)
    keeper = LeaseKeeper(tables, ends, Topics(settings.topic_prefix).events, lease_s=settings.lease_s)
    freshness = Freshness(settings, tables, ends)
    reads = GraphReads(GraphModel(tables, settings.partitions), freshness)
    observer = GraphTables(tables, keeper, freshness)
    application = GraphApplication(internal_token(settings.data_dir), reads, freshness, tables, lambda: observer.joined)
    server = WebServer(application, host, port, name=ROLE, on_end=stop.set)
    server.start()
    if on_listening is not None:
        on_listening(server.port)
    keeper.start()
    try:
        member = client_id(ROLE, advertised_host or host, server.port)
        loop = Loop(settings, KafkaLog(settings), GraphProjection(settings), stop, crash=crash, observer=observer, client_id=member)
        loop.run()
        server.check()
    except StoreUnusable:
        for path in observer.damaged:
            Store.destroy(path)
        raise
    finally:
        server.stop()
        keeper.close()
