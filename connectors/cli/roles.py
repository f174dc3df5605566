"""Composes the authority from settings; projector, graph, custodian, agents and gateway compose themselves where their servers are.

A role runs until `stop` is set, or raises the StreamsError that ends it; whoever supervises starts it again.
"""

import threading
from contextlib import closing
from functools import partial

from connectors.collector import look_rarely
from connectors.gateway.run import run_gateway
from connectors.owner.agents import run_agents
from connectors.owner.custodian import run_custodian
from connectors.owner.graph_projector import run_graph
from connectors.owner.projector import run_projector
from streams.authority.authority import SessionAuthority
from streams.custody.sealing import Sealer
from streams.holders.caches import CacheHolder
from streams.holders.forgetting import forget
from streams.keyrings import open_keyring
from streams.log.log import KafkaLog
from streams.log.topics import verify
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.settings import Settings

__all__ = ["run_agents", "run_authority", "run_custodian", "run_gateway", "run_graph", "run_projector"]


def run_authority(settings: Settings, stop: threading.Event, *, crash_at: str | None = None) -> None:
    """The one writer of its partitions. `crash_at` (`point:count`) has the process killed there, for tests."""
    verify(settings)
    look_rarely()
    with closing(open_keyring(settings)) as keyring:
        # A destroyed secret is forgotten within a lease by every process, told or not.
        sealer = Sealer(keyring, cache_seconds=settings.lease_s)
        with closing(CacheHolder(settings, SessionAuthority.role, partial(forget, sealer))):
            handler = SessionAuthority(settings, sealer)
            crash = KillAt.parse(crash_at) if crash_at is not None else None
            Loop(settings, KafkaLog(settings), handler, stop, crash=crash).run()
