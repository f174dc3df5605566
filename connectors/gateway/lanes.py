"""Which Runs the claims by lane of this gateway are after, or have got: nobody else here needs to ask for one of them.

- The authority alone decides who gets a Run. This spares it those claims that it would refuse, since tables tell a little later.
- A Run is remembered at its generation, with the claim that is after it. A repeat of that claim is let through to the same Run, before
  any other: it sends the same command, and is told the same grant.
- A claim and its repeats try Runs by turns (`Turns`), and look for what was granted where another had its turn meanwhile.
- A Run whose history cannot be read whole is not asked for again by a worker with the same wishes for a minute: it does not become
  readable, but a checkpoint of its session may come.
- What is remembered of a claim that is over is forgotten after a few seconds, by when the tables tell it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from streams.projections.runs import RunRow
from streams.session.outcomes import Outcome

REMEMBERED_S: Final = 5.0
REMEMBERED_MAX: Final = 20_000
UNREADABLE_S: Final = 60.0
UNREADABLE_MAX: Final = 5_000

Wishes = tuple[bool, str | None, str | None]
"""Of a worker: whether it copes with gaps, its revisions of harness and environment."""

_At = tuple[str, int]
"""A Run, at the generation before the one that is claimed."""


class Turns:
    """Of one claim and its repeats that are under way. `had` counts the turns that are over; `lock` is held for one."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.had = 0
        self.sharing = 0


class LaneClaims:
    """Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way: dict[_At, dict[str, int]] = {}
        """By claim, how often it is under way."""
        self._over: OrderedDict[_At, tuple[float, str]] = OrderedDict()
        """Until when it is remembered, and the claim."""
        self._turns: dict[str, Turns] = {}
        self._unreadable: OrderedDict[tuple[_At, Wishes], tuple[float, Outcome]] = OrderedDict()

    @contextmanager
    def turns(self, digest: str) -> Iterator[Turns]:
        """Those of this claim, for as long as it looks for a Run."""
        turns = self._turns.setdefault(digest, Turns())
        turns.sharing += 1
        try:
            yield turns
        finally:
            turns.sharing -= 1
            if not turns.sharing:
                del self._turns[digest]

    def is_mine(self, digest: str, row: RunRow) -> bool:
        """Whether this claim was after the Run before, or is under way to it."""
        return digest in self._after(_at(row))

    def is_left_for(self, digest: str, row: RunRow) -> bool:
        """Whether no other claim than this one is after the Run."""
        claims = self._after(_at(row))
        return not claims or digest in claims

    @contextmanager
    def after(self, digest: str, row: RunRow) -> Iterator[None]:
        """While the claim of this Run is under way. It is remembered also where nobody knows what became of it."""
        at = _at(row)
        claims = self._under_way.setdefault(at, {})
        claims[digest] = claims.get(digest, 0) + 1
        try:
            yield
        finally:
            claims[digest] -= 1
            if not claims[digest]:
                del claims[digest]
            if not claims:
                del self._under_way[at]
            self._over[at] = (self._clock() + REMEMBERED_S, digest)
            self._over.move_to_end(at)
            self._forget()

    def is_unreadable(self, row: RunRow, wishes: Wishes, refused: Outcome) -> None:
        """The authority refused the Run to a worker with these wishes since its history cannot be read whole."""
        self._unreadable[_at(row), wishes] = (self._clock() + UNREADABLE_S, refused)
        while len(self._unreadable) > UNREADABLE_MAX:
            self._unreadable.popitem(last=False)

    def unreadable(self, row: RunRow, wishes: Wishes) -> Outcome | None:
        """That refusal, while it is remembered."""
        until_s, refused = self._unreadable.get((_at(row), wishes), (0.0, None))
        return refused if until_s > self._clock() else None

    def free(self, row: RunRow) -> None:
        """Another claim may be granted the Run."""
        self._over.pop(_at(row), None)

    def _after(self, at: _At) -> Collection[str]:
        under_way = self._under_way.get(at)
        if under_way:
            return under_way
        until_s, digest = self._over.get(at, (0.0, ""))
        return (digest,) if until_s > self._clock() else ()

    def _forget(self) -> None:
        now = self._clock()
        while self._over:
            at, (until_s, _) = next(iter(self._over.items()))
            if until_s > now and len(self._over) <= REMEMBERED_MAX:
                return
            del self._over[at]


def _at(row: RunRow) -> _At:
    return row.run_id, row.generation
