"""What surrounds the tables of every owner: the keeper of their leases, those who wait for them, the internal HTTP.

main thread    what fills the tables, a projector or a loop
lease-keeper   asks for the log's end
web-<role>     serves
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from connectors.owner.app import InternalApplication
from connectors.owner.token import internal_token
from connectors.web import WebServer
from streams.log.owners import client_id
from streams.log.reader import EndOffsets
from streams.log.topics import Topics, verify
from streams.projections.keeper import LeaseKeeper
from streams.projections.tables import Tables
from streams.query.freshness import Freshness
from streams.settings import Settings

_SWITCH_INTERVAL_S: Final = 0.001
"""The fold computes in one thread while another answers: a reader should not wait the default 5 ms for its turn."""


class Serving:
    """One a process. `listening` serves for as long as the body under it runs."""

    def __init__(
        self, settings: Settings, role: str, stop: threading.Event, *, topic: str | None = None, lease_s: float | None = None
    ) -> None:
        """`stop` is set where the server ends by itself. `topic`: what fills the tables, where it is not the events; `lease_s`: where
        it is not the installation's. Raises `Misconfigured`, `BrokerUnavailable`."""
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        verify(settings)
        self._role, self._stop = role, stop
        ends = EndOffsets(settings, role)
        lease_s = settings.lease_s if lease_s is None else lease_s
        self.tables = Tables(lease_s)
        self.keeper = LeaseKeeper(self.tables, ends, topic or Topics(settings.topic_prefix).events, lease_s=lease_s)
        self.freshness = Freshness(settings, self.tables, ends)
        self.token = internal_token(settings.data_dir)

    @contextmanager
    def listening(
        self,
        application: InternalApplication,
        host: str,
        port: int,
        *,
        advertised_host: str | None,
        on_listening: Callable[[int], None] | None,
    ) -> Iterator[str]:
        """Gives the client id under which gateways find the process: `advertised_host` (default: `host`) and the port.

        Port 0 takes a free one; `on_listening` is told which. Raises what ended the server.
        """
        server = WebServer(application, host, port, name=self._role, on_end=self._stop.set)
        server.start()
        if on_listening is not None:
            on_listening(server.port)
        self.keeper.start()
        try:
            yield client_id(self._role, advertised_host or host, server.port)
            server.check()
        finally:
            server.stop()
            self.keeper.close()
