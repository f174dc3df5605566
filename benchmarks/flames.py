"""Reads a flame graph back: which functions take the time, alone and with what they call.

In py-spy's SVG every frame is a rectangle with the samples that it spans (`fg:x`, `fg:w`) on the row of its depth (`y`).
"""

import html
import re
from collections import Counter, defaultdict
from typing import Final, NamedTuple

_FRAME: Final = re.compile(r'<title>(.*?) \([\d,]+ samples, [\d.]+%\)</title><rect [^>]*?\by="(\d+)"[^>]*?fg:x="(\d+)" fg:w="(\d+)"')


class Frame(NamedTuple):
    """A function in its place in the stacks: `start` and `width` in samples."""

    name: str
    row: int
    start: int
    width: int


class Cost(NamedTuple):
    """Of one function, in parts of all samples."""

    name: str
    own: float
    whole: float


def frames(svg: str) -> list[Frame]:
    """All of a picture, in no order."""
    return [Frame(html.unescape(name), int(row), int(start), int(width)) for name, row, start, width in _FRAME.findall(svg)]


def costs(found: list[Frame], within: str | None = None) -> list[Cost]:
    """Each function once, the most of its own first.

    With `within`, only what runs in functions whose name begins so, in parts of their samples: one thread of many.
    Raises `ValueError` where there are no frames.
    """
    rows: dict[int, list[Frame]] = defaultdict(list)
    for frame in found:
        rows[frame.row].append(frame)
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    total = 0
    below: list[tuple[Frame, frozenset[str], bool]] = []
    for row in _from_the_root(rows):
        here = []
        for frame in rows[row]:
            parent, callers, inside = _under(frame, below)
            entered = not inside and (within is None or frame.name.startswith(within))
            inside = inside or entered
            here.append((frame, callers, inside))
            if entered:
                total += frame.width
            if inside:
                own[frame.name] += frame.width
                if frame.name not in callers:
                    whole[frame.name] += frame.width
                if parent is not None and not entered:
                    own[parent.name] -= frame.width
        below = here
    if total == 0:
        raise ValueError("no frames" if within is None else f"no frames within {within}")
    return [Cost(name, own[name] / total, whole[name] / total) for name, _ in sorted(own.items(), key=lambda item: -item[1])]


def _from_the_root(rows: dict[int, list[Frame]]) -> list[int]:
    """The rows in the order of calls: stacks grow up or down from the one frame that spans everything."""
    ends = sorted(rows)
    downwards = bool(ends) and len(rows[ends[0]]) > 1
    return ends[::-1] if downwards else ends


def _under(frame: Frame, below: list[tuple[Frame, frozenset[str], bool]]) -> tuple[Frame | None, frozenset[str], bool]:
    """The frame's caller, the names of all its callers, and whether they are counted."""
    for caller, callers, inside in below:
        if caller.start <= frame.start < caller.start + caller.width:
            return caller, callers | {caller.name}, inside
    return None, frozenset(), False


def told(svg: str, count: int, within: str | None = None) -> str:
    """A table of the `count` functions with the most of their own, and of those with the most in all."""
    found = [cost for cost in costs(frames(svg), within) if cost.name != "all"]
    lines = ["  own   whole  function"]
    lines += [f"{cost.own:6.1%} {cost.whole:6.1%}  {cost.name}" for cost in found[:count]]
    lines += ["", " whole    own  function"]
    lines += [f"{cost.whole:6.1%} {cost.own:6.1%}  {cost.name}" for cost in sorted(found, key=lambda cost: -cost.whole)[:count]]
    return "\n".join(lines)
