"""Composes a gateway from settings and runs it until it is told to stop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import structlog

from connectors.collector import look_rarely
from connectors.edge.agent_asking import asking_agents
from connectors.edge.asking import asking
from connectors.edge.capsule_keys import SignerKeys
from connectors.edge.capsules import CapsuleDesk
from connectors.edge.erasure_asking import asking_erasures
from connectors.edge.keys import KeyTable
from connectors.edge.policies import PolicyAdministration, PolicyTable
from connectors.gateway.app import GatewayApplication
from connectors.gateway.limits import GatewayLimits
from connectors.gateway.protocol import bounded_protocol
from connectors.gateway.service import Gateway
from connectors.owner.agent_owners import AgentOwners
from connectors.owner.erasure_owners import ErasureOwners
from connectors.owner.graph_owners import GraphOwners
from connectors.owner.projector_owners import ProjectorOwners
from connectors.owner.token import internal_token
from connectors.registry import verify_numbers
from connectors.support.qualifications import WithdrawnReceipts
from connectors.support.support import Support
from connectors.web import WebServer
from streams.blobs import open_blob_store
from streams.errors import Fatal, StreamsError
from streams.log.follower import CompactedFollower
from streams.log.topics import Topics, verify
from streams.sealed_blobs import Snapshots
from streams.settings import Settings

_log = structlog.get_logger(__name__)
_ROLE = "gateway"


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
    limits = limits or GatewayLimits.from_environment()
    verify(settings)
    verify_numbers(settings)
    with ExitStack() as stack:
        keys = CompactedFollower(settings, _ROLE, Topics(settings.topic_prefix).config)
        stack.callback(keys.close)
        policies, support = PolicyTable(keys, settings), Support(settings)
        edge = stack.enter_context(asking(settings, _ROLE))
        agents = stack.enter_context(asking_agents(settings, _ROLE, edge.keyring, edge.sealer))
        edge.forgetting.also(agents.states.forget_names)
        erasures = stack.enter_context(asking_erasures(settings, _ROLE, edge.keyring))
        token = internal_token(settings.data_dir)
        running = _Running()

        def missing() -> list[str]:
            return [
                *([] if keys.fresh else ["API keys and policies are not followed up to date"]),
                *([] if edge.outcomes.alive and agents.outcomes.alive and erasures.outcomes.alive else ["outcomes are not followed"]),
                *([] if edge.holder.alive else ["what is erased is not followed"]),
            ]

        @asynccontextmanager
        async def opened() -> AsyncIterator[Gateway]:
            owners, graph_owners = ProjectorOwners(settings, token), GraphOwners(settings, token)
            agent_owners, erasure_owners = AgentOwners(settings, token), ErasureOwners(settings, token)
            gateway = Gateway(
                settings=settings,
                limits=limits,
                keys=KeyTable(keys),
                policies=policies,
                administration=PolicyAdministration(settings),
                support=support,
                composer=edge.composer,
                submitter=edge.submitter(commands_max=limits.commands_max, bytes_max=limits.commands_bytes_max),
                sealer=edge.sealer,
                snapshots=Snapshots(open_blob_store(settings), edge.keyring, grace_s=settings.orphan_grace_s),
                owners=owners,
                graph_owners=graph_owners,
                agents=agents.service(agent_owners, commands_max=limits.commands_max, bytes_max=limits.commands_bytes_max),
                erasures=erasures.service(),
                erasure_owners=erasure_owners,
                erased=edge.erased,
                capsules=CapsuleDesk(
                    edge.keyring, SignerKeys(settings.signers_path), WithdrawnReceipts(settings.support_path).__contains__
                ),
                dead_letters=edge.commands,
                partition_of=edge.commands.partition_of,
                missing=missing,
            )
            running.started(gateway)
            try:
                yield gateway
            finally:
                for asker in (owners, graph_owners, agent_owners, erasure_owners):
                    asker.close()
                gateway.pool.shutdown(wait=False, cancel_futures=True)

        server = WebServer(GatewayApplication(opened), host, port, name=_ROLE, http=bounded_protocol(limits))
        server.start()
        look_rarely()
        if on_listening is not None:
            on_listening(server.port)
        _log.info("gateway_started", host=server.host, port=server.port)
        try:
            _watch(
                server,
                stop,
                lambda: keys.failed or edge.outcomes.failed or agents.outcomes.failed or erasures.outcomes.failed or edge.holder.failed,
            )
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
