"""Sessions in a log, then commands to them in passes: what authorities take to decide each pass.

All commands of a pass are in Kafka before the authorities start, so that nobody competes with them but the broker. They
start anew for each: their stores are on their disks, their caches empty. Rates are taken from the broker's own stamps on
`sessions.events`. Every event is read back and counted, so a pass that lost or doubled one fails.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import TopicPartition

from benchmarks import steady, traffic
from benchmarks.bench import MB, PARTITIONS, Bench, Cost, Progress, Role, every_look, places
from benchmarks.steady import Look
from benchmarks.traffic import Keyed
from streams.log.client import consumer
from streams.log.reader import Place, end_offsets, place_of
from streams.log.topics import Topics

_DEADLINE_S: Final = 600.0
_LOOK_S: Final = 0.05
_AWAY_S: Final = 30.0
"""How long one of several authorities may be away between two passes and still get its own partitions back."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a log and its authorities are like. `event_bytes`: of an event as it stands in `sessions.events`."""

    sessions: int
    event_bytes: int
    partitions: int = PARTITIONS
    authorities: int = 1


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What deciding took. CPU in seconds of one core a million events; None where the pass was too short to tell."""

    events_per_s: float
    steady_s: float
    cpu_s_per_million: float | None
    broker_cpu_s_per_million: float | None
    rss_max_mb: float
    """Of the largest authority."""

    def details(self) -> dict[str, float]:
        """What stands beside the rate."""
        told = {"steady_s": self.steady_s, "rss_max_mb": self.rss_max_mb}
        if self.cpu_s_per_million is None or self.broker_cpu_s_per_million is None:
            return told
        cores = self.events_per_s / 1e6
        return {
            "cpu_s_per_million": self.cpu_s_per_million,
            "cores": self.cpu_s_per_million * cores,
            "broker_cores": self.broker_cpu_s_per_million * cores,
            **told,
        }


class Ground:
    """A log with sessions in it, and the authorities of its partitions."""

    def __init__(self, bench: Bench, shape: Shape) -> None:
        away = {"member_session_timeout_s": _AWAY_S} if shape.authorities > 1 else {}
        self.settings = bench.settings("authority", partitions=shape.partitions, **away)
        self.shape, self._bench = shape, bench
        self._topics = Topics(self.settings.topic_prefix)
        self._members = [
            replace(self.settings, instance=str(number), data_dir=self.settings.data_dir / str(number))
            for number in range(shape.authorities)
        ]
        self._sender = traffic.sender(self.settings)
        self._progress = Progress(self.settings, "authority", self._topics.commands)
        self._sessions = traffic.new_sessions(shape.sessions)
        self._put = 0

    def create(self) -> None:
        """Has all sessions created."""
        starts = self._ends()
        with self.authorities() as roles:
            for _ in every_look(_DEADLINE_S, "sharing the partitions"):
                _check(roles)
                shares = self._shares(roles)
                if all(shares) and sum(map(len, shares)) == self.shape.partitions:
                    break
            self._fill(traffic.sessions_of(self._sessions, traffic.creating()))
            for _ in self.until(self._put, roles):
                pass
        self._stamps(starts, len(self._sessions))

    def fill(self, events_a_command: int, events: int) -> int:
        """Puts appends into the log, to sessions drawn at random; returns how many commands were there before."""
        before = self._put
        form = traffic.appending(events_a_command, self.shape.event_bytes)
        self._fill(traffic.commands_of(self._sessions, form, events // events_a_command, seed=before + 1))
        return before

    @contextmanager
    def authorities(self) -> Iterator[list[Role]]:
        """Running, and stopped in order once the block ends without an error."""
        roles: list[Role] = []
        try:
            roles += (Role(member, "authority") for member in self._members)
            yield roles
            for role in roles:
                role.stop()
        finally:
            for role in roles:
                role.kill()

    def until(self, decided: int, roles: list[Role]) -> Iterator[int]:
        """How many commands are decided, looked at again and again, the last time when there are `decided` of them."""
        for _ in every_look(_DEADLINE_S, "deciding the commands", _LOOK_S):
            _check(roles)
            committed = self._progress.committed()
            yield committed
            if committed >= decided:
                return

    def measured(self, events_a_command: int, events: int) -> Pass:
        """One pass. Raises AssertionError where events are missing or too many, or an authority had nothing to do."""
        starts = self._ends()
        before = self.fill(events_a_command, events)
        commands = self._put - before
        with self.authorities() as roles:
            cost = Cost({"broker": self._bench.broker_pid(), **{str(number): role.process.pid for number, role in enumerate(roles)}})
            looks = []
            seen = -1
            for decided in self.until(self._put, roles):
                # Just behind a commit: what is in the middle of being decided is little then.
                if decided != seen:
                    seen, spent = decided, cost.cpu_s()
                    broker = spent.pop("broker")
                    looks.append(Look(decided - before, sum(spent.values()), broker))
            shares = self._shares(roles)
        stamps = self._stamps(starts, commands * events_a_command)
        if not all(shares):
            raise AssertionError(f"the authorities had the partitions {shares}: one had none")
        rate = steady.rate([sorted(stamp for partition in share for stamp in stamps[partition]) for share in shares])
        spent_each = steady.cost(looks, commands, events_a_command)
        return Pass(
            events_per_s=rate.per_s,
            steady_s=rate.seconds,
            cpu_s_per_million=spent_each and spent_each.authorities,
            broker_cpu_s_per_million=spent_each and spent_each.broker,
            rss_max_mb=max(cost.rss_max[str(number)] for number in range(len(roles))) / MB,
        )

    def forget(self) -> None:
        """Frees its disk."""
        self._progress.close()
        self._bench.forget(self.settings)

    def _fill(self, commands: Iterable[Keyed]) -> None:
        self._put += traffic.produce(self._sender, self._topics.commands, self.settings.partitions, commands)

    def _ends(self) -> dict[Place, int]:
        return end_offsets(self.settings, places(self.settings, self._topics.events), committed=False)

    def _shares(self, roles: list[Role]) -> list[list[int]]:
        """The partitions that each authority was given last."""
        given = [[line["partitions"] for line in role.lines() if line["event"] == "partitions_assigned"] for role in roles]
        return [each[-1] if each else [] for each in given]

    def _stamps(self, starts: dict[Place, int], events: int) -> dict[int, list[int]]:
        """The broker's stamps (ms) of what was committed behind `starts`, by partition. Raises AssertionError unless they are `events`."""
        ends = self._ends()
        receiver = consumer(self.settings, "bench", {"enable.partition.eof": True})
        receiver.assign([TopicPartition(topic, partition, start) for (topic, partition), start in starts.items()])
        stamps: dict[int, list[int]] = defaultdict(list)
        left = {partition for (topic, partition), end in ends.items() if end > starts[(topic, partition)]}
        deadline = time.monotonic() + _DEADLINE_S
        while left and time.monotonic() < deadline:
            for message in receiver.consume(5000, 0.1):
                _, partition, _ = place_of(message)
                if message.error() is not None:
                    left.discard(partition)
                else:
                    stamps[partition].append(message.timestamp()[1])
        receiver.close()
        found = sum(map(len, stamps.values()))
        if found != events:
            raise AssertionError(f"{found} events are in the log, {events} expected; ends {ends}, starts {starts}")
        return stamps


def _check(roles: list[Role]) -> None:
    for role in roles:
        role.check()


@contextmanager
def prepared(bench: Bench, shape: Shape) -> Iterator[Ground]:
    """Sessions created; everything is removed in the end."""
    ground = Ground(bench, shape)
    bench.say(f"{shape.sessions} sessions are being created")
    ground.create()
    yield ground
    ground.forget()
