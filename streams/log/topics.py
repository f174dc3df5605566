"""Every topic: name, key, partitions, cleanup, retention, and the reason for each setting.

All topics keyed by session have equal partition counts, since a session's commands, events, outcomes and state lie in
one partition number; `verify` refuses anything else before a role starts.
"""

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from confluent_kafka.error import KafkaError
from msgspec import Struct

from streams.errors import BrokerUnavailable, Misconfigured
from streams.log.client import MAX_DEAD_LETTER_BYTES, MAX_RECORD_BYTES, admin, translate
from streams.settings import Settings

_DAY_MS: Final = 24 * 3600 * 1000

DEAD_LETTER_DAYS: Final = 90


class Topics:
    """The names, under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.commands = f"{prefix}sessions.commands"
        self.events = f"{prefix}sessions.events"
        self.outcomes = f"{prefix}sessions.outcomes"
        self.state = f"{prefix}sessions.state"
        self.checkpoints = f"{prefix}sessions.checkpoints"
        self.timers = f"{prefix}sessions.timers"
        self.graph = f"{prefix}sessions.graph"
        self.deadletter = f"{prefix}sessions.deadletter"
        self.retention = f"{prefix}sessions.retention"
        self.confirmations = f"{prefix}sessions.confirmations"
        self.config = f"{prefix}workspaces.config"
        self.workspace_commands = f"{prefix}workspaces.commands"
        self.workspace_outcomes = f"{prefix}workspaces.outcomes"
        self.custody = f"{prefix}custody.state"
        self.agent_commands = f"{prefix}agents.commands"
        self.agent_outcomes = f"{prefix}agents.outcomes"
        self.agent_checkpoints = f"{prefix}agents.checkpoints"


class TopicSpec(Struct, frozen=True):
    """A topic as it has to be. `by_session`: its partition count is that of the installation, else it has one."""

    name: str
    key: str
    by_session: bool
    config: dict[str, str]
    why: str

    def partitions(self, settings: Settings) -> int:
        return settings.partitions if self.by_session else 1


def declared(settings: Settings) -> tuple[TopicSpec, ...]:
    topics = Topics(settings.topic_prefix)
    common = {
        "max.message.bytes": str(MAX_RECORD_BYTES),
        # With three brokers an acknowledged record survives one of them; with one there is nothing to insist on.
        "min.insync.replicas": "2" if settings.replication >= 3 else "1",
    }
    compacted = {
        **common,
        "cleanup.policy": "compact",
        "delete.retention.ms": str(_ms(settings.tombstone_horizon_s)),
        # A quiet topic is cleaned within an hour of its segment's end; the default of half dirty may wait for ever.
        "segment.ms": str(_ms(settings.compacted_segment_s)),
        "min.cleanable.dirty.ratio": "0.1",
        "max.compaction.lag.ms": str(_ms(settings.compaction_lag_s)),
        "file.delete.delay.ms": str(_ms(settings.file_delete_delay_s)),
    }

    def deleted_after(days: int) -> dict[str, str]:
        return {**common, "cleanup.policy": "delete", "retention.ms": str(days * _DAY_MS)}

    return (
        TopicSpec(topics.commands, "session id", True, deleted_after(7), "A week is longer than an outage of every authority."),
        TopicSpec(topics.events, "session id", True, {**common, "cleanup.policy": "delete", "retention.ms": "-1"}, "The truth is kept."),
        TopicSpec(topics.outcomes, "asking process with its epoch", True, deleted_after(1), "Nobody waits for a day."),
        TopicSpec(topics.state, "session id/kind/item id", True, compacted, "The authority's changelog: the last value of each item."),
        TopicSpec(
            topics.checkpoints,
            "checkpoint id",
            True,
            compacted,
            "Anyone may load what checkpoints there are, in the session's partition; it holds no bytes of theirs.",
        ),
        TopicSpec(topics.timers, "session id/kind/id", True, compacted, "The custodian's changelog: what is due, and when."),
        TopicSpec(
            topics.graph,
            "session id/node or edge id",
            True,
            compacted,
            "The execution graph as a table: the last value of each item. It holds no content, and is made anew from the events.",
        ),
        TopicSpec(
            topics.deadletter,
            "original key",
            True,
            {**deleted_after(DEAD_LETTER_DAYS), "max.message.bytes": str(MAX_DEAD_LETTER_BYTES)},
            "Time to find out what a producer did; room for the largest record and its seal.",
        ),
        TopicSpec(
            topics.retention,
            "kind/workspace id/id",
            False,
            compacted,
            "What is retained no longer: every holder of data follows it, in one order.",
        ),
        TopicSpec(
            topics.confirmations,
            "holder id",
            False,
            # Its times are the broker's: what is destroyed by the clock is so only while the two agree.
            {**deleted_after(7), "message.timestamp.type": "LogAppendTime"},
            "How far each holder has followed; who says nothing for a week is asked again.",
        ),
        TopicSpec(topics.config, "workspace id/kind/id", False, compacted, "Every gateway reads it whole."),
        TopicSpec(
            topics.workspace_commands, "workspace id", False, deleted_after(7), "A week is longer than an outage of every custodian."
        ),
        TopicSpec(topics.workspace_outcomes, "asking process with its epoch", False, deleted_after(1), "Nobody waits for a day."),
        TopicSpec(topics.custody, "kind/id", False, compacted, "The changelog of what is erased: the last value of each item."),
        TopicSpec(
            topics.agent_commands,
            "workspace/subject/agent/kind",
            True,
            deleted_after(1),
            "Nobody waits for a day, and what was asked longer ago than a request may take has no effect.",
        ),
        TopicSpec(topics.agent_outcomes, "asking process with its epoch", True, deleted_after(1), "Nobody waits for a day."),
        TopicSpec(
            topics.agent_checkpoints,
            "workspace/subject/agent/kind[#version]",
            True,
            compacted,
            "What agents keep, sealed: the last version of each, and those before it until they expire. Its authority's changelog.",
        ),
    )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def apply(settings: Settings, *, timeout_s: float = 30) -> list[str]:
    """Creates what is missing, and returns its names. Raises `Misconfigured` where what exists does not fit."""
    client = admin(settings)
    existing = _existing(client, timeout_s)
    missing = [spec for spec in declared(settings) if spec.name not in existing]
    if missing:
        futures = client.create_topics(
            [
                NewTopic(spec.name, num_partitions=spec.partitions(settings), replication_factor=settings.replication, config=spec.config)
                for spec in missing
            ],
            operation_timeout=timeout_s,
        )
        for name, future in futures.items():
            try:
                future.result(timeout_s)
            except KafkaException as error:
                # Another process may create the same topics at the same time; `verify` has the last word.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translate(error, f"creating {name}") from error
        _wait_until_listed(client, {spec.name for spec in missing}, timeout_s)
    verify(settings, timeout_s=timeout_s)
    return [spec.name for spec in missing]


def verify(settings: Settings, *, timeout_s: float = 30) -> None:
    """Raises `Misconfigured` naming each topic that is missing or has the wrong partition count or cleanup policy."""
    client = admin(settings)
    existing = _existing(client, timeout_s)
    specs = declared(settings)
    wrong = []
    for spec in specs:
        expected, actual = spec.partitions(settings), existing.get(spec.name)
        if actual is None:
            wrong.append(f"{spec.name}: missing; run `session-streams topics apply`")
        elif actual != expected:
            wrong.append(f"{spec.name}: {actual} partitions, {expected} expected (the setting `partitions`)")
    if not wrong:
        wrong = _wrong_settings(client, specs, timeout_s)
    if wrong:
        raise Misconfigured("; ".join(wrong))


def _wait_until_listed(client: AdminClient, names: set[str], timeout_s: float) -> None:
    """A topic is created by the controller, and listed by the brokers once they have heard of it."""
    deadline = time.monotonic() + timeout_s
    while not names <= _existing(client, timeout_s).keys() and time.monotonic() < deadline:
        time.sleep(0.05)


def _existing(client: AdminClient, timeout_s: float) -> dict[str, int]:
    try:
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise translate(error, "listing topics") from error
    return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def _wrong_settings(client: AdminClient, specs: tuple[TopicSpec, ...], timeout_s: float) -> list[str]:
    """A topic of ours with another cleanup policy loses state (compact) or keeps what must go (delete)."""
    resources = {ConfigResource(ResourceType.TOPIC, spec.name): spec for spec in specs}
    wrong = []
    for resource, future in client.describe_configs(list(resources)).items():
        try:
            actual = future.result(timeout_s)
        except KafkaException as error:
            raise translate(error, f"describing {resource.name}") from error
        spec = resources[resource]
        for name in ("cleanup.policy", "max.message.bytes"):
            if actual[name].value != spec.config[name]:
                wrong.append(f"{spec.name}: {name} is {actual[name].value}, {spec.config[name]} expected")
    return wrong


def topic_ids(settings: Settings, names: list[str], *, timeout_s: float = 30) -> dict[str, str]:
    """The cluster's own id of each topic: another one after a topic was deleted and made again."""
    ids = {}
    client = admin(settings)  # kept until the last answer is in: a client that goes takes its requests with it
    for name, future in client.describe_topics(TopicCollection(names)).items():
        try:
            ids[name] = str(future.result(timeout_s).topic_id)
        except KafkaException as error:
            raise translate(error, f"describing {name}") from error
    return ids


def cluster_id(settings: Settings, *, timeout_s: float = 30) -> str:
    client = admin(settings)
    try:
        found = client.describe_cluster().result(timeout_s).cluster_id
    except KafkaException as error:
        raise translate(error, "describing the cluster") from error
    return str(found)


def broker_ids(client: AdminClient, *, timeout_s: float = 5) -> frozenset[int]:
    """Of the brokers that the cluster holds for alive."""
    try:
        found = client.describe_cluster(request_timeout=timeout_s).result(timeout_s + 1).nodes
    except KafkaException as error:
        raise translate(error, "describing the cluster") from error
    except TimeoutError as error:
        raise BrokerUnavailable("describing the cluster: timed out") from error
    return frozenset(node.id for node in found)


def look_at_brokers(settings: Settings) -> Callable[[], frozenset[int]]:
    """`broker_ids`, over one connection."""
    client = admin(settings, "brokers")
    return lambda: broker_ids(client)
