"""The settings of this installation in aiokafka's words: the roles' own clients are librdkafka's.

Rules: a setting of security that cannot be translated is refused, never left out.
"""

import ssl
from collections.abc import Mapping
from typing import Final

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from streams.errors import Misconfigured
from streams.log.client import MAX_RECORD_BYTES
from streams.settings import Settings

_HEARTBEATS_A_SESSION: Final = 3
_IGNORED: Final = ("client.id", "statistics.interval.ms", "socket.", "log", "debug", "broker.address.", "connections.max.idle.ms")
"""Of librdkafka alone, and nothing that a connection needs."""
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password")


def group_of(settings: Settings) -> str:
    """Each instance reads the whole topic by itself."""
    return f"{settings.topic_prefix}tap.{settings.instance}"


def new_consumer(settings: Settings) -> aiokafka.AIOKafkaConsumer:
    """A consumer of committed records that comes back under its own name: a killed tap need not wait for its ghost."""
    session_ms = int(settings.member_session_timeout_s * 1000)
    return aiokafka.AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap.split(","),
        client_id="tap",
        group_id=group_of(settings),
        group_instance_id=f"tap.{settings.instance}",
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(RangePartitionAssignor,),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // _HEARTBEATS_A_SESSION,
        rebalance_timeout_ms=session_ms,
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=MAX_RECORD_BYTES,
        **security_of(settings.kafka),
    )


def security_of(kafka: Mapping[str, str]) -> dict[str, object]:
    """SASL and TLS as aiokafka takes them. Raises `Misconfigured` naming a setting that has no counterpart."""
    left = {name: value for name, value in kafka.items() if not name.startswith(_IGNORED)}
    protocol = left.pop("security.protocol", "PLAINTEXT").upper()
    found: dict[str, object] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        found["sasl_mechanism"] = left.pop("sasl.mechanism", left.pop("sasl.mechanisms", "PLAIN"))
        found["sasl_plain_username"] = left.pop("sasl.username", None)
        found["sasl_plain_password"] = left.pop("sasl.password", None)
    if protocol.endswith("SSL"):
        authority, certificate, key, password = (left.pop(name, None) for name in _FILES)
        try:
            context = ssl.create_default_context(cafile=authority)
            if certificate is not None:
                context.load_cert_chain(certificate, key, password)
        except OSError as error:
            raise Misconfigured(f"the TLS settings of Kafka cannot be used: {error}") from error
        found["ssl_context"] = context
    if left:
        raise Misconfigured(f"a tap cannot use these Kafka settings: {', '.join(sorted(left))}")
    return found
