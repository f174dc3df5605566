"""The plain fold in our loop, as a process: `streams.loop.Loop` with a handler that does this and nothing else."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.peers.fold import advance, task
from connectors.cli import logs
from connectors.cli.interrupts import stop_event
from streams.log.log import KafkaLog
from streams.log.reader import Row
from streams.loop.handler import Get
from streams.loop.loop import Loop
from streams.loop.step import Step
from streams.settings import Settings
from streams.store.table import Put

ROLE: Final = "fold"


class Fold:
    """The `Handler`. Every record has a key and a value: the bench's own topic."""

    role = ROLE
    version = 1

    def __init__(self, source: str, changelog: str, output: str) -> None:
        self.input, self.changelog, self._output = source, changelog, output

    def handle(self, step: Step) -> None:
        keys = [key for key in {record.key for record in step.records} if key is not None]
        states = dict(zip(keys, step.get_many(keys), strict=True))
        produce, partition, output = step.produce, step.partition, self._output
        for _, _, _, key, value, _ in step.records:
            assert key is not None
            assert value is not None
            states[key] = after = advance(states[key], value)
            produce(output, partition, key, after + value)
        for key, state in states.items():
            step.put(key, state)

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            yield key, value

    def discard(self) -> None:
        """Nothing is cached."""


def main() -> None:
    """Until the process is told to end."""
    given = task()
    logs.configure(Path(given["log"]))
    settings = Settings(
        bootstrap=given["bootstrap"], topic_prefix=given["prefix"], partitions=given["partitions"], data_dir=Path(given["state_dir"]),
        instance=str(given["process"]),
    )  # fmt: skip
    with stop_event() as stop:
        Loop(settings, KafkaLog(settings), Fold(given["input"], given["changelog"], given["output"]), stop).run()


if __name__ == "__main__":
    main()
