"""Who is told how far a loop's stores are: for reads that are answered from them."""

from collections.abc import Collection
from typing import Protocol

from streams.loop.step import Step
from streams.store.store import Store


class Observer(Protocol):
    """Called from the loop's thread; must not block."""

    def assigned(self, partitions: Collection[int]) -> None:
        """They are this member's, none included; each is restored before it is read."""

    def restored(self, partition: int, store: Store) -> None:
        """The store has everything that its changelog had; reading of the input begins."""

    def committing(self, steps: Collection[Step]) -> None:
        """What they change is about to be committed, and comes into the stores after that: `written`, or not at all."""

    def written(self, step: Step) -> None:
        """The step is in the store. It has no records where only time has passed."""

    def reached(self, partition: int, position: int) -> None:
        """Every record of the input below `position` is in the store, or will never be handed out."""

    def given_up(self, partitions: Collection[int]) -> None:
        """Their stores are closed at once after this."""


class NoObserver:
    """Nobody reads."""

    def assigned(self, partitions: Collection[int]) -> None:
        """Goes on."""

    def restored(self, partition: int, store: Store) -> None:
        """Goes on."""

    def committing(self, steps: Collection[Step]) -> None:
        """Goes on."""

    def written(self, step: Step) -> None:
        """Goes on."""

    def reached(self, partition: int, position: int) -> None:
        """Goes on."""

    def given_up(self, partitions: Collection[int]) -> None:
        """Goes on."""
