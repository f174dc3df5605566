"""The agents role: the loop that decides agents' checkpoints and, around its tables, what reads them, with no second hop (design 06).

Every save is answered once it is committed, and read here from then on: readers are held while a commit is open (`CommittingTables`),
and a process that stood still stops answering before the group gives its partitions to another.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

import msgspec

from connectors.collector import look_rarely
from connectors.owner.app import InternalApplication
from connectors.owner.asked import Receive, bounded, decoded, waited
from connectors.owner.messages import PREFIX, AgentHistoryQuestion, AgentIdQuestion, AgentScopeQuestion
from connectors.owner.serving import Serving
from streams.agents.authority import ROLE, AgentAuthority
from streams.agents.purging import Purging
from streams.custody.sealing import Sealer
from streams.errors import StoreUnusable
from streams.holders.caches import CacheHolder
from streams.holders.forgetting import forget
from streams.holders.orders import OrderFollower
from streams.holders.partitions import PartitionHolders
from streams.keyrings import open_keyring
from streams.log.log import KafkaLog
from streams.log.topics import Topics
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.projections.committing_tables import CommittingTables
from streams.projections.tables import Tables
from streams.query.agents import VERSIONS_MAX, AgentReads
from streams.query.freshness import Freshness
from streams.settings import Settings
from streams.store.store import Store

_VERSION_MAX: Final = 2**62


def lease_of(settings: Settings) -> float:
    """How long a process answers without having heard of the log's end, in seconds.

    A member that stands still is thrown out a session time-out after its last heartbeat, and beats five times in it. Half of it
    is over before that, so that two processes never answer for one partition.
    """
    return min(settings.lease_s, settings.member_session_timeout_s / 2)


def run_agents(
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
    serving = Serving(settings, ROLE, stop, topic=Topics(settings.topic_prefix).agent_commands, lease_s=lease_of(settings))
    observer = CommittingTables(serving.tables, serving.keeper, serving.freshness)
    reads = AgentReads(serving.tables, serving.freshness, settings.partitions)
    application = AgentApplication(serving.token, reads, serving.freshness, serving.tables, lambda: observer.joined)
    try:
        with (
            closing(open_keyring(settings)) as keyring,
            ExitStack() as held,
            serving.listening(application, host, port, advertised_host=advertised_host, on_listening=on_listening) as member,
        ):
            # A destroyed secret is forgotten within a lease by every process, told or not.
            sealer = Sealer(keyring, cache_seconds=settings.lease_s)
            held.enter_context(closing(CacheHolder(settings, ROLE, partial(forget, sealer))))
            orders = held.enter_context(closing(OrderFollower(settings, ROLE)))
            orders.require_loaded()
            holders = held.enter_context(closing(PartitionHolders(settings, ROLE)))
            handler = AgentAuthority(settings, sealer, Purging(settings, orders, holders))
            loop = Loop(
                settings, KafkaLog(settings), handler, stop, crash=crash, observer=observer, client_id=member, timekeeper=handler
            )  # fmt: skip
            look_rarely()
            loop.run()
    except StoreUnusable:
        for path in observer.damaged:
            Store.destroy(path)
        raise


class AgentApplication(InternalApplication):
    """Of a process that decides agents' checkpoints."""

    role = ROLE

    def __init__(self, token: str, reads: AgentReads, freshness: Freshness, tables: Tables, joined: Callable[[], bool]) -> None:
        super().__init__(token, freshness, tables, joined)
        self._reads = reads
        self._questions |= {
            PREFIX + "agent_scope": self._by_scope,
            PREFIX + "agent_id": self._by_id,
            PREFIX + "agent_history": self._history,
        }

    async def _by_scope(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _scope_decoder)
        return await self._reads.by_scope(question.scope_key, waited(question.wait_s))

    async def _by_id(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _id_decoder)
        return await self._reads.by_id(question.workspace_id, question.checkpoint_id, waited(question.wait_s))

    async def _history(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _history_decoder)
        before = None if question.before is None else bounded("before", question.before, 0, _VERSION_MAX)
        return await self._reads.history(
            question.workspace_id,
            question.checkpoint_id,
            limit=bounded("limit", question.limit, 1, VERSIONS_MAX),
            before=before,
            wait_s=waited(question.wait_s),
        )


_scope_decoder = msgspec.msgpack.Decoder(AgentScopeQuestion)
_id_decoder = msgspec.msgpack.Decoder(AgentIdQuestion)
_history_decoder = msgspec.msgpack.Decoder(AgentHistoryQuestion)
