"""The rows of a partition, as a step has changed them, and how far the indexes of each were stepped over.

RocksDB steps slowly over rows that are gone: whoever looks into an index every tenth of a second begins where it stopped.
"""

from typing import Final

from streams.custodian.rows import EXPIRE, REMOVE, local_rows
from streams.custodian.timers import DUE, Timer, decode_timer, due_before, encode_timer, timer_prefixes
from streams.loop.step import Step

_TIMERS_MAX: Final = 10_000
"""Taken away at once with their session; what is left of more is refused when it is due, and taken away then."""


class Floors:
    """Of all partitions; in memory only."""

    def __init__(self) -> None:
        self.due: dict[int, int] = {}
        """Partition -> no timer is due sooner."""
        self.cursors: dict[tuple[int, bytes], bytes] = {}
        """Partition and index -> every row of the index before this one was handed on."""

    def noted(self, partition: int, local: bytes) -> None:
        """A row was put into an index."""
        if local.startswith(DUE):
            due_at = due_before(local)
            if due_at < self.due.get(partition, 0):
                self.due[partition] = due_at
            return
        for index in (REMOVE, EXPIRE):
            if local.startswith(index) and local < self.cursors.get((partition, index), index):
                self.cursors[partition, index] = local

    def forget(self) -> None:
        self.due.clear()
        self.cursors.clear()


class Rows:
    """One step's."""

    def __init__(self, step: Step, floors: Floors) -> None:
        self.step, self._floors = step, floors
        self._touched: dict[bytes, dict[bytes, None]] = {}
        """Session -> keys of timers that were put in this step: a scan does not see them."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """With what follows from it, where it changes anything."""
        step, before = self.step, self.step.get(key)
        if before == value:
            return
        step.put(key, value)
        for local, held in local_rows(step.get, key, before, value):
            step.put_local(local, held)
            if held is not None:
                self._floors.noted(step.partition, local)

    def put_below(self, prefix: bytes) -> list[bytes]:
        """Keys below a prefix that only the store has and that this step has put."""
        return [key for key, held in self.step.local.items() if held is not None and key.startswith(prefix)]

    def timer(self, key: bytes) -> Timer | None:
        value = self.step.get(key)
        return None if value is None else decode_timer(value)

    def put_timer(self, key: bytes, timer: Timer | None) -> None:
        """Arms, or disarms (None)."""
        self.put(key, None if timer is None else encode_timer(timer))
        self._touched.setdefault(key.partition(b"/")[0], {})[key] = None

    def disarm_all(self, session_id: str) -> None:
        stored = [key for prefix in timer_prefixes(session_id) for key, _ in self.step.first_few(prefix, _TIMERS_MAX)]
        for key in [*stored, *self._touched.get(session_id.encode(), {})]:
            self.put_timer(key, None)
