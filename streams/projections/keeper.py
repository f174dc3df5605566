"""Asks for the ends of the owned partitions, steadily, so that their leases hold while the process is alive and not behind."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from streams.clock import boottime_s
from streams.errors import BrokerUnavailable, StreamsError
from streams.log.reader import Place
from streams.projections.tables import Tables

_log = structlog.get_logger(__name__)


class Ends(Protocol):
    """`streams.log.reader.EndOffsets`."""

    def query(self, places: Iterable[Place], *, committed: bool, timeout_s: float = ...) -> Mapping[Place, int]: ...


class LeaseKeeper:
    """One thread. Without an answer it says so and asks again; the leases then lapse by themselves."""

    def __init__(self, tables: Tables, ends: Ends, topic: str, *, lease_s: float, clock: Callable[[], float] = boottime_s) -> None:
        self._tables = tables
        self._ends = ends
        self._topic = topic
        self._lease_s = lease_s
        self._interval_s = min(1.0, lease_s / 5)
        self._clock = clock
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_now(self) -> None:
        """New tables came: their readers wait for the first answer."""
        self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def ask(self) -> None:
        """One question, for all partitions owned now. Raises StreamsError."""
        tables = self._tables.owned
        sent_s = self._clock()
        ends = self._ends.query([(self._topic, partition) for partition in tables], committed=True, timeout_s=max(1.0, self._lease_s / 2))
        for partition, table in tables.items():
            table.answered(sent_s, ends[(self._topic, partition)])

    def _keep(self) -> None:
        while not self._closing:
            self._wake.clear()
            if self._tables.owned:
                try:
                    self.ask()
                except BrokerUnavailable as error:
                    _log.warning("lease_question_unanswered", topic=self._topic, reason=error.detail)
                except StreamsError as error:
                    _log.error("lease_question_refused", topic=self._topic, reason=error.detail)
            self._wake.wait(self._interval_s)
