"""Ten million events through one authority: does its rate stay, does its memory.

Commands are fed while they are decided, by a process of its own that shares the processors with authority and broker; the
broker drops old segments of commands, events and outcomes meanwhile, so that the disk holds a few gigabytes of them.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import TopicPartition

from benchmarks.bench import MB, Bench, Cost, Progress, Role, configure, environment, every_look, places
from benchmarks.growth import plot, samples
from benchmarks.growth.feeder import Feed
from benchmarks.growth.samples import Sample
from benchmarks.results import Result
from connectors.cli.offspring import start_child
from streams.log import record
from streams.log.client import consumer
from streams.log.reader import log_start_offsets, place_of
from streams.log.topics import Topics
from streams.settings import Settings

BROKER: Final = {
    # Old segments go soon after they are past their topic's bound, and their files soon after that.
    "log.retention.check.interval.ms": "5000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
_KEPT: Final = {"retention.bytes": str(256 * MB), "segment.bytes": str(64 * MB)}
"""Of each partition of commands, events and outcomes: far more than what waits to be decided."""
_DEADLINE_S: Final = 3600.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class LongRun:
    """How long, and how it is fed. `ahead`: commands that may wait."""

    events: int = 10_000_000
    sessions: int = 10_000
    events_a_command: int = 10
    event_bytes: int = 1024
    ahead: int = 30_000
    sample_s: float = 5.0

    def quick(self) -> "LongRun":
        """Whether it works; too short for figures."""
        return replace(self, events=100_000, sessions=200, ahead=2000, sample_s=0.3)

    def feed(self) -> Feed:
        """As many events, creations and closing appends among them, up to a whole command."""
        return Feed(
            sessions=self.sessions,
            appends=(self.events - 2 * self.sessions) // self.events_a_command,
            events_a_command=self.events_a_command,
            event_bytes=self.event_bytes,
            ahead=self.ahead,
        )


def measure(bench: Bench, run: LongRun, results_path: Path) -> Iterator[Result]:
    """long_events_per_s, long_rss_mb; samples and plot are written beside the results.

    Raises AssertionError where the sessions do not hold as many events as were fed.
    """
    settings, feed = bench.settings("long"), run.feed()
    topics = Topics(settings.topic_prefix)
    for topic in (topics.commands, topics.events, topics.outcomes):
        configure(settings, topic, _KEPT)
    seen = _watched(bench, settings, run, feed)
    found = _events_of_all_sessions(settings, feed.sessions)
    if found != feed.events:
        raise AssertionError(f"the sessions hold {found} events, {feed.events} expected")
    bench.forget(settings)
    beside = results_path.with_suffix("")
    beside.with_name(f"{beside.name}-long.json").write_bytes(msgspec.json.format(msgspec.json.encode(seen)) + b"\n")
    picture = beside.with_name(f"{beside.name}-long.svg")
    plot.draw(seen, picture)
    bench.say(f"the long run is drawn in {picture}")
    yield from told(run, seen)


def told(run: LongRun, seen: list[Sample]) -> Iterator[Result]:
    """The figures of a run."""
    steady = samples.steady(seen)
    first, last = steady[0], steady[-1]
    wall, events = last.at_s - first.at_s, last.events - first.events
    rate, rss = samples.rate_stayed(steady), samples.rss_stayed(steady)
    settings = {
        "sessions": run.sessions, "event_bytes": run.event_bytes, "events": seen[-1].events, "events_a_command": run.events_a_command,
        "ahead": run.ahead,
    }  # fmt: skip
    yield Result(
        name="long_events_per_s",
        value=events / wall,
        unit="events/s",
        ratios={"first_quarter": rate.ratio},
        details={
            "cpu_s_per_million": (last.authority_s - first.authority_s) * 1e6 / events,
            "cores": (last.authority_s - first.authority_s) / wall,
            "broker_cores": (last.broker_s - first.broker_s) / wall,
            "feeder_cores": (last.feeder_s - first.feeder_s) / wall,
            "first_quarter": rate.first,
            "last_quarter": rate.last,
        },
        settings=settings,
    )
    yield Result(
        name="long_rss_mb",
        value=max(sample.rss_mb for sample in seen),
        unit="MB",
        ratios={"first_quarter": rss.ratio},
        details={"first_quarter": rss.first, "last_quarter": rss.last},
        settings=settings,
    )


def _watched(bench: Bench, settings: Settings, run: LongRun, feed: Feed) -> list[Sample]:
    """From the start until the feeder has seen everything decided."""
    role = Role(settings, "authority")
    said = settings.data_dir / "feeder.out"
    feeder = start_child(
        [sys.executable, "-m", "benchmarks.growth.feeder", msgspec.json.encode(feed).decode()],
        output=said, environment={**os.environ, **environment(settings)},
    )  # fmt: skip
    progress = Progress(settings, "authority", Topics(settings.topic_prefix).commands)
    try:
        cost = Cost({"authority": role.process.pid, "broker": bench.broker_pid(), "feeder": feeder.pid})
        begun = time.monotonic()
        seen: list[Sample] = []
        next_at = begun
        for _ in every_look(_DEADLINE_S, "the long run", _LOOK_S):
            role.check()
            decided = progress.committed()
            now = time.monotonic()
            ended = decided >= feed.commands
            # The last sample spans what is left, or it would be too short for a rate.
            if now >= next_at and not ended:
                spent = cost.cpu_s()
                seen.append(_sample(now - begun, feed.events_after(decided), spent, cost.rss["authority"]))
                next_at = now + run.sample_s
                if len(seen) % 10 == 1:
                    bench.say(f"{seen[-1].events:,} events after {seen[-1].at_s:.0f} s, {seen[-1].rss_mb:.0f} MB")
            if ended or feeder.poll() is not None:
                break
        if feeder.wait(_DEADLINE_S) != 0:
            raise RuntimeError(f"the feeder ended with status {feeder.returncode}:\n{said.read_text()[-2000:]}")
        role.stop()
    finally:
        progress.close()
        role.kill()
        feeder.kill()
        feeder.wait()
    return seen


def _sample(at_s: float, events: int, spent: dict[str, float], rss: int) -> Sample:
    return Sample(
        at_s=at_s, events=events, authority_s=spent["authority"], broker_s=spent["broker"], feeder_s=spent["feeder"], rss_mb=rss / MB
    )


def _events_of_all_sessions(settings: Settings, sessions: int) -> int:
    """What the last event of each session counts. Raises AssertionError unless all sessions are in what the log still holds."""
    topic = Topics(settings.topic_prefix).events
    starts = log_start_offsets(settings, places(settings, topic))
    receiver = consumer(settings, "bench", {"enable.partition.eof": True})
    receiver.assign([TopicPartition(topic, partition, start) for (_, partition), start in starts.items()])
    last: dict[bytes, bytes] = {}
    left = {partition for _, partition in starts}
    for _ in every_look(_DEADLINE_S, "reading the last events", 0):
        for message in receiver.consume(5000, 0.1):
            key, value = message.key(), message.value()
            if message.error() is not None:
                left.discard(place_of(message)[1])
            elif isinstance(key, bytes) and isinstance(value, bytes):
                last[key] = value
        if not left:
            break
    receiver.close()
    if len(last) != sessions:
        raise AssertionError(f"{len(last)} of {sessions} sessions have events at the end of the log")
    return sum(record.decode_event(value).sequence for value in last.values())
