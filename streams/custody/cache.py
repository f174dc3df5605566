"""A cache bounded by entries and by time, whose clock counts suspension: a process that was stopped wakes with it empty."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

from streams.clock import boottime_s

ElapsedClock = Callable[[], float]
"""Seconds from any start, never backward."""

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """The least recently used goes first; nothing is returned `seconds` after the load that fetched it began. Thread-safe."""

    def __init__(self, *, seconds: float, max_entries: int, clock: ElapsedClock = boottime_s) -> None:
        self._seconds = seconds
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._forgotten = 0
        self._lock = threading.Lock()

    def get_many(self, keys: Iterable[K], load: Callable[[list[K]], dict[K, V]]) -> dict[K, V]:
        """Those in the cache, and of the others those that one call of `load` finds. What it does not find is not remembered."""
        found: dict[K, V] = {}
        absent: list[K] = []
        with self._lock:
            now = self._clock()
            forgotten = self._forgotten
            for key in dict.fromkeys(keys):
                entry = self._entries.get(key)
                if entry is None or now - entry[0] >= self._seconds:
                    self._entries.pop(key, None)
                    absent.append(key)
                else:
                    self._entries.move_to_end(key)
                    found[key] = entry[1]
        if absent:
            loaded = load(absent)
            self._remember(loaded, now, forgotten)
            found |= loaded
        return found

    def forget(self, keys: Collection[K]) -> None:
        """Drop them, and whatever is being loaded at this moment: it may have been read before the cause of this call."""
        with self._lock:
            self._forgotten += 1
            for key in keys:
                self._entries.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._forgotten += 1
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _remember(self, loaded: dict[K, V], asked_at: float, forgotten: int) -> None:
        with self._lock:
            if forgotten != self._forgotten:
                return
            for key, value in loaded.items():
                self._entries[key] = (asked_at, value)
                self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
