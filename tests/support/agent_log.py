"""What the log holds of agents' checkpoints, for tests that judge by it."""

from contextlib import closing

from streams.agents.core import Head
from streams.agents.records import decode_checkpoint
from streams.log.log import KafkaLog
from streams.log.topics import Topics
from streams.settings import Settings


def logged(settings: Settings) -> list[tuple[bytes, Head]]:
    """Every committed record of the table but tombstones, in the order of each partition."""
    log, found = KafkaLog(settings), list[tuple[bytes, Head]]()
    places = [(Topics(settings.topic_prefix).agent_checkpoints, partition) for partition in range(settings.partitions)]
    ends = log.end_offsets(places, committed=True)
    with closing(log.reader("test", dict.fromkeys(places, 0))) as reader:
        while any(reader.position(*place) < end for place, end in ends.items()):
            for record in reader.read(1000, 0.5):
                assert record.key is not None
                if record.value is not None:
                    found.append((record.key, decode_checkpoint(record.value)))
    return found
