"""Settings: one frozen record, read from the environment once, at the composition root (`connectors/cli`).

Every variable starts with SESSION_STREAMS_; `SESSION_STREAMS_KAFKA_SASL_MECHANISM=...` passes `sasl.mechanism` through
to every Kafka client. `environment` is the way back: what a process hands to those that it starts.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from streams.errors import Misconfigured

_PREFIX: Final = "SESSION_STREAMS_"
_KAFKA: Final = _PREFIX + "KAFKA_"
_READABLE: Final[tuple[type[str] | type[int] | type[float] | type[Path], ...]] = (str, int, float, Path)


def variable_of(prefix: str, name: str) -> str:
    """The environment's name of a field."""
    return prefix + name.upper()


def read_fields(record: type, prefix: str, environment: Mapping[str, str]) -> dict[str, object]:
    """Those fields of a dataclass that the environment names: texts, numbers and paths; another kind is its owner's to read.

    Raises `Misconfigured` naming the variable that cannot be read.
    """
    values: dict[str, object] = {}
    for each in fields(record):
        name = variable_of(prefix, each.name)
        kind = next((kind for kind in _READABLE if each.type is kind), None)
        if kind is not None and name in environment:
            try:
                values[each.name] = kind(environment[name])
            except ValueError as error:
                raise Misconfigured(f"{name}={environment[name]!r}: not a valid {kind.__name__}") from error
    return values


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
    hot_state_mb: int = 64
    """Of typed state of sessions that an authority keeps in memory, beside its store's caches."""
    content_window_days: int = 365
    """Pinned to a session at creation where the workspace has no policy of its own."""
    checkpoint_window_s: int = 30 * 24 * 3600
    """How long a checkpoint of a session may restore something, 30 days at most; pinned as well. A workspace's policy may only
    shorten it."""
    support_dir: str = ""
    """Of the signed observations behind the support catalogue, and of the keys that they count by; empty: `<data_dir>/support`."""
    support_days: float = 30.0
    """How long an observation proves something; that an attempt may be replaced, 30 days at most."""
    signers_dir: str = ""
    """Of the keys that sign bundles, receipts and statements on what is retained; empty: `<data_dir>/signers`. The processes of an
    installation share it, on one host or several: who has another one signs as somebody else."""
    blob_store: str = ""
    """Where uploads and large content lie: `s3://bucket/prefix`, with credentials and region from the AWS_* variables, or
    `file:///folder`; empty: `<data_dir>/blobs`."""
    blob_store_endpoint: str = ""
    """Of an S3-compatible service that is not AWS, as a URL."""
    keyring: str = ""
    """Where secrets are: `s3://bucket/prefix`, a bucket that keeps no versions; empty: a file below `<data_dir>/keyring`."""
    keyring_endpoint: str = ""
    """Of an S3-compatible service that is not AWS, as a URL."""
    workspace_keys: str = ""
    """What wraps the keys of workspaces: `aws-kms:<key id, ARN or alias>`; empty: the key file `<data_dir>/keyring/workspace.key`."""
    kms_endpoint: str = ""
    """Of a service like AWS KMS, as a URL."""
    upload_total_s: float = 3600.0
    """How long an upload may take."""
    orphan_grace_s: float = 86_400.0
    """How long an upload that nothing refers to is kept, at least twice as long as one may take. Half of it is the time to refer to it."""
    sweep_every_s: float = 3_600.0
    """How often a custodian looks for such uploads."""
    destruction_grace_s: float = 86_400.0
    """How long after its end what has expired is destroyed: a clock that was wrong for less destroys nothing that is still retained."""
    clock_drift_s: float = 60.0
    """By how much this clock and the broker's may differ while something is destroyed because its time is over."""
    expiries_per_s: float = 700.0
    """What a custodian destroys at most because its time is over, so that a large lot of it delays nobody."""
    tombstone_horizon_s: float = 7 * 86_400.0
    """How long a compacted topic keeps tombstones, longer than any outage after which a broker comes back with its disk; a store that was
    away for longer is made anew."""
    compacted_segment_s: float = 3_600.0
    """When a compacted topic begins a new segment: what is in the one before can be removed."""
    compaction_lag_s: float = 86_400.0
    """By when at the latest a compacted topic is cleaned."""
    file_delete_delay_s: float = 60.0
    """How long a broker keeps the file of a segment that was removed."""
    compaction_margin_s: float = 85.0
    """What removal by compaction takes beyond these times: the abort scan of transactions (10 s), a cleaner's back-off (15 s) and its
    work (a minute)."""
    registry_url: str = ""
    """Of a Confluent-compatible schema registry; empty: the numbers of `schemas/registry.json`. Chosen before the first
    record and kept, since the numbers in front of values are the registry's own."""
    registry_subjects: str = "session-streams.{subject}"
    """What a subject is called there; `/` within a subject becomes `.`."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """librdkafka settings passed through to every client (SASL, TLS)."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Raises `Misconfigured` naming the variable that cannot be read, or that another one does not allow."""
        values = read_fields(cls, _PREFIX, environment)
        values["kafka"] = {
            name.removeprefix(_KAFKA).lower().replace("_", "."): text for name, text in environment.items() if name.startswith(_KAFKA)
        }
        settings = cls(**values)  # type: ignore[arg-type]
        settings.check()
        return settings

    def check(self) -> None:
        """Raises `Misconfigured` where an upload that is under way, or just told of, could be swept."""
        if not self.upload_total_s > 0:
            raise Misconfigured(f"{variable_of(_PREFIX, 'upload_total_s')}={self.upload_total_s:g}: expected more than 0 seconds")
        if not self.orphan_grace_s >= 2 * self.upload_total_s:
            name, least = variable_of(_PREFIX, "orphan_grace_s"), variable_of(_PREFIX, "upload_total_s")
            raise Misconfigured(f"{name}={self.orphan_grace_s:g}: expected at least twice {least}={self.upload_total_s:g}")

    def environment(self) -> dict[str, str]:
        """What `from_environment` reads these settings from."""
        given = {variable_of(_PREFIX, each.name): str(getattr(self, each.name)) for each in fields(self) if each.name != "kafka"}
        return given | {variable_of(_KAFKA, name.replace(".", "_")): text for name, text in self.kafka.items()}

    @property
    def support_path(self) -> Path:
        return Path(self.support_dir) if self.support_dir else self.data_dir / "support"

    @property
    def signers_path(self) -> Path:
        """Of the keys that this installation signs with (`streams.custody.signers`)."""
        return Path(self.signers_dir) if self.signers_dir else self.data_dir / "signers"

    def stores_path(self, role: str) -> Path:
        """Of a role's stores, those of every instance."""
        return self.data_dir / "stores" / role

    def store_path(self, role: str, partition: int) -> Path:
        return self.stores_path(role) / self.instance / str(partition)
