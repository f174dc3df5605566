"""The custodian role: the loop that keeps timers, who listens for its answers, the sweep of orphans, and its HTTP.

main thread    the loop
outcomes       hears what the authority answered
sweeping       throws away uploads that nothing names
lease-keeper, web-custodian    as of every owner (see `serving`): whether it is up to date, and its numbers
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

from connectors.collector import look_rarely
from connectors.owner import metrics
from connectors.owner.app import InternalApplication
from connectors.owner.serving import Serving
from connectors.owner.sweeping import NamedUploads, Sweeping
from streams.custodian.custodian import ROLE, Custodian
from streams.errors import StoreUnusable
from streams.log.log import KafkaLog
from streams.log.requests import OutcomeFollower, new_reply_to
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.projections.loop_tables import LoopTables
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
    crash = None if crash_at is None else KillAt.parse(crash_at)
    serving = Serving(settings, ROLE, stop)
    observer = LoopTables(serving.tables, serving.keeper, serving.freshness)
    reply_to = new_reply_to(f"{ROLE}.{settings.instance}")
    custodian = Custodian(settings, reply_to)
    sweeping = Sweeping(settings, NamedUploads(serving.tables, settings.partitions))
    try:
        with ExitStack() as running:
            outcomes = running.enter_context(closing(OutcomeFollower(settings, ROLE, reply_to, custodian.answered)))
            # One that hears nothing still does its work, only later: it is not ready, and goes on.
            ready = partial(_is_ready, observer, outcomes)
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
            sweeping.start()
            running.callback(sweeping.close)
            look_rarely()
            loop.run()
    except StoreUnusable:
        for path in observer.damaged:
            Store.destroy(path)
        raise


def _is_ready(observer: LoopTables, outcomes: OutcomeFollower) -> bool:
    return observer.joined and outcomes.alive


class CustodianApplication(InternalApplication):
    """Answers no questions but whether it is alive and up to date, and its numbers."""

    role = ROLE

    def _numbers(self) -> bytes:
        return metrics.text_of_custodian(self._tables, self.role)
