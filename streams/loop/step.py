"""What a handler works on: one partition's part of one transaction.

Nothing here is visible to anyone before the commit, and nothing survives an abort: puts go to an overlay over the
partition's store, records to a list.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from streams.log.reader import Place, Record
from streams.log.transaction import KeyedValue
from streams.store.table import Reads

_SENT_AT_ONCE: Final = 500
"""Outputs."""


class Output(NamedTuple):
    """A record to be produced in the transaction. `partition` is explicit: murmur2 of what the topic is keyed by."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


class Step:
    """`now` is in microseconds since the epoch, one for the whole step; `owned_since` is when this process took the partition over.

    `send`, where given, is called whenever many outputs have gathered and takes them (`taken_outputs`): they are on their way
    while the next are made.
    """

    def __init__(
        self,
        partition: int,
        store: Reads,
        records: list[Record],
        now: int,
        owned_since: int,
        send: "Callable[[Step], None] | None" = None,
    ) -> None:
        self.partition = partition
        self.records = records
        self.now = now
        self.owned_since = owned_since
        self.outputs: list[Output] = []
        """Not sent yet."""
        self.changelog: dict[bytes, bytes | None] = {}
        """Goes to the changelog and, after the commit, to the store."""
        self.local: dict[bytes, bytes | None] = {}
        """Goes to the store only: indexes that a restore makes again from the changelog."""
        self._store, self._send = store, send

    def get(self, key: bytes) -> bytes | None:
        """What was put in this step, or is in the store."""
        if key in self.changelog:
            return self.changelog[key]
        if key in self.local:
            return self.local[key]
        return self._store.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """`get` of each, in one call of the store."""
        changelog, local = self.changelog, self.local
        stored = self._store.get_many(keys)
        if not changelog and not local:
            return stored
        return [changelog[key] if key in changelog else local.get(key, value) for key, value in zip(keys, stored, strict=True)]

    def put(self, key: bytes, value: bytes | None) -> None:
        self.changelog[key] = value

    def put_local(self, key: bytes, value: bytes | None) -> None:
        self.local[key] = value

    def first_few(self, prefix: bytes, count: int, start: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """The first stored items below `prefix`, from the key `start` on; what this step has put is not seen."""
        with self._store.scan(prefix, start=start) as items:
            return list(islice(items, count))

    def produce(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self.outputs.append(Output(topic, partition, key, value))
        if self._send is not None and len(self.outputs) >= _SENT_AT_ONCE:
            self._send(self)

    def taken_outputs(self) -> dict[Place, list[KeyedValue]]:
        """Topic and partition -> what goes there, in order; the step has them no longer."""
        found: dict[Place, list[KeyedValue]] = {}
        for topic, partition, key, value in self.outputs:
            place = (topic, partition)
            if place not in found:
                found[place] = []
            found[place].append((key, value))
        self.outputs.clear()
        return found
