"""Builds every Kafka client, and turns what they raise into our errors. Beyond this package nobody knows a broker's codes.

The settings that guarantees rest on stand here, each with its reason; `Settings.kafka` (SASL, TLS) is merged last, and
cannot undo them.
"""

from collections.abc import Mapping
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from streams.errors import BrokerUnavailable, Misconfigured, StreamsError
from streams.settings import Settings

MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
"""Of a topic's records: 8 MiB of sealed content and its structure fit."""
MAX_DEAD_LETTER_BYTES: Final = MAX_RECORD_BYTES + 1024 * 1024

_log = structlog.get_logger(__name__)

_UNAVAILABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT,
        KafkaError._WAIT_COORD, KafkaError._RESOLVE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT, KafkaError._QUEUE_FULL, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR,
        # A broker that came back, or another leader, asked by a client that has not heard of it yet.
        KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,  # a topic that was just made has no leaders yet
    }
)  # fmt: skip
_MISCONFIGURED: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError._INVALID_ARG,
    }
)  # fmt: skip


def translate(error: KafkaError | KafkaException, doing: str) -> StreamsError:
    """The error of ours that says what to do next. `doing` names the step, never content."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    detail = f"{doing}: {cause.name()}: {cause.str()}"
    if cause.code() in _UNAVAILABLE:
        return BrokerUnavailable(detail)
    if cause.code() in _MISCONFIGURED:
        return Misconfigured(detail)
    return StreamsError(detail)


def _on_error(error: KafkaError) -> None:
    # librdkafka goes on trying by itself; what ends a step comes out of the call that waits for it.
    _log.warning("kafka_client_error", error=error.name(), detail=error.str(), fatal=error.fatal())


def _common(settings: Settings, role: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": role,
        "error_cb": _on_error,
        # Back-offs that let a fail-over of the coordinator pass in seconds (defaults reach 10 s).
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.fast.interval.ms": 100,
        "log.connection.close": False,
        # Its own lines pass our logs by, dozens a second while a broker is away; what matters comes through `error_cb`.
        "log_level": 2,
        **settings.kafka,
    }


def producer(settings: Settings, role: str, overrides: Mapping[str, object] | None = None) -> Producer:
    """A producer that neither loses, duplicates nor reorders: idempotent, acknowledged by all in-sync replicas."""
    return Producer(
        {
            **_common(settings, role),
            # The default (CRC32) finds other partitions than every other client.
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "message.max.bytes": MAX_DEAD_LETTER_BYTES,  # each topic has its own limit
            "linger.ms": 0,
            "queue.buffering.max.kbytes": 256 * 1024,
            **(overrides or {}),
        }
    )


def consumer(settings: Settings, role: str, overrides: Mapping[str, object] | None = None) -> Consumer:
    """A consumer that sees committed records only, and whose offsets move in our hands only."""
    return Consumer(
        {
            **_common(settings, role),
            "group.id": f"{settings.topic_prefix}{role}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            # Refetch soon after the local queue had been full; 27 to 76 thousand records a second.
            "fetch.queue.backoff.ms": 2,
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 32 * 1024,
            "fetch.wait.max.ms": 100,
            "fetch.message.max.bytes": MAX_RECORD_BYTES,
            "fetch.max.bytes": 4 * MAX_RECORD_BYTES,
            "receive.message.max.bytes": 5 * MAX_RECORD_BYTES,
            **(overrides or {}),
        }
    )


def admin(settings: Settings, role: str = "admin") -> AdminClient:
    return AdminClient(_common(settings, role))
