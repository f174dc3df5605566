"""Owners of tables in memory, each behind a real socket, and a gateway's client that asks them."""

import asyncio
from collections.abc import Awaitable, Callable

from connectors.owner.app import OwnerApplication
from connectors.owner.projector_owners import ProjectorOwners
from connectors.web import WebServer
from streams.errors import StreamsError
from streams.projections.fold import Fold
from streams.projections.tables import Tables
from streams.query.freshness import Freshness
from streams.query.queries import ReadModel
from streams.query.reads import Reads
from streams.settings import Settings
from streams.store.memory import MemoryStore
from tests.support.event_log import EventLog

TOKEN = "0123456789abcdef" * 4
SETTINGS = Settings(partitions=2)


class Ends:
    def __init__(self) -> None:
        self.failure: StreamsError | None = None

    def query(self, places: list[tuple[str, int]], *, committed: bool, timeout_s: float = 5) -> dict[tuple[str, int], int]:
        if self.failure is not None:
            raise self.failure
        return dict.fromkeys(places, 0)


class Owner:
    """Serves the partitions that `take` gives it."""

    def __init__(self) -> None:
        self.tables = Tables(60)
        self.ends = Ends()
        self.freshness = Freshness(SETTINGS, self.tables, self.ends)
        reads = Reads(ReadModel(self.tables, SETTINGS.partitions), self.freshness)
        self.joined = True
        self.application = OwnerApplication(TOKEN, reads, self.freshness, self.tables, lambda: self.joined)
        self.server = WebServer(self.application, "127.0.0.1", 0, name="owner")
        self.server.start()
        self.address = f"127.0.0.1:{self.server.port}"

    def take(self, log: EventLog) -> None:
        table = self.tables.add(log.partition, MemoryStore())
        table.answered(self.tables._clock(), 0)
        table.reached(0)
        self.apply(log)

    def apply(self, log: EventLog) -> None:
        """What the log holds, to the partition's table."""
        if log.records:
            table = self.tables.owned[log.partition]
            applied = Fold().apply(table, log.records)
            self.freshness.advanced(table, applied.awaited)


class Finder:
    """Who owns what, and how often it was asked."""

    def __init__(self, **owners: str) -> None:
        self.map = {int(partition): address for partition, address in owners.items()}
        self.looks = 0

    def owners(self, timeout_s: float = 5) -> dict[int, str]:
        self.looks += 1
        return dict(self.map)


def run(finder: Finder, story: Callable[[ProjectorOwners], Awaitable[None]], token: str = TOKEN) -> None:
    async def told() -> None:
        client = ProjectorOwners(SETTINGS, token, finder)
        try:
            await story(client)
        finally:
            client.close()

    asyncio.run(told())


def finder_of(*owners: Owner) -> Finder:
    finder = Finder()
    finder.map = {partition: owner.address for partition, owner in enumerate(owners)}
    return finder
