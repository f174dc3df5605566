"""Waiting until a table is far enough: for a command, for the log's end of this moment, for a session's next event or a lane's
next Run.

- Every wait ends: with what it waited for, at its deadline (`ProjectionBehind`), or when the table goes (`NotOwner`).
- Waiters are bounded, for a partition and altogether, so that one partition that stands still cannot use up the server.
- The projector's thread calls `advanced` and `gone` after it has changed a table; everything else happens in the event
  loop. A waiter registers first and looks at the table then, so it cannot miss the change.
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from streams.errors import Invalid, NotOwner, Overloaded, ProjectionBehind
from streams.log.position import Position
from streams.log.reader import Place
from streams.log.topics import Topics
from streams.projections.keeper import Ends
from streams.projections.tables import OwnedTable, Tables
from streams.settings import Settings

WAITERS_PER_PARTITION: Final = 2000
WAITERS: Final = 8000
_WATCH_S: Final = 0.01
_ASK_AGAIN_S: Final = (0.005, 0.01, 0.02, 0.04)
"""When a table is not at the end, the ends are asked for again after these; by then its client has passed a marker by itself."""

_Future = asyncio.Future[bool]
"""Result: True for "look again", False for "the table is gone"."""


class _Waiters:
    """Of one partition: by the offset they wait for, or by the name under which they wait (`BatchFold.awaited`)."""

    def __init__(self) -> None:
        self.count = 0
        self.commands: dict[_Future, int] = {}
        self.positions: dict[_Future, int] = {}
        self.names: dict[str, set[_Future]] = {}
        self.leases: set[_Future] = set()


class Freshness:
    """One a process. `bind` it to the loop that serves before the first wait."""

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        ends: Ends,
        *,
        waiters_per_partition: int = WAITERS_PER_PARTITION,
        waiters: int = WAITERS,
    ) -> None:
        topics = Topics(settings.topic_prefix)
        self._commands, self._events = topics.commands, topics.events
        self._tables = tables
        self._ends = ends
        self._bounds = (waiters_per_partition, waiters)
        self._waiting = [_Waiters() for _ in range(settings.partitions)]
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._known_ends: dict[int, int] = {}
        self._next: dict[tuple[Place, ...], asyncio.Task[Mapping[Place, int]]] = {}
        self._turns: dict[tuple[Place, ...], asyncio.Lock] = {}
        self._watching: dict[int, asyncio.Task[None]] = {}

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    # -- called by the projector's thread -------------------------------------------------------------------------------

    def advanced(self, table: OwnedTable, awaited: Collection[str]) -> None:
        if self._waiting[table.partition].count and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, table, awaited)

    def gone(self, partitions: Collection[int]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._dismiss, partitions)

    # -- called in the loop ---------------------------------------------------------------------------------------------

    async def ready(self, partition: int, position: Position | None, deadline_s: float) -> None:
        """Waits until the table may be read, and has everything up to `position` where there is one. Raises as `applied`."""
        await self.caught_up(partition, deadline_s)
        if position is not None:
            await self.applied(position, deadline_s)

    async def applied(self, position: Position, deadline_s: float) -> None:
        """Waits until every event of the command at `position`, and of those before it, is in the table.

        Raises:
            Invalid: (request.malformed) of another topic or partition, or beyond the end of its topic: never given out.
            ProjectionBehind: not by `deadline_s` (time.monotonic).
            NotOwner, Overloaded, BrokerUnavailable
        """
        if position.topic != self._commands or position.partition >= len(self._waiting):
            raise Invalid(f"position {position}: not of {self._commands}", code="request.malformed")
        table = self._tables.serving(position.partition)
        if table.commands > position.offset:
            return
        if self._known_ends.get(position.partition, 0) <= position.offset:
            end = self._known_ends[position.partition] = await self._end_now((self._commands, position.partition))
            if end <= position.offset:
                raise Invalid(f"position {position}: beyond the end, {end}", code="request.malformed")
        with self._registered(position.partition) as ([waiters], future):
            waiters.commands[future] = position.offset
            if table.commands > position.offset:
                return
            await self._until(future, deadline_s, f"position {position} is not applied yet")

    async def at_end(self, partition: int, deadline_s: float) -> None:
        """Waits until the table has everything that was in the log when this was called, open transactions included.

        An acknowledged command may lie behind the last stable offset still: its transaction's marker reaches each
        partition in its own time. Raises as `applied`.
        """
        await self.all_at_end((partition,), deadline_s)

    async def all_at_end(self, partitions: Collection[int], deadline_s: float) -> None:
        """`at_end` of several, asked at once."""
        places = tuple([(self._events, partition) for partition in sorted(partitions)])
        ends = await self._ends_now(places)
        for pause_s in _ASK_AGAIN_S:
            try:
                await self._all_reached(ends, min(deadline_s, time.monotonic() + pause_s))
            except ProjectionBehind:
                if time.monotonic() >= deadline_s:
                    raise
            else:
                return
            # What was undecided may be known for a marker by now: a later end is one that has all of the earlier.
            now = await self._ends_now(places)
            ends = {place: min(end, now[place]) for place, end in ends.items()}
        await self._all_reached(ends, deadline_s)

    async def _all_reached(self, ends: Mapping[Place, int], deadline_s: float) -> None:
        for (_, partition), end in ends.items():
            await self.reached(partition, end, deadline_s)

    async def reached(self, partition: int, end: int, deadline_s: float) -> None:
        """Waits until every record of the table's input below offset `end` is in the table. Raises as `applied`."""
        table = self._tables.serving(partition)
        if table.position >= end:
            return
        with self._registered(partition) as ([waiters], future):
            waiters.positions[future] = end
            if table.position >= end:
                return
            await self._until(future, deadline_s, f"partition {partition} is not at its end, {end}, yet")

    async def caught_up(self, partition: int, deadline_s: float) -> None:
        """Waits for the first lease of a table that has just come: usually milliseconds, after a rebuild longer.

        A table that had a lease and lost it is not waited for: its process may have been stopped. Raises as `applied`.
        """
        table = self._tables.owned.get(partition)
        if table is None or table.lease.ever_held:
            return
        with self._registered(partition) as ([waiters], future):
            waiters.leases.add(future)
            task = self._watching.get(partition)
            if task is None:
                task = self._watching[partition] = asyncio.create_task(self._watch(partition))
            await self._until(future, deadline_s, f"partition {partition} is catching up")

    async def _watch(self, partition: int) -> None:
        """Looks again and again for all who wait: a lease begins in a thread that knows of no waiters."""
        waiters = self._waiting[partition]
        while waiters.leases:
            table = self._tables.owned.get(partition)
            if table is None or table.lease.ever_held:
                _answer(list(waiters.leases), table is not None)
                break
            await asyncio.sleep(_WATCH_S)
        del self._watching[partition]

    def next_event(self, partition: int, session_id: str) -> AbstractContextManager[_Future]:
        """A future that is done once the session has new events after this call, or the table is gone."""
        return self.next_of((partition,), (session_id,))

    @contextmanager
    def next_of(self, partitions: Collection[int], names: Collection[str]) -> Iterator[_Future]:
        """A future that is done once one of the tables has got something under one of the names, or is gone."""
        with self._registered(*partitions) as (waiting, future):
            for waiters in waiting:
                for name in names:
                    waiters.names.setdefault(name, set()).add(future)
            try:
                yield future
            finally:
                for waiters in waiting:
                    for name in names:
                        futures = waiters.names[name]
                        futures.discard(future)
                        if not futures:
                            del waiters.names[name]

    async def _end_now(self, place: Place) -> int:
        return (await self._ends_now((place,)))[place]

    async def _ends_now(self, places: tuple[Place, ...]) -> Mapping[Place, int]:
        """Where a table has to be, to have all that lies below the high watermarks (`_ends_of`), by a question sent after this call;
        those who ask for the same meanwhile share the next one."""
        task = self._next.get(places)
        if task is None:
            task = self._next[places] = asyncio.create_task(self._ask(places))
        return await asyncio.shield(task)

    async def _ask(self, places: tuple[Place, ...]) -> Mapping[Place, int]:
        async with self._turns.setdefault(places, asyncio.Lock()):
            del self._next[places]
            return await asyncio.to_thread(self._ends_of, places)

    def _ends_of(self, places: Collection[Place]) -> Mapping[Place, int]:
        """The high watermarks; of events, one less where the last record is known for a marker, which no table ever sees.

        A client tells that it is past a marker only with an answer that is empty, for which the broker takes its time. Events are
        written in transactions alone, and one is undecided until its marker stands behind its last event. So where the last stable
        offset, asked for first, is the high watermark still, nothing stood behind it and nothing was undecided: what
        stands in front of it is a marker.
        """
        stable = self._ends.query([place for place in places if place[0] == self._events], committed=True)
        ends = self._ends.query(places, committed=False)
        return {place: end - 1 if 0 < end == stable.get(place) else end for place, end in ends.items()}

    @contextmanager
    def _registered(self, *partitions: int) -> Iterator[tuple[list[_Waiters], _Future]]:
        """Counts as a waiter of each of the partitions, and as one altogether."""
        waiting = [self._waiting[partition] for partition in partitions]
        per_partition, altogether = self._bounds
        if self._count >= altogether or any(waiters.count >= per_partition for waiters in waiting):
            raise Overloaded(f"partition {partitions[0]}: too many readers wait", retry_after_s=1)
        future: _Future = asyncio.get_running_loop().create_future()
        self._count += 1
        for waiters in waiting:
            waiters.count += 1
        try:
            yield waiting, future
        finally:
            self._count -= 1
            for waiters in waiting:
                waiters.count -= 1
                waiters.commands.pop(future, None)
                waiters.positions.pop(future, None)
                waiters.leases.discard(future)

    async def _until(self, future: _Future, deadline_s: float, otherwise: str) -> None:
        try:
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                here = await future
        except TimeoutError:
            raise ProjectionBehind(otherwise, retry_after_s=1) from None
        if not here:
            raise NotOwner("the partition went to another owner")

    def _wake(self, table: OwnedTable, awaited: Collection[str]) -> None:
        waiters = self._waiting[table.partition]
        done = [future for future, offset in waiters.commands.items() if table.commands > offset]
        done += [future for future, end in waiters.positions.items() if table.position >= end]
        if waiters.names:
            for name in awaited:
                done += waiters.names.get(name, ())
        _answer(done, True)

    def _dismiss(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            waiters = self._waiting[partition]
            futures = [*waiters.commands, *waiters.positions, *waiters.leases]
            futures += [future for followers in waiters.names.values() for future in followers]
            _answer(futures, False)


def _answer(futures: list[_Future], here: bool) -> None:
    for future in futures:
        if not future.done():
            future.set_result(here)
