"""What a writer supplies to the loop."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from streams.log.reader import Row
from streams.loop.step import Step
from streams.store.table import Put, Reads

Get = Callable[[bytes], bytes | None]


class Handler(Protocol):
    """Called from the loop's thread only. `role` names the group, the transactional id and the stores."""

    role: str
    version: int
    """Of what it keeps in its store: another one, and the store is rebuilt from the changelog."""
    input: str
    """The topic consumed, partition by partition."""
    changelog: str
    """The compacted topic that carries what `Step.put` puts, with equally many partitions."""

    def handle(self, step: Step) -> None:
        """Decides every record of the step, in order. What cannot be decoded goes to the dead letters, never up."""

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        """The store's puts that records of the changelog stand for, in their order.

        `get` reads what the puts before have put, those of these rows included, as far as they were taken.
        """

    def discard(self) -> None:
        """The transaction was aborted: forget what was cached from it."""


class Timekeeper(Protocol):
    """What a handler is besides, that has work without records: when something is due. Called from the loop's thread only, for
    partitions that are restored."""

    tick_s: float
    """How often it is asked."""

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        """Whether `tick` has something to do at `now` (microseconds since the epoch). Cheap."""

    def tick(self, step: Step) -> None:
        """Does what is due at `step.now`. Where the step has records, `handle` has seen them; else it has none."""
