"""What a cluster is like, for `doctor`: its brokers and their settings, its topics, how far its groups are. Reads only."""

from collections.abc import Mapping
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType
from msgspec import Struct

from streams.errors import BrokerUnavailable, StreamsError
from streams.log.client import admin, translate
from streams.log.reader import end_offsets
from streams.settings import Settings

_TIMEOUT_S: Final = 10.0


class BrokerFacts(Struct, frozen=True):
    """`settings` as the broker runs with them, by name."""

    broker_id: int
    host: str
    port: int
    settings: Mapping[str, str]


class TopicFacts(Struct, frozen=True):
    """`short` counts partitions with fewer replicas in sync than assigned, `leaderless` those nobody serves."""

    partitions: int
    replicas: int
    short: int
    leaderless: int


def brokers(settings: Settings) -> tuple[BrokerFacts, ...]:
    """Raises `BrokerUnavailable` or another StreamsError."""
    client = admin(settings, "inspect")
    try:
        metadata = client.list_topics(timeout=_TIMEOUT_S)
        resources = {broker_id: ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in metadata.brokers}
        described = client.describe_configs(list(resources.values()))
        found = []
        for broker in sorted(metadata.brokers.values(), key=lambda broker: broker.id):
            entries = described[resources[broker.id]].result(_TIMEOUT_S)
            found.append(
                BrokerFacts(broker.id, str(broker.host), broker.port, {name: str(entry.value or "") for name, entry in entries.items()})
            )
        return tuple(found)
    except (KafkaException, TimeoutError) as error:
        raise _translated(error, "describing the brokers") from error


def topics(settings: Settings) -> dict[str, TopicFacts]:
    """All topics of the cluster. Raises as `brokers`."""
    client = admin(settings, "inspect")
    try:
        metadata = client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise _translated(error, "listing topics") from error
    return {
        name: TopicFacts(
            partitions=len(topic.partitions),
            replicas=min((len(each.replicas) for each in topic.partitions.values()), default=0),
            short=sum(len(each.isrs) < len(each.replicas) for each in topic.partitions.values()),
            leaderless=sum(each.leader < 0 for each in topic.partitions.values()),
        )
        for name, topic in metadata.topics.items()
        if topic.error is None
    }


def group_lag(settings: Settings, group: str, topic: str, partitions: int) -> dict[int, int | None]:
    """Committed records not yet behind the group's committed offset, by partition; None where nothing was committed."""
    name = f"{settings.topic_prefix}{group}"
    client = admin(settings, "inspect")
    try:
        answer = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise _translated(error, f"reading the offsets of group {name}") from error
    committed = {place.partition: place.offset for place in answer.topic_partitions if place.topic == topic and place.offset >= 0}
    ends = end_offsets(settings, [(topic, partition) for partition in range(partitions)], committed=True)
    return {
        partition: ends[(topic, partition)] - committed[partition] if partition in committed else None for partition in range(partitions)
    }


def _translated(error: KafkaException | TimeoutError, doing: str) -> StreamsError:
    return translate(error, doing) if isinstance(error, KafkaException) else BrokerUnavailable(f"{doing}: timed out")
