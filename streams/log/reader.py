"""Reads partitions from given offsets, outside any group: restore, followers, tools.

Offsets have holes (transaction markers, aborted and compacted records), so nothing here counts records to find an end:
`position` is where the client stands, holes passed, and an end is what the broker said it was.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streams.errors import BrokerUnavailable
from streams.log.client import admin, consumer, translate
from streams.settings import Settings

_RETRY_PAUSE_S: Final = 0.05
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]

Place = tuple[str, int]
"""A topic and a partition of it."""
Row = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class Record(NamedTuple):
    """A record at its place. `timestamp_ms` is -1 where the broker has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def record_of(message: Message) -> Record:
    """What is no error has a place."""
    return Record(message.topic(), message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1])  # type: ignore[arg-type]


def place_of(message: Message) -> tuple[str, int, int]:
    """Topic, partition and offset of a record, or of the end of a partition: both have all three."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def taken(messages: Iterable[Message], positions: dict[Place, int], doing: str, ignored: Collection[int] = ()) -> list[Record]:
    """The records among what a client handed out; `positions` then says where it stands.

    Raises StreamsError, unless it is a broker that is away (the client goes on trying) or a code among `ignored`.
    """
    records: list[Record] = []
    last: Record | None = None
    for message in messages:
        error = message.error()
        if error is None:
            record = record_of(message)
            # Once a run of records of one place, not once a record.
            if last is not None and (last.partition != record.partition or last.topic != record.topic):
                positions[(last.topic, last.partition)] = last.offset + 1
            last = record
            records.append(record)
            continue
        if last is not None:
            positions[(last.topic, last.partition)] = last.offset + 1
            last = None
        if error.code() == KafkaError._PARTITION_EOF:
            # Its offset lies behind control and aborted records that are never handed out.
            topic, partition, offset = place_of(message)
            positions[(topic, partition)] = offset
        elif error.code() not in ignored:
            translated = translate(error, doing)
            if not isinstance(translated, BrokerUnavailable):
                raise translated
    if last is not None:
        positions[(last.topic, last.partition)] = last.offset + 1
    return records


class PartitionReader:
    """Reads `starts` (place -> first offset) to wherever the log goes. Close it; it is not shared between threads."""

    def __init__(self, settings: Settings, role: str, starts: Mapping[Place, int], *, committed: bool = True) -> None:
        self._consumer: Consumer = consumer(
            settings,
            f"{role}.reader",
            {
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                # A start that retention has passed is not an error to be hidden by a jump; `read` raises it.
                "auto.offset.reset": "error",
            },
        )
        self._positions = dict(starts)
        self._consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in starts.items()])

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """What is there, at least one record unless the time-out passes. Raises `BrokerUnavailable` or StreamsError."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(max_records - 1, 0)] if max_records > 1 else [first]
        return taken(messages, self._positions, "reading")

    def read_rows(self, max_records: int, timeout_s: float) -> list[Row]:
        """Keys and values of what `read` would return, for less; of a reader of one partition."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        rows: list[Row] = []
        last: Message | None = None
        for message in (first, *self._consumer.consume(max_records - 1, 0)):
            if message.error() is None:
                rows.append((message.key(), message.value()))
                last = message
            else:
                taken((message,), self._positions, "reading")
        if last is not None:
            place = record_of(last)
            at = (place.topic, place.partition)
            # The end of the partition may have been told behind it.
            self._positions[at] = max(self._positions[at], place.offset + 1)
        return rows

    def position(self, topic: str, partition: int) -> int:
        """The next offset: everything below has been handed out or will never be."""
        return self._positions[(topic, partition)]

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> "PartitionReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def end_offsets(settings: Settings, places: Iterable[Place], *, committed: bool, timeout_s: float = 10) -> dict[Place, int]:
    """Where each partition ends: its last stable offset (`committed`), else its high watermark.

    A restore must reach the high watermark: the last stable offset stands still while a transaction hangs, and hides
    what was committed behind it.
    """
    return _offsets(settings, places, _LATEST, committed, timeout_s)


def log_start_offsets(settings: Settings, places: Iterable[Place], *, timeout_s: float = 10) -> dict[Place, int]:
    """Where each partition begins: what lay below is deleted."""
    return _offsets(settings, places, _EARLIEST, True, timeout_s)


def _offsets(settings: Settings, places: Iterable[Place], spec: OffsetSpec, committed: bool, timeout_s: float) -> dict[Place, int]:
    wanted = list(places)
    return _query(_connected(settings, "admin", wanted, timeout_s), wanted, spec, _isolation(committed), timeout_s)


def _isolation(committed: bool) -> IsolationLevel:
    return IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED


def _connected(settings: Settings, client_id: str, places: Collection[Place], timeout_s: float) -> AdminClient:
    """A client that knows the leaders. One that is asked for offsets before it is connected finds none, and looks again
    only after one or three seconds (about every twentieth does). Raises `BrokerUnavailable` or another StreamsError."""
    client = admin(settings, client_id)
    try:
        for topic in {topic for topic, _ in places}:
            client.list_topics(topic, timeout=timeout_s)
    except KafkaException as error:
        raise translate(error, "looking for leaders") from error
    return client


def _query(client: AdminClient, places: Iterable[Place], spec: OffsetSpec, isolation: IsolationLevel, timeout_s: float) -> dict[Place, int]:
    """Asks again while leaders move (a topic that was just made has none for a moment), within the time-out."""
    wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
    deadline = time.monotonic() + timeout_s
    while wanted:
        try:
            return _answers(client, wanted, isolation, max(1.0, deadline - time.monotonic()))
        except BrokerUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_PAUSE_S)
    return {}


def _answers(
    client: AdminClient, wanted: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel, timeout_s: float
) -> dict[Place, int]:
    found = {}
    for place, future in client.list_offsets(dict(wanted), isolation_level=isolation, request_timeout=timeout_s).items():
        try:
            found[(place.topic, place.partition)] = future.result(timeout_s + 1).offset
        except TimeoutError as error:
            raise BrokerUnavailable(f"offsets of {place.topic}:{place.partition}: timed out") from error
        except KafkaException as error:
            raise translate(error, f"offsets of {place.topic}:{place.partition}") from error
    return found


class EndOffsets:
    """Asks for ends, and beginnings, over one connection, for those who ask often (leases, followers, restores). Thread-safe."""

    def __init__(self, settings: Settings, role: str) -> None:
        self._settings, self._client_id = settings, f"{role}.ends"
        self._admin: AdminClient | None = None

    def query(self, places: Iterable[Place], *, committed: bool, timeout_s: float = 5) -> dict[Place, int]:
        """As `end_offsets`."""
        return self._asked(list(places), _LATEST, committed, timeout_s)

    def starts(self, places: Iterable[Place], *, timeout_s: float = 5) -> dict[Place, int]:
        """As `log_start_offsets`."""
        return self._asked(list(places), _EARLIEST, True, timeout_s)

    def _asked(self, places: list[Place], spec: OffsetSpec, committed: bool, timeout_s: float) -> dict[Place, int]:
        client = self._admin
        try:
            if client is None:
                client = self._admin = _connected(self._settings, self._client_id, places, timeout_s)
            return _query(client, places, spec, _isolation(committed), timeout_s)
        except BrokerUnavailable:
            # A client goes on naming the leader epoch that it has heard of, and a broker that came back refuses that one.
            self._admin = None
            raise
