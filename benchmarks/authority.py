"""Events a second through one authority process, straight through Kafka, exactly-once, with all its duties.

`deciding` says how a pass goes.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks.bench import Bench
from benchmarks.deciding import Shape, prepared
from benchmarks.results import Result, ratios

HEADLINE: Final = "authority_eos_events_per_s"
_NAMES: Final = {1: HEADLINE, 10: "authority_eos_commands_of_10_events_per_s"}


def measure(bench: Bench) -> Iterator[Result]:
    """The headline with one event a command, then with ten."""
    options = bench.options
    with prepared(bench, Shape(sessions=options.sessions, event_bytes=options.event_bytes)) as ground:
        for events_a_command, name in _NAMES.items():
            taken = ground.measured(events_a_command, options.events)
            raw_consume, raw_produce = bench.known("raw_consume_records_per_s"), bench.known("raw_produce_records_per_s")
            yield Result(
                name=name,
                value=taken.events_per_s,
                unit="events/s",
                ratios=ratios(taken.events_per_s, raw_consume=raw_consume, raw_produce=raw_produce),
                details=taken.details(),
                settings={
                    "sessions": options.sessions,
                    "event_bytes": options.event_bytes,
                    "events": options.events,
                    "events_a_command": events_a_command,
                    "partitions": ground.settings.partitions,
                },
            )
