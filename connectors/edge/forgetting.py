"""What a process that seals and opens forgets when it hears of an order, before it confirms it."""

from collections.abc import Callable, Sequence

from connectors.edge.erased import Erased
from streams.custody.sealing import Sealer
from streams.holders.forgetting import secrets_of
from streams.log.retention import SUBJECT, Order


class Forgetting:
    """Called by a `CacheHolder`, from its thread. `names` drop cached pseudonyms: who returns has another."""

    def __init__(self, erased: Erased, sealer: Sealer, *names: Callable[[], None]) -> None:
        self._erased, self._sealer, self._names = erased, sealer, list(names)

    def also(self, forget_names: Callable[[], None]) -> None:
        """For who comes later, before anything is served."""
        self._names.append(forget_names)

    def __call__(self, orders: Sequence[Order]) -> None:
        # First what refuses, so that nothing is taken up again that is dropped here.
        self._erased.told(orders)
        self._sealer.forget(secrets_of(orders))
        if any(order.kind == SUBJECT for order in orders):
            for forget_names in self._names:
                forget_names()
