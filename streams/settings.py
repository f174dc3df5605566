"""Settings: one frozen record, read from the environment once, at the composition root (`connectors/cli`).

Every variable starts with SESSION_STREAMS_; `SESSION_STREAMS_KAFKA_SASL_MECHANISM=...` passes `sasl.mechanism` through
to every Kafka client.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.errors import Misconfigured

_PREFIX = "SESSION_STREAMS_"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every role shares. Times end in their unit."""

    bootstrap: str = "127.0.0.1:9092"
    topic_prefix: str = ""
    """Stands before every topic, group and transactional id, so that installations can share a cluster."""
    partitions: int = 4
    """Of the topics keyed by session. Fixed when the topics are created; start-up refuses another count."""
    replication: int = 1
    data_dir: Path = Path(".session-streams")
    """Stores under `stores/<role>/<instance>/`, keyring under `keyring/`, logs under `logs/`."""
    instance: str = "0"
    """Stable name of this process among those of its role: static membership, transactional id and stores follow it."""
    lease_s: float = 10.0
    """How long a process may serve without having seen that it is up to date."""
    member_session_timeout_s: float = 6.0
    transaction_timeout_s: float = 10.0
    request_timeout_s: float = 10.0
    """The gateway's own time-out for a command; the command's `not_after` follows it."""
    content_window_days: int = 365
    """Pinned to a session at creation where the workspace has no policy of its own."""
    registry_url: str = ""
    """Of a Confluent-compatible schema registry; empty: the numbers of `schemas/registry.json`. Chosen before the first
    record and kept, since the numbers in front of values are the registry's own."""
    registry_subjects: str = "session-streams.{subject}"
    """What a subject is called there; `/` within a subject becomes `.`."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """librdkafka settings passed through to every client (SASL, TLS)."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Raises `Misconfigured` naming the variable that cannot be read."""
        values: dict[str, object] = {}
        for name, kind in (
            ("bootstrap", str), ("topic_prefix", str), ("partitions", int), ("replication", int), ("data_dir", Path),
            ("instance", str), ("lease_s", float), ("member_session_timeout_s", float), ("transaction_timeout_s", float),
            ("request_timeout_s", float), ("content_window_days", int), ("registry_url", str), ("registry_subjects", str),
        ):  # fmt: skip
            text = environment.get(_PREFIX + name.upper())
            if text is not None:
                try:
                    values[name] = kind(text)
                except ValueError as error:
                    raise Misconfigured(f"{_PREFIX}{name.upper()}={text!r}: not a valid {kind.__name__}") from error
        start = _PREFIX + "KAFKA_"
        values["kafka"] = {
            key.removeprefix(start).lower().replace("_", "."): text for key, text in environment.items() if key.startswith(start)
        }
        return cls(**values)  # type: ignore[arg-type]
