"""Composes the authority from settings; projector, graph and gateway compose themselves where their servers are.

A role runs until `stop` is set, or raises the StreamsError that ends it; whoever supervises starts it again.
"""

import gc
import threading
from contextlib import closing
from typing import Final

from connectors.gateway.run import run_gateway
from connectors.owner.graph_projector import run_graph
from connectors.owner.projector import run_projector
from streams.authority.authority import SessionAuthority
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log.log import KafkaLog
from streams.log.topics import verify
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.settings import Settings

__all__ = ["run_authority", "run_gateway", "run_graph", "run_projector"]


_ALLOCATIONS: Final = 50_000
"""Objects that may gather before the collector looks: what a batch makes has no cycles, and goes when its last reader does."""


def look_rarely() -> None:
    """Has the garbage collector leave alone what the process has loaded, and look seldom at what it makes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 20)


def run_authority(settings: Settings, stop: threading.Event, *, crash_at: str | None = None) -> None:
    """The one writer of its partitions. `crash_at` (`point:count`) has the process killed there, for tests."""
    verify(settings)
    look_rarely()
    with closing(open_local_keyring(settings.data_dir / "keyring")) as keyring:
        # A destroyed secret is forgotten within a lease by every process, told or not.
        handler = SessionAuthority(settings, Sealer(keyring, cache_seconds=settings.lease_s))
        crash = KillAt.parse(crash_at) if crash_at is not None else None
        Loop(settings, KafkaLog(settings), handler, stop, crash=crash).run()
