"""The custodian role: the loop that keeps timers, who listens for its answers, the sweep of orphans, and its HTTP.

main thread    the loop
outcomes       hears what the authority answered
orders, backlog                follow what is to be erased, and how far the log went when that became known
removing       removes uploads and texts of what is erased, and uploads of checkpoints that have expired
sweeping       throws away uploads that nothing names
lease-keeper, web-custodian    as of every owner (see `serving`): whether it is up to date, and its numbers
"""

import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

from connectors.collector import look_rarely
from connectors.owner import metrics
from connectors.owner.app import InternalApplication
from connectors.owner.retention import crash_of, retention_beside
from connectors.owner.serving import Serving
from connectors.owner.sweeping import NamedUploads, Sweeping
from streams.blobs import open_blob_store
from streams.clock import boottime_s
from streams.custodian.backlog import BacklogFollower
from streams.custodian.custodian import ROLE, Custodian
from streams.custodian.removing import Removing
from streams.errors import StoreUnusable
from streams.holders.clocks import clocks_agree
from streams.holders.orders import OrderFollower
from streams.holders.partitions import PartitionHolders
from streams.keyrings import open_keyring
from streams.log.log import KafkaLog
from streams.log.requests import OutcomeFollower, new_reply_to
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.projections.loop_tables import LoopTables
from streams.retention.driver import ROLE as RETENTION
from streams.settings import Settings
from streams.store.store import Store

_PACE_S: Final = 0.2
"""A lapse can wait so long; without it every append alone costs the broker one more transaction."""


def run_custodian(
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
    own = crash_of(crash_at, ROLE)
    crash = None if own is None else KillAt.parse(own)
    serving = Serving(settings, ROLE, stop)
    holders = PartitionHolders(settings, ROLE)
    observer = _TablesOfHolder(serving, holders)
    reply_to = new_reply_to(f"{ROLE}.{settings.instance}")
    sweeping = Sweeping(settings, NamedUploads(serving.tables, settings.partitions))
    try:
        with ExitStack() as running:
            running.enter_context(closing(holders))
            orders = running.enter_context(closing(OrderFollower(settings, ROLE)))
            backlog = running.enter_context(closing(BacklogFollower(settings, ROLE, orders)))
            removing = Removing(partial(open_blob_store, settings), partial(open_keyring, settings))
            removing.start()
            running.callback(removing.close)
            custodian = Custodian(
                settings, reply_to, orders=orders, backlog=backlog, holders=holders, remover=removing,
                may_destroy=partial(_agrees, settings, holders),
            )  # fmt: skip
            outcomes = running.enter_context(closing(OutcomeFollower(settings, ROLE, reply_to, custodian.answered)))
            # One that hears nothing still does its work, only later: it is not ready, and goes on.
            ready = partial(_is_ready, observer, outcomes, orders)
            application = CustodianApplication(serving.token, serving.freshness, serving.tables, ready)
            listening = serving.listening(application, host, port, advertised_host=advertised_host, on_listening=on_listening)
            member = running.enter_context(listening)
            loop = Loop(
                settings,
                KafkaLog(settings),
                custodian,
                stop,
                crash=crash,
                observer=observer,
                client_id=member,
                pace_s=_PACE_S,
                timekeeper=custodian,
            )
            beside = retention_beside(settings, host, stop, advertised_host=advertised_host, crash_at=crash_of(crash_at, RETENTION))
            running.enter_context(beside)
            sweeping.start()
            running.callback(sweeping.close)
            look_rarely()
            loop.run()
    except StoreUnusable:
        for path in observer.damaged:
            Store.destroy(path)
        raise


def _is_ready(observer: LoopTables, outcomes: OutcomeFollower, orders: OrderFollower) -> bool:
    return observer.joined and outcomes.alive and orders.alive


def _agrees(settings: Settings, holders: PartitionHolders, now: int) -> bool:
    return clocks_agree(holders.log.clock_offset, now_us=now, boottime_s=boottime_s(), drift_s=settings.clock_drift_s)


class _TablesOfHolder(LoopTables):
    """Stores whose partitions say how far they have followed what is erased, for as long as this process has them."""

    def __init__(self, serving: Serving, holders: PartitionHolders) -> None:
        super().__init__(serving.tables, serving.keeper, serving.freshness)
        self._holders = holders

    def given_up(self, partitions: Collection[int]) -> None:
        super().given_up(partitions)
        for partition in partitions:
            self._holders.given_up(partition)


class CustodianApplication(InternalApplication):
    """Answers no questions but whether it is alive and up to date, and its numbers."""

    role = ROLE

    def _numbers(self) -> bytes:
        return metrics.text_of_custodian(self._tables, self.role)
