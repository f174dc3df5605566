"""What the stores of partitions say: the store of `<role>/<partition>` has followed every order up to here, whoever has it.

What a store has removed for an order, it keeps as a row of its own, and tells it again when another process takes it over: a
confirmation may be lost, and whoever waits takes the same report twice for one.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from streams.clock import boottime_s, now_us
from streams.log.confirmations import ConfirmationLog
from streams.log.requests import new_reply_to
from streams.log.retention import PARTITION, Confirmation, Purged
from streams.settings import Settings

_ROLES: Final = ("custodian", "agents")
"""Whose partitions every installation has."""
_AGAIN_S: Final = 60.0
"""How often the same is told again: what was told may have been lost, or forgotten with the topic's beginning."""
_REPORTS_MAX: Final = 500
"""In one confirmation."""


def holder_id(role: str, partition: int) -> str:
    return f"{role}/{partition}"


def holders_expected(partitions: int) -> list[str]:
    """Those that every installation has, of as many partitions."""
    return [holder_id(role, partition) for role in _ROLES for partition in range(partitions)]


def in_parts(purged_through: int, purged: Sequence[Purged], most: int = _REPORTS_MAX) -> Iterator[tuple[int, Sequence[Purged]]]:
    """Reports by `most` at a time, one part at least. Nobody takes an order for done whose report comes with a later part."""
    for start in range(0, max(1, len(purged)), most):
        later = purged[start + most :]
        yield min([purged_through, *(report.order - 1 for report in later)]), purged[start : start + most]


class PartitionHolders:
    """Of one process. Thread-safe. `told` goes with each commit that changes something, and with each takeover; `again` now and then."""

    def __init__(self, settings: Settings, role: str) -> None:
        self._role, self._process = role, new_reply_to(f"{role}.{settings.instance}")
        self.log = ConfirmationLog(settings, f"{role}.partitions")
        self._lock = threading.Lock()
        self._held: dict[int, tuple[int, int]] = {}
        self._unstored: dict[int, dict[int, Purged]] = {}
        """Partition -> order -> what was told and is not known to be stored. It goes with each confirmation until it is: an order that is
        taken for done without its report would be told of as if nothing had been removed."""
        self._told_s = boottime_s()

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged] = ()) -> None:
        """Only what is committed."""
        with self._lock:
            self._held[partition] = (enforced_through, purged_through)
            self._unstored.setdefault(partition, {}).update({report.order: report for report in purged})
        self._tell(partition, enforced_through, purged_through)

    def given_up(self, partition: int) -> None:
        """Another process has it now, and speaks for it."""
        with self._lock:
            self._held.pop(partition, None)
            self._unstored.pop(partition, None)

    def given_up_all(self) -> None:
        """Those that are still here are told of again."""
        with self._lock:
            self._held.clear()
            self._unstored.clear()

    def again(self) -> None:
        """Tells what holds, where it was not told for a while."""
        if boottime_s() - self._told_s < _AGAIN_S:
            self.log.serve()
            return
        self._told_s = boottime_s()
        with self._lock:
            held = dict(self._held)
        for partition, (enforced, purged) in held.items():
            self._tell(partition, enforced, purged)

    def close(self) -> None:
        self.log.close()

    def _tell(self, partition: int, enforced_through: int, purged_through: int) -> None:
        with self._lock:
            unstored = sorted(self._unstored.get(partition, {}).values(), key=lambda report: report.order)
        for through, reports in in_parts(purged_through, unstored):
            self.log.tell(
                Confirmation(
                    holder_id=holder_id(self._role, partition), kind=PARTITION, process=self._process, enforced_through=enforced_through,
                    purged_through=through, purged=tuple(reports), told_at=now_us(),
                ),
                partial(self._stored, partition, reports),
            )  # fmt: skip

    def _stored(self, partition: int, reports: Sequence[Purged]) -> None:
        with self._lock:
            of_partition = self._unstored.get(partition, {})
            for report in reports:
                # One that has grown since is still to be told.
                if of_partition.get(report.order) == report:
                    del of_partition[report.order]
