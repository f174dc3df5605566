"""The projector role: the projector and, around its tables, what reads them, in one process (see `serving`)."""

import threading
from collections.abc import Callable

from connectors.collector import look_rarely
from connectors.owner.app import OwnerApplication
from connectors.owner.serving import Serving
from streams.log.log import KafkaLog
from streams.projections.projector import ROLE, Projector
from streams.query.queries import ReadModel
from streams.query.reads import Reads
from streams.settings import Settings


def run_projector(
    settings: Settings,
    host: str,
    port: int,
    stop: threading.Event,
    *,
    advertised_host: str | None = None,
    on_listening: Callable[[int], None] | None = None,
) -> None:
    """Runs until `stop` is set; addresses as for `Serving.listening`.

    Raises StreamsError of a kind that ends the process; the supervisor starts it again.
    """
    serving = Serving(settings, ROLE, stop)
    joined = threading.Event()
    reads = Reads(ReadModel(serving.tables, settings.partitions), serving.freshness)
    application = OwnerApplication(serving.token, reads, serving.freshness, serving.tables, joined.is_set)
    with serving.listening(application, host, port, advertised_host=advertised_host, on_listening=on_listening) as member:
        projector = Projector(
            settings, KafkaLog(settings), serving.tables, serving.keeper, serving.freshness, client_id=member, joined=joined
        )
        look_rarely()
        projector.run(stop)
