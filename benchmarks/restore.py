"""An empty store until its authority decides again: the changelog of so many sessions, read and written to RocksDB.

The sessions are made by an authority first. Its store is then taken away; the seconds are those between being given
the partitions and the last of them restored, by the process's own log.
"""

import json
import shutil
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from benchmarks import traffic
from benchmarks.bench import Bench, Progress, Role, every_look
from benchmarks.results import Result
from streams.log.client import producer
from streams.log.topics import Topics
from streams.settings import Settings

_DEADLINE_S: Final = 600.0


def measure(bench: Bench) -> Iterator[Result]:
    """restore_s, restore_sessions_per_s."""
    settings, count = bench.settings("restore"), bench.options.restored_sessions
    topic = Topics(settings.topic_prefix).commands
    sessions = traffic.new_sessions(count)
    sender = producer(settings, "bench", {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    traffic.produce(sender, topic, settings.partitions, traffic.sessions_of(sessions, traffic.creating()))
    bench.say(f"restore: {count} sessions are being created")
    first = Role(settings, "authority")
    try:
        progress = Progress(settings, "authority", topic)
        for _ in every_look(_DEADLINE_S, "creating the sessions"):
            first.check()
            if progress.committed() >= count:
                break
        progress.close()
        first.stop()
    finally:
        first.kill()
    shutil.rmtree(settings.data_dir / "stores")
    seconds, records = _restored(settings)
    bench.forget(settings)
    yield Result(name="restore_s", value=seconds, unit="s", details={"sessions": count, "changelog_records": records})
    yield Result(name="restore_sessions_per_s", value=count / seconds, unit="sessions/s")


def _restored(settings: Settings) -> tuple[float, int]:
    """Seconds, and records of the changelog that were read."""
    role = Role(settings, "authority")
    try:
        for _ in every_look(_DEADLINE_S, "restoring"):
            role.check()
            lines = _lines(role)
            restored = [line for line in lines if line["event"] == "store_restored"]
            if len(restored) >= settings.partitions:
                break
        role.stop()
    finally:
        role.kill()
    begun = next(line for line in lines if line["event"] == "partitions_assigned" and line["partitions"])
    return _moment(restored[-1]) - _moment(begun), sum(line["records"] for line in restored)


def _lines(role: Role) -> list[dict[str, Any]]:
    """What it has logged so far; a line that is being written is not one yet."""
    text = role.log.read_text() if role.log.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _moment(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
