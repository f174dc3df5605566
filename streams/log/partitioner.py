"""Where a key lies: murmur2, as Java, Faust and aiokafka clients have it (docs/wire-format.md has vectors)."""

from confluent_kafka import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `key` among `partitions`. Keys are never empty: clients disagree on those."""
    if not key:
        raise ValueError("a record's key is never empty")
    partition: int = murmur2(key, partitions)
    return partition
