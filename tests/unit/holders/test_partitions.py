"""Stores of partitions are holders like any other: the custodian's and those of agents' checkpoints, on the simulator."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streams.agents.core import AgentScope
from streams.custodian.custodian import ROLE
from streams.holders.caches import orders_in
from streams.holders.partitions import holder_id, in_parts
from streams.log.reader import Record
from streams.log.retention import ERASED, PARTITION, SUBJECT, Confirmation, Order, Purged, RetentionRow, encode_retention
from tests.contract.holder_contract import WORKSPACE, Held, HolderContract
from tests.support.agent_world import AgentWorld, Telling
from tests.support.erasing_world import ErasingWorld, Told
from tests.support.timekeeping import Process

LEASE_S = 11


class HeldPartition(Held):
    """`follows` is given what a holder finds in the topic."""

    role: str

    def __init__(self) -> None:
        self.said: list[Confirmation] = []
        self._process = 1

    def follows(self, order: Order) -> None:
        raise NotImplementedError

    def orders(self, *orders: Order) -> None:
        for order in orders:
            row = RetentionRow(kind=order.kind, workspace_id=order.workspace_id, id=order.id, state=ERASED, order=order.order, ended_at=0)
            self.writes(row.key, encode_retention(row))

    def writes(self, key: bytes, value: bytes) -> None:
        for order in orders_in([Record("sessions.retention", 0, 0, key, value, 0)]):
            self.follows(order)

    def told(self) -> list[Confirmation]:
        return self.said

    def says(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged]) -> None:
        confirmation = Confirmation(
            holder_id=holder_id(self.role, partition), kind=PARTITION, process=str(self._process), enforced_through=enforced_through,
            purged_through=purged_through, purged=tuple(purged), told_at=0,
        )  # fmt: skip
        self.said.append(confirmation)

    def settle(self) -> None:
        raise NotImplementedError

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(50):
            if condition():
                return
            self.settle()
        raise AssertionError("it never comes to that")


class RecordedTelling(Telling):
    def __init__(self, held: HeldPartition) -> None:
        super().__init__()
        self._held = held

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged] = ()) -> None:
        super().told(partition, enforced_through, purged_through, purged)
        self._held.says(partition, enforced_through, purged_through, purged)


class HeldAgents(HeldPartition):
    role = "agents"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.world = AgentWorld(folder)
        self.world.telling = RecordedTelling(self)
        self.world.start()
        self.world.settle()

    def takes(self, kind: str, identifier: str) -> None:
        self.world.save(self._scope(identifier), 1)
        self.world.settle()

    def holds(self, kind: str, identifier: str) -> bool:
        return kind == SUBJECT and self.world.head(self._scope(identifier)) is not None

    def follows(self, order: Order) -> None:
        self.world.orders.add(order)

    def settle(self) -> None:
        self.world.settle()

    def starts_again(self) -> None:
        self.world.kill()
        self._process += 1
        self.world.start()

    def _scope(self, identifier: str) -> AgentScope:
        return AgentScope(WORKSPACE, identifier, "actr_" + "c" * 32, "cursor")


class RecordedTold(Told):
    def __init__(self, world: ErasingWorld, held: HeldPartition) -> None:
        super().__init__(world)
        self._held = held

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged] = ()) -> None:
        super().told(partition, enforced_through, purged_through, purged)
        self._held.says(partition, enforced_through, purged_through, purged)


class RecordingWorld(ErasingWorld):
    def __init__(self, folder: Path, held: HeldPartition) -> None:
        super().__init__(folder, partitions=1)
        self._held = held

    def parts(self, process: Process) -> dict[str, Any]:
        return {**super().parts(process), "holders": RecordedTold(self, self._held)}


class HeldSessions(HeldPartition):
    role = ROLE

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.world = RecordingWorld(folder, self)
        self.world.start("authority")
        self.world.start(ROLE)
        self.world.settle()

    def takes(self, kind: str, identifier: str) -> None:
        if kind == SUBJECT:
            self.world.say(self.world.begin(identifier), identifier)
        else:
            self.world.say(self.world.session(identifier))
        self.world.settle()

    def holds(self, kind: str, identifier: str) -> bool:
        created = self.world.created()
        return any(identifier in (session_id, created[session_id].subject_id) for session_id, _ in self.world.blobs)

    def follows(self, order: Order) -> None:
        if order.order > len(self.world.orders):
            assert self.world.erase(order.kind, order.id) == order.order

    def settle(self) -> None:
        self.world.settle()
        self.world.pass_time(LEASE_S)

    def starts_again(self) -> None:
        self.world.kill(ROLE)
        self._process += 1
        self.world.start(ROLE)


class TestPartitionsOfAgentsCheckpoints(HolderContract):
    kinds = (SUBJECT,)

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @contextmanager
    def holder(self) -> Iterator[HeldAgents]:
        held = HeldAgents(self.folder)
        try:
            yield held
        finally:
            held.world.close()


class TestPartitionsOfTheCustodian(HolderContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @contextmanager
    def holder(self) -> Iterator[HeldSessions]:
        held = HeldSessions(self.folder)
        try:
            yield held
        finally:
            held.world.close()


@pytest.mark.parametrize(
    ("orders", "parts"), [([], [(9, [])]), ([3, 4], [(9, [3, 4])]), ([3, 4, 5, 6, 7], [(4, [3, 4]), (6, [5, 6]), (9, [7])])]
)
def test_reports_in_parts_complete_no_order_whose_report_is_still_to_come(orders: list[int], parts: list[tuple[int, list[int]]]) -> None:
    told = in_parts(9, [Purged(order=order) for order in orders], 2)
    assert [(through, [report.order for report in reports]) for through, reports in told] == parts
