"""What the client and the broker do at best on this machine: the limits that everything else is told in.

One producer, one consumer, one transaction after the other, with the settings of our own clients (`streams.log.client`),
so that a ratio shows what our work costs and not what another setting would give.
"""

import secrets
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bench import PARTITIONS, Bench, places, total
from benchmarks.results import Result, percentile
from benchmarks.traffic import Keyed, refused
from streams.log.client import consumer, producer
from streams.log.partitioner import partition_of
from streams.log.reader import end_offsets
from streams.settings import Settings

_KEYS = 1000
_BATCH = 10_000
_WAIT_S = 60.0
_COMMON = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000}


def measure(bench: Bench) -> Iterator[Result]:
    """raw_produce_records_per_s, raw_consume_records_per_s, raw_transaction_p50_ms."""
    yield from raw_throughput(bench)
    yield raw_transaction(bench)


def raw_throughput(bench: Bench) -> Iterator[Result]:
    options = bench.options
    settings, topic = bench.topic("raw", PARTITIONS)
    value = secrets.token_bytes(options.event_bytes)
    keys = [secrets.token_hex(18).encode() for _ in range(_KEYS)]
    records: list[Keyed] = [(keys[index % _KEYS], value) for index in range(options.raw_records)]
    sender = producer(settings, "bench", _COMMON)
    _produced(sender, topic, records[:1000])  # connections, the first segment
    begun = time.perf_counter()
    _produced(sender, topic, records)
    rate = len(records) / (time.perf_counter() - begun)
    in_batches = _batched(settings, sender, topic, records)
    yield Result(name="raw_produce_records_per_s", value=rate, unit="records/s", details={"in_batches": in_batches})
    yield Result(name="raw_consume_records_per_s", value=_consumed(settings, topic, len(records)), unit="records/s")


def _produced(sender: Producer, topic: str, records: list[Keyed]) -> None:
    """One call a record, as a gateway produces."""
    partition_by_key = {key: partition_of(key, PARTITIONS) for key, _ in records[:_KEYS]}
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for index, (key, value) in enumerate(records, start=1):
        while True:
            try:
                sender.produce(topic, value, key, partition_by_key[key], on_delivery=delivered)
                break
            except BufferError:
                sender.poll(0.05)
        if index % 1000 == 0:
            sender.poll(0)
    sender.flush()
    if failed:
        raise RuntimeError(f"{len(failed)} records were not delivered: {failed[0]}")


def _batched(settings: Settings, sender: Producer, topic: str, records: list[Keyed]) -> float:
    """Records a second through `produce_batch`, which takes the partition for a whole batch only."""
    shares: dict[int, list[dict[str, Any]]] = {partition: [] for partition in range(PARTITIONS)}
    for key, value in records:
        shares[partition_of(key, PARTITIONS)].append({"key": key, "value": value})
    before = total(end_offsets(settings, places(settings, topic), committed=False))
    begun = time.perf_counter()
    for partition, share in shares.items():
        for at in range(0, len(share), _BATCH):
            waiting = share[at : at + _BATCH]
            while waiting:
                sender.produce_batch(topic, waiting, partition=partition)
                waiting = refused(waiting)
                sender.poll(0.05 if waiting else 0)
    sender.flush()
    rate = len(records) / (time.perf_counter() - begun)
    arrived = total(end_offsets(settings, places(settings, topic), committed=False)) - before
    if arrived != len(records):
        raise RuntimeError(f"{arrived} of {len(records)} records were delivered in batches")
    return rate


def _consumed(settings: Settings, topic: str, count: int) -> float:
    """From the first records handed out, `count` more; there are twice as many."""
    receiver = consumer(settings, "bench")
    receiver.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen, begun = 0, 0.0
    deadline = time.monotonic() + _WAIT_S
    while seen < count:
        messages = receiver.consume(2000, 0.01)
        if messages and not begun:
            begun = time.perf_counter()
            seen = -len(messages)  # they came before the clock began
        for message in messages:
            if message.error() is None and message.value() is not None:
                seen += 1
        if time.monotonic() > deadline:
            raise TimeoutError("raw consume")
    rate = seen / (time.perf_counter() - begun)
    receiver.close()
    return rate


def raw_transaction(bench: Bench) -> Result:
    """R: begin, one record, the offsets of one partition, commit; linger 0."""
    settings, topic = bench.topic("transaction", 1)
    receiver = consumer(settings, "bench")
    receiver.subscribe([topic])
    sender = producer(settings, "bench", {"transactional.id": f"{settings.topic_prefix}bench", "retry.backoff.ms": 1})
    sender.init_transactions(_WAIT_S)
    deadline = time.monotonic() + _WAIT_S
    while not receiver.assignment():
        receiver.poll(0.05)
        if time.monotonic() > deadline:
            raise TimeoutError("raw transaction: no assignment")
    value = secrets.token_bytes(bench.options.event_bytes)
    seconds = []
    warm = bench.options.raw_transactions  # as many again, so that the broker is compiled
    for index in range(bench.options.raw_transactions + warm):
        receiver.poll(0)
        begun = time.perf_counter()
        _transact(sender, receiver, topic, value, index)
        if index >= warm:
            seconds.append(time.perf_counter() - begun)
    receiver.close()
    return Result(
        name="raw_transaction_p50_ms",
        value=percentile(seconds, 50) * 1000,
        unit="ms",
        details={"p99_ms": percentile(seconds, 99) * 1000},
    )


def _transact(sender: Producer, receiver: Consumer, topic: str, value: bytes, offset: int) -> None:
    sender.begin_transaction()
    sender.produce(topic, value, b"key", 0)
    sender.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], receiver.consumer_group_metadata())
    sender.commit_transaction()
