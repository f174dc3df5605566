"""What lies in the tables of the graph role, in its topic, and what the events lead to: three ways to the same bytes."""

from streams.log.log import KafkaLog
from streams.log.reader import Record
from streams.log.topics import Topics
from streams.projections.graph.handler import LAYOUT_VERSION, ROLE
from streams.settings import Settings
from streams.store.memory import MemoryStore
from streams.store.store import Store
from streams.store.table import StoreIdentity
from tests.support.graphs import GraphStore


def committed(settings: Settings, topic: str) -> dict[int, list[Record]]:
    """All records of a topic, by partition, up to its end as it is now."""
    log = KafkaLog(settings)
    places = [(topic, partition) for partition in range(settings.partitions)]
    ends = log.end_offsets(places, committed=False)
    reader = log.reader("test", dict.fromkeys(places, 0))
    found: dict[int, list[Record]] = {partition: [] for partition in range(settings.partitions)}
    while any(reader.position(*place) < end for place, end in ends.items()):
        for record in reader.read(5000, 0.2):
            found[record.partition].append(record)
    reader.close()
    return found


def stored_digests(settings: Settings) -> list[str]:
    """Of the tables on disk, while no process holds them."""
    log = KafkaLog(settings)
    cluster, topic_id = log.cluster_id(), log.topic_id(Topics(settings.topic_prefix).graph)
    digests = []
    for partition in range(settings.partitions):
        path = settings.store_path(ROLE, partition)
        store = Store.open(path, StoreIdentity(ROLE, LAYOUT_VERSION, cluster, topic_id, partition))
        digests.append(store.digest())
        store.close()
    return digests


def topic_digests(settings: Settings) -> list[str]:
    """Of tables that a stranger makes of the topic alone: the last value of each key."""
    handler = GraphStore(settings)._handler
    digests = []
    for _, records in sorted(committed(settings, Topics(settings.topic_prefix).graph).items()):
        store = MemoryStore()
        for record in records:
            store.write(list(handler.restored(store.get, [(record.key, record.value)])), {})
        digests.append(store.digest())
    return digests


def folded_digests(settings: Settings) -> list[str]:
    """Of tables folded anew from the events, an event a transaction."""
    digests = []
    for partition, records in sorted(committed(settings, Topics(settings.topic_prefix).events).items()):
        table = GraphStore(settings, partition)
        for record in records:
            table.apply([record])
        digests.append(table.store.digest())
    return digests
