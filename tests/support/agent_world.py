"""Agent-checkpoint authorities on one simulated cluster, with the tables that are read from them, under one clock that the test turns."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from streams.agents import rows
from streams.agents.authority import AgentAuthority
from streams.agents.core import AgentScope, Delete, Head, Save, Sealed
from streams.agents.ids import mint
from streams.agents.purging import Purging
from streams.agents.records import AgentCommand, AgentOutcome, decode_checkpoint, decode_command, decode_outcomes, encode_command
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import Fatal
from streams.holders.orders import Orders
from streams.log.partitioner import partition_of
from streams.log.retention import SUBJECT, Order, Purged
from streams.log.topics import Topics
from streams.loop.loop import Loop
from streams.projections.committing_tables import CommittingTables
from streams.projections.tables import Tables
from streams.query.agents import AgentReads
from streams.query.freshness import Freshness
from streams.settings import Settings
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog
from tests.support.commands import new_id
from tests.support.timekeeping import ActAt, Crashed

TOPICS = Topics("")
SECOND = 1_000_000
WORKSPACE = "ws_" + "a" * 32


def scope(number: int, kind: str = "cursor") -> AgentScope:
    return AgentScope(WORKSPACE, f"subj_{number:032x}", "actr_" + "c" * 32, kind)


def state(number: int) -> str:
    return f"{number:064x}"


class _Keeper:
    """Every table is at the end: nothing else than the test writes the input."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def ask_now(self) -> None:
        for table in self._tables.owned.values():
            table.answered(self._tables._clock(), 0)


class _Ends:
    def query(self, places: Iterable[tuple[str, int]], *, committed: bool, timeout_s: float = 5) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 0)


class Process:
    """A loop with its crash switch, and what answers reads from its stores."""

    def __init__(self, world: "AgentWorld", instance: str) -> None:
        settings = replace(world.settings, instance=instance)
        self.log = SimulatedLog(world.cluster, instance)
        self.crash = ActAt()
        self.tables = Tables(600)
        self.freshness = Freshness(settings, self.tables, _Ends())
        self.reads = AgentReads(self.tables, self.freshness, settings.partitions)
        observer = CommittingTables(self.tables, _Keeper(self.tables), self.freshness)  # type: ignore[arg-type]
        handler = AgentAuthority(settings, world.sealer, Purging(settings, world.orders, world.telling))
        handler.tick_s = 0.0
        self.loop = Loop(
            settings, self.log, handler, threading.Event(), crash=self.crash, observer=observer, timekeeper=handler,
            clock=lambda: world.now,
        )  # fmt: skip


class Telling:
    """Keeps what was said, as whoever waits for it does."""

    def __init__(self) -> None:
        self.through: dict[int, int] = {}
        self.counts: dict[int, dict[int, int]] = {}
        """Order -> partition -> rows that were removed."""
        self.tombstones_at: dict[int, dict[int, int | None]] = {}
        """The same -> when the last one was, as it was told last."""

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged] = ()) -> None:
        assert enforced_through == purged_through
        self.through[partition] = purged_through
        for report in purged:
            of_order = self.counts.setdefault(report.order, {})
            of_order[partition] = max(of_order.get(partition, 0), report.counts["agent_checkpoints"])
            self.tombstones_at.setdefault(report.order, {})[partition] = report.tombstones_at

    def again(self) -> None:
        """Nothing is lost here."""

    def given_up_all(self) -> None:
        """Goes on."""


