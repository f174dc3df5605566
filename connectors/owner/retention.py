"""The retention driver beside the custodian's timers, in the same process: its loop, what it follows, and who asks how an erasure goes.

main thread      of this loop: a thread of the custodian's process
confirmations    what holders say
brokers          which of them are there
lease-keeper, web-retention    as of every owner (see `serving`)
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import msgspec

from connectors.owner import metrics
from connectors.owner.app import InternalApplication
from connectors.owner.asked import Receive, decoded, waited
from connectors.owner.messages import PREFIX, Awaited, ErasureAnswer, ErasureQuestion
from connectors.owner.serving import Serving
from streams.clock import boottime_s, now_us
from streams.custody.signers import Signers
from streams.errors import StoreUnusable
from streams.holders.confirmed import ConfirmationFollower
from streams.keyrings import open_keyring
from streams.log.confirmations import ClockOffset, ConfirmationLog
from streams.log.log import KafkaLog
from streams.log.retention import DESTROYED, Confirmation, RetentionRow, encode_retention
from streams.log.topics import Topics, look_at_brokers
from streams.loop.crash import KillAt
from streams.loop.loop import Loop
from streams.projections.committing_tables import CommittingTables
from streams.projections.tables import Tables
from streams.query.erasures import ErasureReads
from streams.query.freshness import Freshness
from streams.retention.brokers import SeenBrokers
from streams.retention.core import COMPACTION, KEYRING, LEASE
from streams.retention.driver import ROLE, Driver
from streams.settings import Settings
from streams.store.store import Store

CLOCK: Final = "clock"
"""The kind of a confirmation that is nobody's: the time of its arrival is what is asked for."""
_MEASURED_S: Final = 20.0
_REASONS: Final = {
    KEYRING: "its secret cannot be destroyed now",
    LEASE: "a lease is not over yet",
    COMPACTION: "the broker has yet to remove what tombstones stand for",
}


def run_retention(
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
    serving = Serving(settings, ROLE, stop, topic=Topics(settings.topic_prefix).workspace_commands)
    observer = CommittingTables(serving.tables, serving.keeper, serving.freshness)
    signers = Signers(settings.signers_path)
    try:
        with ExitStack() as running:
            keyring = running.enter_context(closing(open_keyring(settings)))
            said = running.enter_context(closing(ConfirmationFollower(settings, ROLE)))
            clock = running.enter_context(closing(BrokerClock(settings)))
            brokers = SeenBrokers(settings, look_at_brokers(settings))
            brokers.start()
            running.callback(brokers.close)
            driver = Driver(settings, keyring, said, lambda: signers.current("receipts"), clock.offset, brokers=brokers)
            reads = ErasureReads(serving.tables, serving.freshness)
            application = RetentionApplication(serving.token, reads, driver, serving.freshness, serving.tables, lambda: observer.joined)
            member = running.enter_context(
                serving.listening(application, host, port, advertised_host=advertised_host, on_listening=on_listening)
            )
            loop = Loop(settings, KafkaLog(settings), driver, stop, crash=crash, observer=observer, client_id=member, timekeeper=driver)
            loop.run()
    except StoreUnusable:
        for path in observer.damaged:
            Store.destroy(path)
        raise


@contextmanager
def retention_beside(
    settings: Settings, host: str, stop: threading.Event, *, advertised_host: str | None = None, crash_at: str | None = None
) -> Iterator[None]:
    """Runs the driver in a thread for as long as the block runs. Where it ends by itself, `stop` is set, and what ended it is raised when
    the block has ended."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            run_retention(settings, host, 0, stop, advertised_host=advertised_host, crash_at=crash_at)
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    thread = threading.Thread(target=run, name=ROLE, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def crash_of(crash_at: str | None, role: str) -> str | None:
    """What is meant for this loop: `retention:` in front names the driver's."""
    named, _, where = (crash_at or "").partition(":")
    if named == ROLE:
        return where if role == ROLE else None
    return None if role == ROLE else crash_at


class BrokerClock:
    """How far the broker's clock is from this one, measured when it is asked for."""

    def __init__(self, settings: Settings) -> None:
        self._log = ConfirmationLog(settings, f"{ROLE}.clock")
        self._asked_s = float("-inf")

    def offset(self) -> ClockOffset | None:
        """As last measured; where that was a while ago, it is being measured meanwhile."""
        self._log.serve()
        known = self._log.clock_offset
        now_s = boottime_s()
        if now_s - self._asked_s >= 1.0 and (known is None or now_s - known.measured_at_s >= _MEASURED_S):
            self._asked_s = now_s
            told = Confirmation(
                holder_id=f"{ROLE}/{CLOCK}", kind=CLOCK, process=ROLE, enforced_through=0, purged_through=0, told_at=now_us()
            )
            self._log.tell(told)
        return known

    def close(self) -> None:
        self._log.close()


class RetentionApplication(InternalApplication):
    """Of the process that decides erasures."""

    role = ROLE

    def __init__(
        self, token: str, reads: ErasureReads, driver: Driver, freshness: Freshness, tables: Tables, joined: Callable[[], bool]
    ) -> None:
        super().__init__(token, freshness, tables, joined)
        self._reads, self._driver = reads, driver
        self._questions[PREFIX + "erasure"] = self._erasure

    async def _erasure(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _erasure_decoder)
        row = await self._reads.erasure(question.workspace_id, question.erasure_id, waited(question.wait_s))
        if row is None:
            return None
        awaited = tuple(Awaited(holder, _reason(row, holder)) for holder in self._driver.awaited(row, now_us()))
        return ErasureAnswer(encode_retention(self._driver.told(row)), awaited)

    def _numbers(self) -> bytes:
        return metrics.text_of_retention(self._tables, self.role, self._driver)


def _reason(row: RetentionRow, holder: str) -> str:
    if holder in _REASONS:
        return _REASONS[holder]
    return "has not said that nothing is readable there" if row.state == DESTROYED else "has not said that it holds nothing of it"


_erasure_decoder = msgspec.msgpack.Decoder(ErasureQuestion)
