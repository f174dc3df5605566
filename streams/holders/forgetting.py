"""What orders take out of a cache of secrets."""

from collections.abc import Sequence
from typing import Final

from streams.custody.keyring import SecretKind, SecretRef
from streams.custody.sealing import Sealer
from streams.log.retention import DAY, DEAD_LETTERS, SESSION, SUBJECT, Order

_KINDS: Final[dict[str, SecretKind]] = {SUBJECT: "subject", SESSION: "session", DAY: "day", DEAD_LETTERS: "dead_letters"}


def secrets_of(orders: Sequence[Order]) -> list[SecretRef]:
    """Those that are destroyed. Secrets of uploads go with their sessions, and no cache has any."""
    return [SecretRef(_KINDS[order.kind], order.workspace_id, order.id) for order in orders if order.kind in _KINDS]


def forget(sealer: Sealer, orders: Sequence[Order]) -> None:
    """For a process that has nothing of what is erased but secrets."""
    sealer.forget(secrets_of(orders))
