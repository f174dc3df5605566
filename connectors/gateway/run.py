"""Composes a gateway from settings and runs it until it is told to stop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager

import structlog

from connectors.edge.compose import CommandComposer
from connectors.edge.keys import KeyTable
from connectors.edge.submit import Submitter, new_reply_to
from connectors.gateway.app import GatewayApplication
from connectors.gateway.protocol import bounded_protocol
from connectors.gateway.service import Gateway
from connectors.gateway.limits import GatewayLimits
from connectors.owner.graph_owners import GraphOwners
from connectors.owner.projector_owners import ProjectorOwners
from connectors.owner.token import internal_token
from connectors.web import WebServer
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import Fatal, StreamsError
from streams.log.follower import CompactedFollower
from streams.log.requests import CommandLog, OutcomeFollower
from streams.log.topics import Topics, verify
from streams.session.outcomes import Outcome
from streams.settings import Settings

_log = structlog.get_logger(__name__)
_ROLE = "gateway"


class _Outcomes:
    """Hands outcomes from the follower's thread to the submitter, once there is one."""

    def __init__(self) -> None:
        self.submitter: Submitter | None = None

    def __call__(self, outcomes: Sequence[Outcome]) -> None:
        if self.submitter is not None:
            self.submitter.settle_from_thread(outcomes)


class _Running:
    """The gateway once it is composed, as the thread that stops it sees it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gateway: Gateway | None = None

    def started(self, gateway: Gateway) -> None:
        self._loop, self._gateway = asyncio.get_running_loop(), gateway

    def end_streams(self) -> None:
        """Event streams end before the server does, so that it need not cut them."""
        if self._loop is not None and self._gateway is not None:
            self._loop.call_soon_threadsafe(self._gateway.stopping.set)


def run_gateway(
    settings: Settings,
    host: str,
    port: int,
    stop: threading.Event,
    *,
    limits: GatewayLimits | None = None,
    on_listening: Callable[[int], None] | None = None,
) -> None:
    """Serves until `stop` is set. Port 0 takes a free one; `on_listening` is told which.

    Raises `Misconfigured` (address, topics, keyring), `BrokerUnavailable` at start, and `Fatal` where a part of it ended.
    """
    bounds = limits or GatewayLimits.from_environment()
    verify(settings)
    with ExitStack() as stack:
        keyring = open_local_keyring(settings.data_dir / "keyring")
        stack.callback(keyring.close)
        sealer = Sealer(keyring, cache_seconds=settings.lease_s)
        keys = CompactedFollower(settings, _ROLE, Topics(settings.topic_prefix).config)
        stack.callback(keys.close)
        commands = CommandLog(settings, _ROLE)
        stack.callback(commands.close)
        reply_to = new_reply_to(settings.instance)
        handed_on = _Outcomes()
        outcomes = OutcomeFollower(settings, _ROLE, reply_to, handed_on)
        stack.callback(outcomes.close)
        token = internal_token(settings.data_dir)
        running = _Running()

        def missing() -> list[str]:
            return [
                *([] if keys.fresh else ["the API keys are not followed up to date"]),
                *([] if outcomes.alive else ["outcomes are not followed"]),
            ]

        @asynccontextmanager
        async def opened() -> AsyncIterator[Gateway]:
            submitter = Submitter(
                commands, reply_to, timeout_s=settings.request_timeout_s,
                commands_max=bounds.commands_max, bytes_max=bounds.commands_bytes_max,
            )  # fmt: skip
            owners, graph_owners = ProjectorOwners(settings, token), GraphOwners(settings, token)
            gateway = Gateway(
                settings=settings,
                limits=bounds,
                keys=KeyTable(keys),
                composer=CommandComposer(keyring, sealer, timeout_s=settings.request_timeout_s, cache_seconds=settings.lease_s),
                submitter=submitter,
                sealer=sealer,
                owners=owners,
                graph_owners=graph_owners,
                dead_letters=commands,
                partition_of=commands.partition_of,
                missing=missing,
            )
            handed_on.submitter = submitter
            running.started(gateway)
            try:
                yield gateway
            finally:
                owners.close()
                graph_owners.close()
                gateway.pool.shutdown(wait=False, cancel_futures=True)

        server = WebServer(GatewayApplication(opened), host, port, name=_ROLE, http=bounded_protocol(bounds))
        server.start()
        if on_listening is not None:
            on_listening(server.port)
        _log.info("gateway_started", host=server.host, port=server.port)
        try:
            _watch(server, stop, lambda: keys.failed or outcomes.failed)
        finally:
            running.end_streams()
            server.stop()
            _log.info("gateway_stopped", port=server.port)


def _watch(server: WebServer, stop: threading.Event, failure: Callable[[], StreamsError | None]) -> None:
    """Returns when `stop` is set. Raises `Fatal` when a thread that the gateway needs has ended."""
    while not stop.wait(0.2):
        server.check()
        failed = failure()
        if failed is not None:
            raise Fatal(f"a follower ended: {failed.detail}")
