"""The retention driver on a simulated cluster: holders say what a test has them say, under one clock that it turns."""

import threading
from dataclasses import replace
from pathlib import Path

from streams.custody.keyring import Keyring, SecretRef
from streams.custody.signing import SigningKey
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import Fatal, KeyringUnavailable, StreamsError
from streams.log.confirmations import ClockOffset
from streams.log.retention import (
    ERASE_SESSION,
    ERASE_SUBJECT,
    ERASURE,
    Order,
    Purged,
    RetentionRow,
    WorkspaceCommand,
    WorkspaceOutcome,
    decode_retention,
    decode_workspace_outcomes,
    encode_workspace_command,
    erasure_id_of,
    order_of,
)
from streams.log.topics import Topics
from streams.loop.crash import CrashPoint
from streams.loop.loop import Loop
from streams.retention.driver import Driver
from streams.settings import Settings
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog
from tests.support.commands import new_id
from tests.support.timekeeping import ActAt, Crashed

TOPICS = Topics("")
SECOND = 1_000_000
WORKSPACE = "ws_" + "a" * 32
HOLDERS = ("agents/0", "custodian/0")


class Said:
    """As `streams.holders.confirmed.ConfirmationFollower` tells it; everything is known at once."""

    def __init__(self) -> None:
        self.hurried = False
        self.known_as_of_s = float("inf")
        self.failed: StreamsError | None = None
        self.of_caches: dict[str, int] = {}
        self.of_partitions: dict[str, int] = {}
        self.of_sinks: dict[str, int] = {}
        self.left: set[str] = set()
        self.of_orders: dict[int, dict[str, Purged]] = {}

    def caches(self) -> dict[str, int]:
        return dict(self.of_caches)

    def partitions(self) -> dict[str, int]:
        return dict(self.of_partitions)

    def sinks(self) -> dict[str, int]:
        return dict(self.of_sinks)

    def sinks_left(self) -> set[str]:
        return set(self.left)

    def reports(self, order: int) -> dict[str, Purged]:
        return dict(self.of_orders.get(order, {}))


class FlakyKeyring:
    """`away` fails whatever the driver asks; `destroyed_refs` are those that were destroyed, in order."""

    def __init__(self, keyring: Keyring) -> None:
        self.keyring, self.away = keyring, False
        self.destroyed_refs: list[SecretRef] = []

    def destroy(self, refs: list[SecretRef]) -> None:
        if self.away:
            raise KeyringUnavailable("away")
        self.keyring.destroy(refs)
        self.destroyed_refs += refs

    def days_before(self, day: str, limit: int) -> list[SecretRef]:
        if self.away:
            raise KeyringUnavailable("away")
        return self.keyring.days_before(day, limit)

    def __getattr__(self, name: str) -> object:
        return getattr(self.keyring, name)


class RetentionWorld:
    """`now` in microseconds, as the driver's clock shows it; `ahead_us` is by how much the broker's differs, None where nobody knows."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_800_000_000 * SECOND
        self.ahead_us: int | None = 0
        self.jumped_us = 0
        self.settings = Settings(partitions=1, data_dir=folder, lease_s=10)
        self.cluster = Cluster(1)
        self.keyring = FlakyKeyring(open_local_keyring(folder / "keyring"))
        self.said = Said()
        self.crash = ActAt()
        self.loop: Loop | None = None
        self.driver: Driver
        self._key = SigningKey.generate()

    def start(self, instance: str = "0") -> None:
        settings = replace(self.settings, instance=instance)
        self.driver = Driver(
            settings, self.keyring, self.said, lambda: self._key, self._offset, elapsed=self._elapsed,  # type: ignore[arg-type]
        )  # fmt: skip
        self.driver.tick_s = 0.0
        self.loop = Loop(
            settings, SimulatedLog(self.cluster, instance), self.driver, threading.Event(), crash=self.crash, timekeeper=self.driver,
            clock=lambda: self.now,
        )  # fmt: skip

    def kill(self) -> None:
        if self.loop is not None:
            self.loop.close()
            self.loop = None

    def step(self) -> None:
        """Where the process dies of it, there is none afterwards."""
        if self.loop is None:
            return
        try:
            self.loop.step(0)
        except (Crashed, Fatal):
            self.kill()

    def settle(self, rounds: int = 12) -> None:
        for _ in range(rounds):
            self.now += SECOND // 2
            self.step()

    def jump(self, seconds: int) -> None:
        """Somebody sets the driver's clock; no time passes."""
        self.now += seconds * SECOND
        self.jumped_us += seconds * SECOND
        self.ahead_us = -self.jumped_us

    def put_right(self) -> None:
        self.jump(-self.jumped_us // SECOND)

    def dies_at(self, point: CrashPoint) -> None:
        self.crash.point = point

    def ask(self, target_id: str, *, late: bool = False) -> str:
        scope, action = ("subject", ERASE_SUBJECT) if target_id.startswith("subj_") else ("session", ERASE_SESSION)
        command = WorkspaceCommand(
            command_id=new_id("cmd"), workspace_id=WORKSPACE, action=action, target_id=target_id, principal_id="key_" + "0" * 32,
            issued_at=self.now, not_after=self.now - 1 if late else self.now + 600 * SECOND, reply_to="test/1",
        )  # fmt: skip
        self.cluster.append((TOPICS.workspace_commands, 0), WORKSPACE.encode(), encode_workspace_command(command))
        return erasure_id_of(WORKSPACE, scope, target_id)

    def everybody_follows(self) -> None:
        """Caches have forgotten, stores have purged, whatever is ordered."""
        last = max((order.order for order in self.orders()), default=0)
        self.said.of_caches = dict.fromkeys(self.said.of_caches, last)
        self.said.of_partitions = dict.fromkeys(HOLDERS, last)
        self.said.of_sinks = dict.fromkeys(self.said.of_sinks, last)

    def rows(self) -> list[RetentionRow]:
        entries = self.cluster.committed((TOPICS.retention, 0))
        return [decode_retention(entry.value) for entry in entries if entry.value is not None]

    def orders(self) -> list[Order]:
        return [order for order in map(order_of, self.rows()) if order is not None]

    def told(self, erasure_id: str) -> list[RetentionRow]:
        """Of one erasure, one after the other."""
        return [row for row in self.rows() if row.kind == ERASURE and row.id == erasure_id]

    def state(self, erasure_id: str) -> str | None:
        rows = self.told(erasure_id)
        return rows[-1].state if rows else None

    def outcomes(self) -> list[WorkspaceOutcome]:
        entries = self.cluster.committed((TOPICS.workspace_outcomes, 0))
        return [outcome for entry in entries if entry.value is not None for outcome in decode_workspace_outcomes(entry.value)]

    def close(self) -> None:
        self.kill()
        self.keyring.keyring.close()

    def _offset(self) -> ClockOffset | None:
        return None if self.ahead_us is None else ClockOffset(self.ahead_us, self._elapsed(), self.now)

    def _elapsed(self) -> float:
        return (self.now - self.jumped_us) / SECOND
