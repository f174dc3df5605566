"""What a long run looked like, and whether it stayed so: first against last quarter of what follows the warm-up."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from benchmarks.steady import WARM


class Sample(Struct, frozen=True, kw_only=True):
    """One moment: seconds since the start, events decided so far, CPU seconds of each process so far, memory of the authority."""

    at_s: float
    events: int
    authority_s: float
    broker_s: float
    feeder_s: float
    rss_mb: float


class Stretch(NamedTuple):
    """Between two samples."""

    events: int
    """At its end."""
    per_s: float
    rss_mb: float
    """At its end."""


class Stayed(NamedTuple):
    """Figures of the first and of the last quarter."""

    first: float
    last: float

    @property
    def ratio(self) -> float:
        return self.last / self.first


def stretches(samples: Sequence[Sample]) -> list[Stretch]:
    """One fewer than samples."""
    return [
        Stretch(after.events, (after.events - before.events) / (after.at_s - before.at_s), after.rss_mb)
        for before, after in pairwise(samples)
    ]


def steady(samples: Sequence[Sample]) -> list[Sample]:
    """Those behind the warm-up. Raises `ValueError` where fewer than eight are left: two a quarter."""
    left = [sample for sample in samples if sample.events >= WARM * samples[-1].events] if samples else []
    if len(left) < 8:
        raise ValueError(f"{len(left)} samples behind the warm-up: too short a run to tell")
    return left


def rate_stayed(samples: Sequence[Sample]) -> Stayed:
    """Events a second, of `steady` samples."""
    first, last = _quarters(samples)
    return Stayed(*(_rate(quarter) for quarter in (first, last)))


def rss_stayed(samples: Sequence[Sample]) -> Stayed:
    """MB, the mean of each quarter of `steady` samples."""
    first, last = _quarters(samples)
    return Stayed(*(sum(sample.rss_mb for sample in quarter) / len(quarter) for quarter in (first, last)))


def _quarters(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """By events; each with the sample that it begins at."""
    begin, end = samples[0].events, samples[-1].events
    quarter = (end - begin) / 4
    first = [sample for sample in samples if sample.events <= begin + quarter]
    last = [sample for sample in samples if sample.events >= end - quarter]
    # A quarter in which nobody looked twice reaches as far as the next look.
    return (first if len(first) > 1 else samples[:2]), (last if len(last) > 1 else samples[-2:])


def _rate(samples: Sequence[Sample]) -> float:
    return (samples[-1].events - samples[0].events) / (samples[-1].at_s - samples[0].at_s)
