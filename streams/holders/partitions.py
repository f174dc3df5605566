"""What the stores of partitions say: the store of `<role>/<partition>` has followed every order up to here, whoever has it.

What a store has removed for an order, it keeps as a row of its own, and tells it again when another process takes it over: a
confirmation may be lost, and whoever waits takes the same report twice for one.
"""

import threading
from collections.abc import Sequence
from typing import Final

from streams.clock import boottime_s, now_us
from streams.log.confirmations import ConfirmationLog
from streams.log.requests import new_reply_to
from streams.log.retention import PARTITION, Confirmation, Purged
from streams.settings import Settings

_AGAIN_S: Final = 60.0
"""How often the same is told again: what was told may have been lost, or forgotten with the topic's beginning."""
_REPORTS_MAX: Final = 500
"""In one confirmation."""


def holder_id(role: str, partition: int) -> str:
    return f"{role}/{partition}"


class PartitionHolders:
    """Of one process. Thread-safe. `told` goes with each commit that changes something, and with each takeover; `again` now and then."""

    def __init__(self, settings: Settings, role: str) -> None:
        self._role, self._process = role, new_reply_to(f"{role}.{settings.instance}")
        self.log = ConfirmationLog(settings, f"{role}.partitions")
        self._lock = threading.Lock()
        self._held: dict[int, tuple[int, int]] = {}
        self._told_s = boottime_s()

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged] = ()) -> None:
        """Only what is committed."""
        with self._lock:
            self._held[partition] = (enforced_through, purged_through)
        for start in range(0, max(1, len(purged)), _REPORTS_MAX):
            some, later = purged[start : start + _REPORTS_MAX], purged[start + _REPORTS_MAX :]
            # Nobody takes an order for done whose report comes with a later one of these.
            through = min([purged_through, *(report.order - 1 for report in later)])
            self._tell(partition, enforced_through, through, some)

    def given_up(self, partition: int) -> None:
        """Another process has it now, and speaks for it."""
        with self._lock:
            self._held.pop(partition, None)

    def given_up_all(self) -> None:
        """Those that are still here are told of again."""
        with self._lock:
            self._held.clear()

    def again(self) -> None:
        """Tells what holds, where it was not told for a while."""
        if boottime_s() - self._told_s < _AGAIN_S:
            self.log.serve()
            return
        self._told_s = boottime_s()
        with self._lock:
            held = dict(self._held)
        for partition, (enforced, purged) in held.items():
            self._tell(partition, enforced, purged, ())

    def close(self) -> None:
        self.log.close()

    def _tell(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged]) -> None:
        self.log.tell(
            Confirmation(
                holder_id=holder_id(self._role, partition), kind=PARTITION, process=self._process, enforced_through=enforced_through,
                purged_through=purged_through, purged=tuple(purged), told_at=now_us(),
            )
        )  # fmt: skip
