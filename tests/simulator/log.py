"""The ports of `streams.log.log` on a `Cluster`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from streams.errors import Fatal, TransactionAborted
from streams.log.membership import Starts
from streams.log.reader import Place, Record, Row
from streams.log.transaction import KeyedValue
from tests.simulator.cluster import Cluster, Group, State, Transaction

NOW_MS = 1_700_000_000_000


class SimulatedTransactions:
    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster, self._id = cluster, transactional_id
        self._epoch = 0
        self._transaction: Transaction | None = None
        self._delivered: list[tuple[Callable[[int], None], int]] = []

    def initialise(self) -> None:
        self._epoch = self._cluster.epochs[self._id] = self._cluster.epochs.get(self._id, 0) + 1
        left = self._cluster.open.pop(self._id, None)
        if left is not None:
            self._cluster.end(left, State.ABORTED)

    def begin(self) -> None:
        self._check_fence()
        self._transaction = self._cluster.open[self._id] = Transaction()
        self._delivered = []

    def produce(
        self, topic: str, partition: int, key: bytes, value: bytes | None, on_delivery: Callable[[int], None] | None = None
    ) -> None:
        offset = self._cluster.append((topic, partition), key, value, self._current())
        if on_delivery is not None:
            self._delivered.append((on_delivery, offset))

    def produce_many(self, topic: str, partition: int, records: Sequence[KeyedValue]) -> None:
        for key, value in records:
            self.produce(topic, partition, key, value)

    def send_offsets(self, offsets: Mapping[Place, int], metadata: object) -> None:
        transaction = self._current()
        if not offsets:
            return  # nothing is asked of the broker, so nobody is fenced
        assert isinstance(metadata, tuple)
        name, generation, member = metadata
        group = self._cluster.groups[name]
        if generation != group.generation or member not in group.members:
            self.abort()
            raise TransactionAborted("sending offsets: ILLEGAL_GENERATION")
        transaction.offsets.update({(name, place): offset for place, offset in offsets.items()})

    def commit(self) -> None:
        transaction = self._current()
        for on_delivery, offset in self._delivered:
            on_delivery(offset)
        self._cluster.end(transaction, State.COMMITTED)
        self._forget()

    def abort(self) -> None:
        self._cluster.end(self._current(), State.ABORTED)
        self._forget()

    def close(self) -> None:
        """Leaves an open transaction open, as a process does that dies."""

    def _forget(self) -> None:
        self._cluster.open.pop(self._id, None)
        self._transaction = None

    def _current(self) -> Transaction:
        self._check_fence()
        if self._transaction is None:
            raise Fatal("no transaction is open")
        return self._transaction

    def _check_fence(self) -> None:
        if self._epoch != self._cluster.epochs.get(self._id):
            raise Fatal(f"{self._id}: fenced by a newer producer")


class SimulatedMember:
    """A rebalance takes effect for others at once; a member learns of it at its next `read`, as a stopped one does."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topic: str,
        on_assigned: Callable[[list[Place]], Starts],
        on_given_up: Callable[[list[Place]], None],
    ) -> None:
        self._cluster, self._name, self._topic = cluster, group, topic
        self._on_assigned, self._on_given_up = on_assigned, on_given_up
        self._group = cluster.groups.setdefault(group, Group())
        self._generation = 0
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self.owned: set[Place] = set()
        self._join()

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        if self not in self._group.members:
            self._give_up()
            self._join()
        if self._generation != self._group.generation:
            self._give_up()
            self._take()
            return []
        records: list[Record] = []
        for place in sorted(self.owned - self._paused):
            stable = self._cluster.stable_offset(place)
            for entry in self._cluster.committed(place):
                if self._positions[place] <= entry.offset and len(records) < max_records:
                    records.append(Record(*place, entry.offset, entry.key, entry.value, NOW_MS))
                    self._positions[place] = entry.offset + 1
            if len(records) < max_records:
                self._positions[place] = max(self._positions[place], stable)
        return records

    def position(self, topic: str, partition: int) -> int | None:
        return self._positions.get((topic, partition))

    def seek(self, starts: Mapping[Place, int]) -> None:
        self._positions.update(starts)

    def pause(self, places: Collection[Place]) -> None:
        self._paused.update(places)

    def resume(self, places: Collection[Place]) -> None:
        self._paused.difference_update(places)

    def committed(self, places: Collection[Place]) -> dict[Place, int | None]:
        return {place: self._group.committed.get(place) for place in places}

    def metadata(self) -> object:
        return (self._name, self._generation, self)

    def expire(self) -> None:
        """The session timed out: the group goes on without this member, which does not know yet."""
        self._group.members.remove(self)
        self._group.generation += 1

    def close(self) -> None:
        if self in self._group.members:
            self.expire()
        self._give_up()

    def _join(self) -> None:
        self._group.members.append(self)
        self._group.generation += 1

    def _give_up(self) -> None:
        if self.owned:
            given_up = sorted(self.owned)
            self.owned = set()
            self._on_given_up(given_up)

    def _take(self) -> None:
        self._generation = self._group.generation
        index, count = self._group.members.index(self), len(self._group.members)
        each, more = divmod(self._cluster.partitions, count)
        first = index * each + min(index, more)
        places = [(self._topic, partition) for partition in range(first, first + each + (index < more))]
        self.owned = set(places)
        if places:
            starts = self._on_assigned(places)
            self._positions = {place: self._start(place, starts.get(place)) for place in places}
            self._paused = set(places)

    def _start(self, place: Place, offset: int | None) -> int:
        return self._group.committed.get(place, 0) if offset is None else offset


class SimulatedReader:
    def __init__(self, cluster: Cluster, starts: Mapping[Place, int]) -> None:
        self._cluster, self._positions = cluster, dict(starts)

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        records: list[Record] = []
        for place, position in self._positions.items():
            for entry in self._cluster.committed(place):
                if entry.offset >= position and len(records) < max_records:
                    records.append(Record(*place, entry.offset, entry.key, entry.value, NOW_MS))
                    self._positions[place] = entry.offset + 1
            if len(records) < max_records:
                self._positions[place] = max(self._positions[place], self._cluster.stable_offset(place))
        return records

    def read_rows(self, max_records: int, timeout_s: float) -> list[Row]:
        return [(record.key, record.value) for record in self.read(max_records, timeout_s)]

    def position(self, topic: str, partition: int) -> int:
        return self._positions[(topic, partition)]

    def close(self) -> None:
        """Holds nothing."""


class SimulatedLog:
    """`streams.log.log.Log` for one process, named by its instance."""

    def __init__(self, cluster: Cluster, instance: str) -> None:
        self._cluster, self._instance = cluster, instance
        self.members: list[SimulatedMember] = []

    def cluster_id(self) -> str:
        return "simulated"

    def topic_id(self, topic: str) -> str:
        return topic

    def transactions(self, role: str) -> SimulatedTransactions:
        return SimulatedTransactions(self._cluster, f"{role}.{self._instance}")

    def member(
        self,
        group: str,
        topic: str,
        client_id: str,
        on_assigned: Callable[[list[Place]], Starts],
        on_given_up: Callable[[list[Place]], None],
    ) -> SimulatedMember:
        member = SimulatedMember(self._cluster, group, topic, on_assigned, on_given_up)
        self.members.append(member)
        return member

    def reader(self, role: str, starts: Mapping[Place, int]) -> SimulatedReader:
        return SimulatedReader(self._cluster, starts)

    def end_offsets(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        return {place: self._cluster.stable_offset(place) if committed else self._cluster.high_watermark(place) for place in places}

    def log_start_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, 0)
