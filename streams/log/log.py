"""The log as loop and projector see it: a handful of ports, and Kafka behind them.

The simulator of the tests stands behind the same ports and passes the same contract (tests/contract/log_contract.py).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from streams.log import reader, topics
from streams.log.membership import GroupConsumer, Starts
from streams.log.reader import PartitionReader, Place, Record, Row
from streams.log.transaction import KeyedValue, TransactionalProducer
from streams.settings import Settings


class Transactions(Protocol):
    """One transactional id. Raises `TransactionAborted` (rewind) or `Fatal` (leave); see `TransactionalProducer`."""

    def initialise(self) -> None: ...
    def begin(self) -> None: ...
    def produce(
        self, topic: str, partition: int, key: bytes, value: bytes | None, on_delivery: Callable[[int], None] | None = None
    ) -> None: ...
    def produce_many(self, topic: str, partition: int, records: Sequence[KeyedValue]) -> None: ...
    def send_offsets(self, offsets: Mapping[Place, int], metadata: object) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Member(Protocol):
    """One member of a consumer group; see `GroupConsumer`."""

    @property
    def owned(self) -> set[Place]: ...
    def read(self, max_records: int, timeout_s: float) -> list[Record]: ...
    def position(self, topic: str, partition: int) -> int | None: ...
    def seek(self, starts: Mapping[Place, int]) -> None: ...
    def pause(self, places: Collection[Place]) -> None: ...
    def resume(self, places: Collection[Place]) -> None: ...
    def committed(self, places: Collection[Place]) -> dict[Place, int | None]: ...
    def metadata(self) -> object: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """Partitions from given offsets; see `PartitionReader`."""

    def read(self, max_records: int, timeout_s: float) -> list[Record]: ...
    def read_rows(self, max_records: int, timeout_s: float) -> list[Row]: ...
    def position(self, topic: str, partition: int) -> int: ...
    def close(self) -> None: ...


class Log(Protocol):
    """Everything that a role asks of Kafka."""

    def cluster_id(self) -> str: ...
    def topic_id(self, topic: str) -> str: ...
    def transactions(self, role: str) -> Transactions: ...
    def member(
        self,
        group: str,
        topic: str,
        client_id: str,
        on_assigned: Callable[[list[Place]], Starts],
        on_given_up: Callable[[list[Place]], None],
    ) -> Member: ...
    def reader(self, role: str, starts: Mapping[Place, int]) -> Reader: ...
    def end_offsets(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]: ...
    def log_start_offsets(self, places: Iterable[Place]) -> dict[Place, int]: ...


class KafkaLog:
    """`Log` on a cluster. Its methods raise `BrokerUnavailable`, `Misconfigured` or another StreamsError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ends = reader.EndOffsets(settings, "log")

    def cluster_id(self) -> str:
        return topics.cluster_id(self._settings)

    def topic_id(self, topic: str) -> str:
        return topics.topic_ids(self._settings, [topic])[topic]

    def transactions(self, role: str) -> Transactions:
        return TransactionalProducer(self._settings, role)

    def member(
        self,
        group: str,
        topic: str,
        client_id: str,
        on_assigned: Callable[[list[Place]], Starts],
        on_given_up: Callable[[list[Place]], None],
    ) -> Member:
        return GroupConsumer(self._settings, group, topic, client_id=client_id, on_assigned=on_assigned, on_given_up=on_given_up)

    def reader(self, role: str, starts: Mapping[Place, int]) -> Reader:
        return PartitionReader(self._settings, role, starts)

    def end_offsets(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        return self._ends.query(places, committed=committed, timeout_s=10)

    def log_start_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._ends.starts(places, timeout_s=10)
