"""The input topic, made from a seed: values of random bytes under keys drawn at random, and what they must come to."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from confluent_kafka.admin import NewTopic

from benchmarks.bench import PARTITIONS, places
from benchmarks.peers.check import Ledger, State
from benchmarks.traffic import Keyed, produce, sender
from streams.log.client import admin
from streams.log.reader import end_offsets
from streams.settings import Settings

STAMPED: Final = {"message.timestamp.type": "LogAppendTime"}
COMPACTED: Final = {"cleanup.policy": "compact"}


@dataclass(frozen=True)
class Source:
    """A topic that is filled. `expected` has the last state of every key that occurs."""

    topic: str
    events: int
    value_bytes: int
    expected: dict[bytes, State]


def keyed(events: int, value_bytes: int, keys: int, seed: int = 1) -> Iterator[Keyed]:
    """`events` records; keys look like session ids, each as likely as any other."""
    random = Random(seed)
    ids = [f"sess_{random.getrandbits(128):032x}".encode() for _ in range(keys)]
    for _ in range(events):
        yield random.choice(ids), random.randbytes(value_bytes)


def filled(settings: Settings, topic: str, events: int, value_bytes: int, keys: int) -> Source:
    """Makes the topic and puts the input in, outside of any transaction."""
    create(settings, {topic: {}})
    ledger = Ledger()

    def noted() -> Iterator[Keyed]:
        for key, value in keyed(events, value_bytes, keys):
            ledger.add(key, value)
            yield key, value

    produce(sender(settings), topic, PARTITIONS, noted())
    return Source(topic, events, value_bytes, ledger.states)


def create(settings: Settings, configurations: dict[str, dict[str, str]]) -> None:
    """Topics of `PARTITIONS` partitions, with leaders once this returns."""
    client = admin(settings)  # kept until the answer is in
    made = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in configurations.items()]
    for future in client.create_topics(made).values():
        future.result(30)
    for name in configurations:
        end_offsets(settings, places(settings, name), committed=False)


def delete(settings: Settings, topics: list[str]) -> None:
    """Those of them that are there: an engine that ended early has not made its own."""
    client = admin(settings)
    there = client.list_topics(timeout=30).topics
    for future in client.delete_topics([topic for topic in topics if topic in there]).values():
        future.result(30)
