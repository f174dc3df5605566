"""A Kafka of one process: partitions with holes, transactions with epochs, groups with generations. No time, no threads.

It keeps what the guarantees rest on: control records take offsets; a read-committed reader stops at the first open
transaction; an older producer epoch is fenced for good; offsets are taken from the current generation only, and from a
member for any partition (the broker does not check ownership). `describe` prints a partition as a human reads it.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from streams.log.reader import Place

ABORTED_METADATA = "ILLEGAL_GENERATION"


class State(StrEnum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    state: State = State.OPEN
    places: set[Place] = field(default_factory=set)
    offsets: dict[tuple[str, Place], int] = field(default_factory=dict)
    """Group and place -> next offset, applied at the commit."""


@dataclass
class Entry:
    offset: int
    key: bytes | None
    value: bytes | None
    transaction: Transaction | None
    control: bool = False


@dataclass
class Group:
    generation: int = 0
    members: list[object] = field(default_factory=list)
    committed: dict[Place, int] = field(default_factory=dict)


class Cluster:
    """Shared by every simulated client of a test."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.logs: dict[Place, list[Entry]] = {}
        self._ends: dict[Place, int] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.groups: dict[str, Group] = {}

    def append(
        self, place: Place, key: bytes | None, value: bytes | None, transaction: Transaction | None = None, *, control: bool = False
    ) -> int:
        offset = self._ends.get(place, 0)
        self._ends[place] = offset + 1
        self.logs.setdefault(place, []).append(Entry(offset, key, value, transaction, control))
        if transaction is not None:
            transaction.places.add(place)
        return offset

    def end(self, transaction: Transaction, state: State) -> None:
        """Ends a transaction: its markers take an offset in every partition that it touched."""
        transaction.state = state
        for place in sorted(transaction.places):
            self.append(place, None, None, control=True)
        if state is State.COMMITTED:
            for (group, place), offset in transaction.offsets.items():
                self.groups[group].committed[place] = offset

    def high_watermark(self, place: Place) -> int:
        return self._ends.get(place, 0)

    def stable_offset(self, place: Place) -> int:
        for entry in self.logs.get(place, ()):
            if entry.transaction is not None and entry.transaction.state is State.OPEN:
                return entry.offset
        return self.high_watermark(place)

    def committed(self, place: Place) -> list[Entry]:
        stable = self.stable_offset(place)
        return [
            entry
            for entry in self.logs.get(place, ())
            if entry.offset < stable and not entry.control and (entry.transaction is None or entry.transaction.state is State.COMMITTED)
        ]

    def compact(self, topic: str) -> None:
        """Keeps the last record of each key below the stable offset, and what lies above; offsets stay, tombstones too."""
        for place, log in self.logs.items():
            if place[0] != topic:
                continue
            stable = self.stable_offset(place)
            last = {entry.key: entry.offset for entry in self.committed(place)}
            self.logs[place] = [entry for entry in log if entry.offset >= stable or last.get(entry.key) == entry.offset]

    def describe(self, topic: str) -> str:
        lines = []
        for place, log in sorted(self.logs.items()):
            if place[0] == topic:
                lines.append(f"{topic}:{place[1]} stable {self.stable_offset(place)} end {self.high_watermark(place)}")
                for entry in log:
                    state = "control" if entry.control else entry.transaction.state if entry.transaction else "plain"
                    lines.append(f"  {entry.offset} {state} {entry.key!r} {len(entry.value or b'')} B")
        return "\n".join(lines)
