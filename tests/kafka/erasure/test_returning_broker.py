"""A broker that was away for longer than tombstones are kept comes back with what was erased, and may lead (design 09).

It cannot be opened, since its secrets are gone; and it goes again, since the custodian notices and has it deleted once more.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from connectors.cli.kafka import LocalKafka
from session_streams import NotFound
from streams.log.retention import REISSUE, decode_retention
from streams.log.topics import Topics
from tests.support.erasing import Erasing, erasing_installation, quick_broker, quick_settings
from tests.support.erasure_world import KIND
from tests.support.processes import eventually
from tests.support.reading_logs import records
from tests.support.searching import Needles, search_twice

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(600)]
NAME = "marguerite_abernathy_6100"
HORIZON_S = 4.0


class Installed(NamedTuple):
    kafka: LocalKafka
    erasing: Erasing


class Row(NamedTuple):
    """A record of the topic of agents' checkpoints."""

    partition: int
    sealed: bytes


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    with quick_broker(3) as kafka:
        settings = quick_settings(kafka.bootstrap, tmp_path / "data", replication=3, tombstone_horizon_s=HORIZON_S)
        with erasing_installation(settings) as erasing:
            yield Installed(kafka, erasing)


def test_what_a_broker_brings_back_that_was_away_too_long_cannot_be_read_and_goes_again(installed: Installed) -> None:
    kafka, erasing = installed
    topic = Topics(erasing.settings.topic_prefix).agent_checkpoints
    erasing.client.save_checkpoint(NAME, KIND, {"told": "what an agent keeps of a customer " * 20}, ttl_seconds=3600)
    row = kept_row(kafka, topic)
    needles = Needles({"row": row.sealed})
    away = leader_of(kafka, topic, row.partition)
    assert holds(kafka, away, topic, row.partition, needles)

    with erasing.supervised():
        kafka.stop_node(away)
        asked = erasing.ask_erasure(NAME)
        erasing.reached([asked["erasure_id"]], "complete", within_s=180)
        here = [node for node in kafka.node_ids if node != away]
        assert [holds(kafka, node, topic, row.partition, needles) for node in here] == [False, False]
        # Its tombstone is gone as well: whoever was away never gets it.
        time.sleep(2 * HORIZON_S)

        kafka.start_nodes(away)
        assert holds(kafka, away, topic, row.partition, needles), "it came back without what it was to bring back"
        eventually(lambda: leads(kafka, topic, row.partition, away), within_s=90)
        assert is_served(kafka, topic, row) or reissued(kafka, erasing)
        assert is_absent(erasing)

    # Also for a store that is made anew from what this broker serves.
    (agents,) = (role for role in erasing.fleet.roles if role.output.name.startswith("agents"))
    agents.kill()
    shutil.rmtree(erasing.settings.stores_path("agents"))
    with erasing.supervised():
        eventually(lambda: is_absent(erasing), within_s=60)
        eventually(lambda: reissued(kafka, erasing), within_s=90, why="the custodian has not noticed")
        eventually(
            lambda: not any(holds(kafka, node, topic, row.partition, needles) for node in kafka.node_ids), within_s=90, why=erasing.logs()
        )
        assert is_absent(erasing)


def kept_row(kafka: LocalKafka, topic: str) -> Row:
    """What lies in the topic: a stretch of the longest value, which is its sealed part."""
    found = [(place, value) for place, _, value, _ in records(kafka.bootstrap) if place.startswith(topic) and len(value) > 200]
    assert found
    place, value = found[-1]
    return Row(int(place.partition(" ")[0].rpartition("-")[2]), value[-80:-40])


def holds(kafka: LocalKafka, node: int, topic: str, partition: int, needles: Needles) -> bool:
    """Whether the node has it in any file of this partition."""
    return bool(search_twice([kafka.data_dir / f"node-{node}" / "data" / f"{topic}-{partition}"], needles, between_s=0.5).findings)


def leader_of(kafka: LocalKafka, topic: str, partition: int) -> int:
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}).list_topics(topic, timeout=30)
    return int(metadata.topics[topic].partitions[partition].leader)


def leads(kafka: LocalKafka, topic: str, partition: int, node: int) -> bool:
    """Asks that the partition's preferred leader, which this node is, lead again: granted once it is in sync."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition)]).result(30)
    return leader_of(kafka, topic, partition) == node


def is_served(kafka: LocalKafka, topic: str, row: Row) -> bool:
    return any(row.sealed in value for place, _, value, _ in records(kafka.bootstrap) if place.startswith(topic))


def is_absent(erasing: Erasing) -> bool:
    try:
        erasing.client.get_checkpoint(NAME, KIND)
    except NotFound:
        return True
    return False


def reissued(kafka: LocalKafka, erasing: Erasing) -> bool:
    topic = Topics(erasing.settings.topic_prefix).retention
    rows = [decode_retention(value) for place, _, value, _ in records(kafka.bootstrap) if place.startswith(topic) and value]
    return any(row.kind == REISSUE for row in rows)
