"""The projector role: tables, their leases, and the internal HTTP that reads them, in one process.

main thread   the projector: consume, fold, write
lease-keeper  asks for the log's end
web-projector serves
"""

import sys
import threading
from collections.abc import Callable
from typing import Final

from connectors.owner.app import OwnerApplication
from connectors.owner.token import internal_token
from connectors.web import WebServer
from streams.log.log import KafkaLog
from streams.log.owners import client_id
from streams.log.reader import EndOffsets
from streams.log.topics import Topics, verify
from streams.projections.keeper import LeaseKeeper
from streams.projections.projector import ROLE, Projector
from streams.projections.tables import Tables
from streams.query.freshness import Freshness
from streams.query.queries import ReadModel
from streams.query.reads import Reads
from streams.settings import Settings

_SWITCH_INTERVAL_S: Final = 0.001
"""The fold computes in one thread while another answers: a reader should not wait the default 5 ms for its turn."""


def run_projector(
    settings: Settings,
    host: str,
    port: int,
    stop: threading.Event,
    *,
    advertised_host: str | None = None,
    on_listening: Callable[[int], None] | None = None,
) -> None:
    """Runs until `stop` is set. Port 0 takes a free one; `on_listening` is told which.

    Gateways find the process under `advertised_host` (default: `host`) and the port. Raises StreamsError of a kind that
    ends the process; the supervisor starts it again.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    verify(settings)
    tables = Tables(settings.lease_s)
    ends = EndOffsets(settings, ROLE)
    keeper = LeaseKeeper(tables, ends, Topics(settings.topic_prefix).events, lease_s=settings.lease_s)
    freshness = Freshness(settings, tables, ends)
    joined = threading.Event()
    reads = Reads(ReadModel(tables, settings.partitions), freshness)
    application = OwnerApplication(internal_token(settings.data_dir), reads, freshness, tables, joined.is_set)
    server = WebServer(application, host, port, name=ROLE, on_end=stop.set)
    projector = Projector(
        settings, KafkaLog(settings), tables, keeper, freshness,
        client_id=client_id(ROLE, advertised_host or host, server.port), joined=joined,
    )  # fmt: skip
    server.start()
    if on_listening is not None:
        on_listening(server.port)
    keeper.start()
    try:
        projector.run(stop)
        server.check()
    finally:
        server.stop()
        keeper.close()
