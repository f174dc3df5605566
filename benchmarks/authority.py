"""Events a second through one authority process, straight through Kafka, exactly-once, with all its duties.

Commands are in Kafka before the authority starts, so that nobody competes with it but the broker. The rate is taken from
the broker's own stamps on `sessions.events`, from the first tenth of the appends to the last event; every event is
counted, so a run that lost or doubled one fails.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicPartition

from benchmarks import traffic
from benchmarks.bench import MB, Bench, Cost, Progress, Role, every_look, places, total
from benchmarks.results import Result, ratios
from streams.log.client import consumer, producer
from streams.log.reader import end_offsets
from streams.log.topics import Topics
from streams.settings import Settings

HEADLINE: Final = "authority_eos_events_per_s"
_NAMES: Final = {1: HEADLINE, 10: "authority_eos_commands_of_10_events_per_s"}
_WARM: Final = 0.1
_DEADLINE_S: Final = 300.0


@dataclass(frozen=True)
class _Look:
    """At one moment: commands decided so far, CPU seconds of authority and broker."""

    at_s: float
    decided: int
    authority_s: float
    broker_s: float


def measure(bench: Bench) -> Iterator[Result]:
    """The headline with one event a command, then with ten."""
    for events_a_command in _NAMES:
        yield _measured(bench, events_a_command)


def prepare(bench: Bench, settings: Settings, events_a_command: int) -> tuple[int, int]:
    """Puts sessions and appends into the log; returns how many commands and how many events they become."""
    options, topic = bench.options, Topics(settings.topic_prefix).commands
    sender = producer(settings, "bench", {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    sessions = traffic.new_sessions(options.sessions)
    appends = options.events // events_a_command
    form = traffic.appending(events_a_command, options.event_bytes)
    traffic.produce(sender, topic, settings.partitions, traffic.sessions_of(sessions, traffic.creating()))
    traffic.produce(sender, topic, settings.partitions, traffic.commands_of(sessions, form, appends))
    return len(sessions) + appends, len(sessions) + appends * events_a_command


def _measured(bench: Bench, events_a_command: int) -> Result:
    name = _NAMES[events_a_command]
    settings = bench.settings("authority")
    commands, events = prepare(bench, settings, events_a_command)
    bench.say(f"{name}: {commands} commands are in the log; starting the authority")
    role = Role(settings, "authority")
    try:
        looks, rss = _watched(bench, settings, role, commands)
        role.stop()
    finally:
        role.kill()
    stamps = _stamps(settings, events)
    first = bench.options.sessions + int(_WARM * (events - bench.options.sessions))
    rate = (events - first) / max(0.001, (stamps[-1] - stamps[first]) / 1000)
    spent = _spent(looks, bench.options.sessions, commands, events_a_command)
    bench.forget(settings)
    return Result(
        name=name,
        value=rate,
        unit="events/s",
        ratios=ratios(rate, raw_consume=bench.known("raw_consume_records_per_s"), raw_produce=bench.known("raw_produce_records_per_s")),
        details={**spent, "rss_max_mb": rss / MB},
    )


def _watched(bench: Bench, settings: Settings, role: Role, commands: int) -> tuple[list[_Look], int]:
    """Until the group has committed all commands."""
    progress = Progress(settings, "authority", Topics(settings.topic_prefix).commands)
    cost = Cost({"authority": role.process.pid, "broker": bench.broker_pid()})
    looks = []
    for now in every_look(_DEADLINE_S, "deciding the commands"):
        role.check()
        spent = cost.cpu_s()
        looks.append(_Look(now, progress.committed(), spent["authority"], spent["broker"]))
        if looks[-1].decided >= commands:
            break
    progress.close()
    return looks, cost.rss_max["authority"]


def _stamps(settings: Settings, events: int) -> list[int]:
    """The broker's stamps (ms) of all committed events, in order of time. Raises AssertionError unless they are `events`."""
    topic = Topics(settings.topic_prefix).events
    ends = end_offsets(settings, places(settings, topic), committed=False)
    receiver = consumer(settings, "bench", {"enable.partition.eof": True})
    receiver.assign([TopicPartition(topic, partition, 0) for _, partition in ends])
    stamps: list[int] = []
    left = {partition for (_, partition), end in ends.items() if end > 0}
    deadline = time.monotonic() + _DEADLINE_S
    while left and time.monotonic() < deadline:
        for message in receiver.consume(5000, 0.1):
            if message.error() is not None:
                left.discard(message.partition())
            else:
                stamps.append(message.timestamp()[1])
    receiver.close()
    if len(stamps) != events:
        raise AssertionError(f"{len(stamps)} events are in the log, {events} expected, {total(ends)} records with markers")
    return sorted(stamps)


def _spent(looks: list[_Look], sessions: int, commands: int, events_a_command: int) -> dict[str, float]:
    """CPU seconds a million events, in the steady part."""
    warm = sessions + _WARM * (commands - sessions)
    steady = [look for look in looks if look.decided >= warm] or looks
    first, last = (steady[0], steady[-1]) if len(steady) > 1 else (looks[0], looks[-1])
    millions = max(1, last.decided - first.decided) * events_a_command / 1e6
    wall = max(0.001, last.at_s - first.at_s)
    return {
        "cpu_s_per_million": (last.authority_s - first.authority_s) / millions,
        "cores": (last.authority_s - first.authority_s) / wall,
        "broker_cores": (last.broker_s - first.broker_s) / wall,
    }
