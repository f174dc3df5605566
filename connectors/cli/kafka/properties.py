"""The broker settings that a local Kafka runs with, each with its reason.

The first group is what the guarantees rely on and a production cluster needs as well; the second makes small machines
and tests pleasant and is nobody's advice for production.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from streams.log.client import MAX_RECORD_BYTES


class Ports(NamedTuple):
    """Where one node listens on 127.0.0.1."""

    broker: int
    controller: int


def guarantees(nodes: int) -> dict[str, str]:
    """What the promises of the log rest on, for a cluster of `nodes`."""
    replicas, in_sync = ("3", "2") if nodes >= 3 else ("1", "1")
    return {
        # A name typed wrong is an error, and no topic comes into being with a partition count nobody chose.
        "auto.create.topics.enable": "false",
        # Acknowledged means on two disks: one node may be lost at any time without losing an accepted event.
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        # The offsets and the transaction log are as much a part of exactly-once as the events.
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        # A replica that fell behind must not become leader and forget what was acknowledged.
        "unclean.leader.election.enable": "false",
        # A command of 8 MiB of sealed content with its envelope; the followers must be able to copy it.
        "message.max.bytes": str(MAX_RECORD_BYTES),
        "replica.fetch.max.bytes": str(MAX_RECORD_BYTES),
    }


def small(nodes: int) -> dict[str, str]:
    """What keeps a local cluster quick to start, quick to notice a fault, and small."""
    return {
        # Fifty partitions each are the default: a hundred folders before the first record.
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
        # The first member of a group need not wait three seconds for a second one.
        "group.initial.rebalance.delay.ms": "0",
        # Tests of takeover choose a shorter session than the six seconds that are the least by default.
        "group.min.session.timeout.ms": "1000",
        # A killed producer's transaction holds back readers until its time-out and this scan (10 s by default) have passed.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # A node that was killed comes back, and its partitions find a new leader, after this and not after nine seconds.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "400",
        "replica.lag.time.max.ms": "2000",
        # Allocated at the start: 128 MB by default.
        "log.cleaner.dedupe.buffer.size": str(2 * 1024 * 1024),
        "log.cleaner.threads": "1",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # An orderly stop hands leadership over, which a lone node cannot.
        "controlled.shutdown.enable": "true" if nodes > 1 else "false",
    }


def render(node_id: int, ports: Sequence[Ports], log_dir: Path, overrides: Mapping[str, str]) -> str:
    """The text of node `node_id`'s server.properties (nodes count from 1; `ports` of all of them, in order)."""
    mine = ports[node_id - 1]
    values = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{number}@127.0.0.1:{port.controller}" for number, port in enumerate(ports, 1)),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"PLAINTEXT://127.0.0.1:{mine.broker},CONTROLLER://127.0.0.1:{mine.controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{mine.broker},CONTROLLER://127.0.0.1:{mine.controller}",
        "log.dirs": str(log_dir),
        **guarantees(len(ports)),
        **small(len(ports)),
        **overrides,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())
