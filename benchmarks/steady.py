"""The steady part of a pass, and what one event costs in it: from stamps and looks to figures, nothing measured here.

A pass begins with processes that start and caches that are empty, so its first tenth does not count.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

WARM: Final = 0.1
_LOOKS: Final = 4
"""Fewer tell no cost: what was in the middle of being decided at both ends would be too much of it."""


class TooShort(Exception):
    """There is no steady part: too few events, or processes that did not work at the same time."""


class Rate(NamedTuple):
    """Events a second, and how long they were counted."""

    per_s: float
    seconds: float


class Look(NamedTuple):
    """At one moment: commands decided in this pass, CPU seconds that the authorities and the broker have used so far."""

    decided: int
    authorities_s: float
    broker_s: float


class Cost(NamedTuple):
    """CPU seconds (of one core) a million events, equally µs an event."""

    authorities: float
    broker: float


def rate(workers: Sequence[Sequence[int]]) -> Rate:
    """From `workers`, the stamps (ms, ascending) of the events of each process: while every one of them is past its first
    tenth and none has written its last.

    Events that were stamped in the moment where the time begins came before it: records of one batch share a stamp.
    Raises `TooShort` where there is no such time.
    """
    begin = max(stamps[int(WARM * len(stamps))] for stamps in workers)
    end = min(stamps[-1] for stamps in workers)
    if end <= begin:
        raise TooShort(f"{sum(map(len, workers))} events of {len(workers)} processes have no steady part")
    counted = sum(bisect_right(stamps, end) - bisect_right(stamps, begin) for stamps in workers)
    return Rate(counted * 1000 / (end - begin), (end - begin) / 1000)


def cost(looks: Sequence[Look], commands: int, events_a_command: int) -> Cost | None:
    """Of `looks` while `commands` are decided. None where the pass was too short to tell."""
    steady = [look for look in looks if look.decided >= WARM * commands]
    if len(steady) < _LOOKS or steady[-1].decided == steady[0].decided:
        return None
    first, last = steady[0], steady[-1]
    millions = (last.decided - first.decided) * events_a_command / 1e6
    return Cost((last.authorities_s - first.authorities_s) / millions, (last.broker_s - first.broker_s) / millions)