class AgentWorld:
    """`now` in microseconds."""

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.now = 1_800_000_000 * SECOND
        self.settings = Settings(partitions=partitions, data_dir=folder)
        self.cluster = Cluster(partitions)
        self.keyring = open_local_keyring(folder / "keyring")
        self.sealer = Sealer(self.keyring, cache_seconds=10)
        self.processes: dict[str, Process] = {}
        self.orders, self.telling = Orders(), Telling()
        """What is ordered, as every process knows it; what they say."""

    def start(self, instance: str = "0") -> Process:
        process = self.processes[instance] = Process(self, instance)
        return process

    def kill(self, instance: str = "0") -> None:
        self.processes.pop(instance).loop.close()

    def step(self, instance: str = "0") -> bool:
        """False where the process has died of it."""
        try:
            self.processes[instance].loop.step(0)
        except (Crashed, Fatal):
            self.kill(instance)
            return False
        return True

    def settle(self, rounds: int = 10) -> None:
        """Lets every process do what there is to do now. One that dies is not started again."""
        for _ in range(rounds):
            for instance in sorted(self.processes):
                self.step(instance)

    def close(self) -> None:
        for instance in list(self.processes):
            self.kill(instance)
        self.keyring.close()

    def order(self, subject_id: str, kind: str = SUBJECT) -> int:
        """As the custodian does; gives its number."""
        order = self.orders.reached + 1
        self.orders.add(Order(order, kind, WORKSPACE, subject_id))
        return order

    # -- what gateways send ---------------------------------------------------------------------------------------------

    def save(self, where: AgentScope, number: int, *, ttl: int = 600, expected: str | None = None) -> str:
        command_id = new_id("cmd")
        what = Save(
            scope=where, checkpoint_id=mint(self.partition(where)), state_hash=state(number), ttl_seconds=ttl,
            sealed=Sealed(b"sealed %d" % number, bytes(32), "2028-01-16", command_id), expected_state_hash=expected,
            not_after=self.now + 600 * SECOND,
        )  # fmt: skip
        return self.send(command_id, what)

    def delete(self, where: AgentScope, checkpoint_id: str) -> str:
        return self.send(new_id("cmd"), Delete(scope=where, checkpoint_id=checkpoint_id, not_after=self.now + 600 * SECOND))

    def send(self, command_id: str, what: Save | Delete) -> str:
        command = AgentCommand(command_id=command_id, what=what, issued_at=self.now, reply_to="test/1")
        self.put(what.scope.key.encode(), encode_command(command), self.partition(what.scope))
        return command_id

    def put(self, key: bytes | None, value: bytes | None, partition: int = 0) -> None:
        self.cluster.append((TOPICS.agent_commands, partition), key, value)

    def partition(self, where: AgentScope) -> int:
        return partition_of(where.key.encode(), self.settings.partitions)

    # -- what the log holds ---------------------------------------------------------------------------------------------

    def commands(self) -> list[AgentCommand]:
        """In the order in which each partition has them."""
        entries = self._entries(TOPICS.agent_commands)
        return [decode_command(value, self.settings.partitions) for _, value in entries if value is not None]

    def outcomes(self) -> list[AgentOutcome]:
        return [each for _, value in self._entries(TOPICS.agent_outcomes) if value is not None for each in decode_outcomes(value)]

    def outcome(self, command_id: str) -> AgentOutcome:
        (found,) = [each for each in self.outcomes() if each.command_id == command_id]
        return found

    def told(self) -> list[Head]:
        """Every record of the changelog that is no deletion."""
        return [decode_checkpoint(value) for _, value in self._entries(TOPICS.agent_checkpoints) if value is not None]

    def table(self) -> dict[bytes, Head]:
        """As anyone may load it from the changelog."""
        last = dict(self._entries(TOPICS.agent_checkpoints))
        return {key: decode_checkpoint(value) for key, value in last.items() if key is not None and value is not None}

    def store_rows(self) -> dict[bytes, bytes]:
        """Of all partitions and processes."""
        found: dict[bytes, bytes] = {}
        for process in self.processes.values():
            for store in process.loop._stores.values():
                for prefix in (b"ws_", b"~id/", rows.OVER):
                    with store.scan(prefix) as pairs:
                        found.update(pairs)
        return found

    def head(self, where: AgentScope, instance: str = "0", wait_s: float = 5.0) -> Head | None:
        """As the process answers."""
        value = asyncio.run(self.processes[instance].reads.by_scope(where.key, wait_s))
        return None if value is None else decode_checkpoint(value)

    def _entries(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        return [
            (entry.key, entry.value)
            for partition in range(self.settings.partitions)
            for entry in self.cluster.committed((topic, partition))
            if not entry.control
        ]
