"""An empty store until its authority decides again: the changelog of so many sessions, read and written to RocksDB.

The changelog is made here, by an authority without a loop: each session's creation is decided, and what the decision puts
is written in transactions of the size that a loop's are. The seconds are those between being given the partitions and the
last of them restored, by the process's own log.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any, Final

from benchmarks import traffic
from benchmarks.bench import Bench, Cost, Role, every_look
from benchmarks.results import Result
from streams.authority.authority import SessionAuthority
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log.partitioner import partition_of
from streams.log.reader import Record
from streams.log.topics import Topics
from streams.log.transaction import TransactionalProducer
from streams.loop.step import Step
from streams.settings import Settings
from streams.store.memory import MemoryStore

_DEADLINE_S: Final = 600.0
_AT_ONCE: Final = 2000
"""Commands in one transaction."""


def measure(bench: Bench) -> Iterator[Result]:
    """restore_s, restore_sessions_per_s."""
    settings, count = bench.settings("restore"), bench.options.restored_sessions
    bench.say(f"restore: {count} sessions are being created")
    written = _create(settings, count)
    seconds, cpu_s, records = _restored(settings)
    if records != written:
        raise RuntimeError(f"{records} records were restored of {written} that were written")
    bench.forget(settings)
    details = {"sessions": count, "changelog_records": records, "cpu_s_per_million": cpu_s / count * 1e6}
    yield Result(name="restore_s", value=seconds, unit="s", details=details)
    yield Result(name="restore_sessions_per_s", value=count / seconds, unit="sessions/s")


def _create(settings: Settings, count: int) -> int:
    """Writes the changelog of so many new sessions; returns how many records that took."""
    topic, form, written = Topics(settings.topic_prefix).commands, traffic.creating(), 0
    with (
        closing(open_local_keyring(settings.data_dir / "keyring")) as keyring,
        closing(TransactionalProducer(settings, "bench")) as producer,
    ):
        authority = SessionAuthority(settings, Sealer(keyring, cache_seconds=settings.lease_s))
        producer.initialise()
        waiting: dict[int, list[Record]] = defaultdict(list)
        offsets = [0] * settings.partitions

        def decide() -> int:
            # Sessions are new, so nothing that was put before is asked for.
            steps = [Step(partition, MemoryStore(), records, time.time_ns() // 1000, 0) for partition, records in waiting.items()]
            waiting.clear()
            producer.begin()
            for step in steps:
                authority.handle(step)
                producer.produce_many(authority.changelog, step.partition, list(step.changelog.items()))
            producer.commit()
            return sum([len(step.changelog) for step in steps])

        for number, (key, value) in enumerate(traffic.sessions_of(traffic.new_sessions(count), form), start=1):
            partition = partition_of(key, settings.partitions)
            waiting[partition].append(Record(topic, partition, offsets[partition], key, value, -1))
            offsets[partition] += 1
            if number % _AT_ONCE == 0 or number == count:
                written += decide()
        return written


def _restored(settings: Settings) -> tuple[float, float, int]:
    """Seconds, those of a processor until then, and records of the changelog that were read."""
    role = Role(settings, "authority")
    try:
        cost = Cost({"authority": role.process.pid})
        for _ in every_look(_DEADLINE_S, "restoring"):
            role.check()
            spent = cost.cpu_s()["authority"]
            lines = role.lines()
            restored = [line for line in lines if line["event"] == "store_restored"]
            if len(restored) >= settings.partitions:
                break
        role.stop()
    finally:
        role.kill()
    begun = next(line for line in lines if line["event"] == "partitions_assigned" and line["partitions"])
    return _moment(restored[-1]) - _moment(begun), spent, sum(line["records"] for line in restored)


def _moment(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
