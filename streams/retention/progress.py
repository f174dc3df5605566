"""Which erasures are under way and which can go a step further: in memory, by state, so that a look costs little however many wait."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from streams.clock import boottime_s
from streams.errors import StreamsError
from streams.holders.compaction import compaction_bound_s
from streams.holders.partitions import holders_expected
from streams.log.retention import ACCEPTED, DESTROYED, ENFORCED, Purged, RetentionRow
from streams.retention import core
from streams.retention.believed import BelievedClock
from streams.retention.entries import UnderWay
from streams.settings import Settings

_COMPLETION_EVERY_S: Final = 0.25
_AGAIN_US: Final = 1_000_000


class Said(Protocol):
    """What holders have said (`streams.holders.confirmed`)."""

    hurried: bool
    known_as_of_s: float
    failed: StreamsError | None

    def caches(self) -> dict[str, int]: ...
    def partitions(self) -> dict[str, int]: ...
    def sinks(self) -> dict[str, int]: ...
    def sinks_left(self) -> set[str]: ...
    def reports(self, order: int) -> dict[str, Purged]: ...


class Progress:
    """`elapsed` is the clock of leases, in seconds. `due` belongs to one thread; what is awaited, any may ask."""

    def __init__(self, settings: Settings, said: Said, clock: BelievedClock, elapsed: Callable[[], float] = boottime_s) -> None:
        self._said, self._clock, self._elapsed = said, clock, elapsed
        self._lease_s, self._bound_us = settings.lease_s, int(compaction_bound_s(settings) * 1_000_000)
        self.expected = holders_expected(settings.partitions)
        self._stored_sinks: set[str] = set()
        self._by_state: dict[str, dict[str, UnderWay]] = {ACCEPTED: {}, DESTROYED: {}, ENFORCED: {}}
        self._since_s: dict[str, float] = {}
        """Erasure -> since when its order is known to be committed."""
        self._ripe_us: dict[str, int] = {}
        """Erasure -> before when compaction of what it left is not over."""
        self._next_completion_s = 0.0

    def load(self, under_way: Iterable[UnderWay], sinks: Iterable[str]) -> None:
        """What stands in the log; whatever was put and did not get there is forgotten."""
        for of_state in self._by_state.values():
            of_state.clear()
        for each in under_way:
            self._by_state[each.state][each.id] = each
        self._since_s = {erasure_id: since for erasure_id, since in self._since_s.items() if erasure_id in self._by_state[DESTROYED]}
        self._ripe_us.clear()
        self._stored_sinks = set(sinks)

    def put(self, each: UnderWay) -> None:
        for state, of_state in self._by_state.items():
            if state == each.state:
                of_state[each.id] = each
            else:
                of_state.pop(each.id, None)
        if each.state != DESTROYED:
            self._since_s.pop(each.id, None)
        self._ripe_us.pop(each.id, None)

    def of_state(self, state: str) -> list[UnderWay]:
        return list(self._by_state[state].values())

    def due(self, now: int, limit: int, *, destroys: bool) -> list[UnderWay]:
        """Those that can go a step further, `limit` at most. `now` in microseconds since the epoch. Raises what ended the following of
        what holders say: nothing is concluded without it."""
        if self._said.failed is not None:
            raise self._said.failed
        found = list(islice(self._by_state[ACCEPTED].values(), limit)) if destroys else []
        found += islice(self._enforced(), limit - len(found))
        found += islice(self._complete(now), limit - len(found))
        return found

    def awaited(self, row: RetentionRow, now: int) -> tuple[str, ...]:
        """Who is waited for until the erasure's next state."""
        order = core.number_of(row)
        if row.state == DESTROYED:
            return self.to_enforce(row).holders or (core.LEASE,)
        if row.state == ENFORCED:
            believed = now if self._clock.agrees(now) else None
            return core.awaited_to_complete(order, self.confirmed(order), self.expected, believed, self._bound_us).holders
        return ()

    def to_enforce(self, row: RetentionRow) -> core.Awaiting:
        since_s = self._since_s.get(row.id)
        is_over = since_s is not None and self._elapsed() - since_s >= self._lease_s
        return core.awaited_to_enforce(core.number_of(row), self._said.caches(), a_lease_is_over=is_over)

    def confirmed(self, order: int) -> core.Confirmed:
        return core.Confirmed(partitions=self._said.partitions(), sinks=self._sinks(), reports={order: self._said.reports(order)})

    def purgers(self) -> list[str]:
        """Whose word completes an erasure."""
        return [*self.expected, *self._sinks()]

    def new_sinks(self) -> set[str]:
        return set(self._said.sinks()) - self._stored_sinks

    def sinks_left(self) -> set[str]:
        return self._said.sinks_left() & self._stored_sinks

    def stored(self, *, sinks: set[str], left: set[str]) -> None:
        self._stored_sinks = (self._stored_sinks | sinks) - left

    def _sinks(self) -> dict[str, int]:
        return {**dict.fromkeys(self._stored_sinks, 0), **self._said.sinks()}

    def _enforced(self) -> Iterator[UnderWay]:
        destroyed = self._by_state[DESTROYED]
        self._said.hurried = bool(destroyed)
        if not destroyed:
            return
        now_s, known_s = self._elapsed(), self._said.known_as_of_s
        for erasure_id in destroyed:
            self._since_s.setdefault(erasure_id, now_s)
        caches = self._said.caches()
        for each in destroyed.values():
            since_s = self._since_s[each.id]
            a_lease_is_over = now_s - since_s >= self._lease_s
            # Whoever registered before the order was committed has to be known.
            known = a_lease_is_over or known_s >= since_s
            if known and not core.awaited_to_enforce(each.order, caches, a_lease_is_over=a_lease_is_over).holders:
                yield each

    def _complete(self, now: int) -> Iterator[UnderWay]:
        enforced, now_s = self._by_state[ENFORCED], self._elapsed()
        if not enforced or now_s < self._next_completion_s:
            return
        self._next_completion_s = now_s + _COMPLETION_EVERY_S
        partitions, sinks = self._said.partitions(), self._sinks()
        # One that is behind holds up everything after it; nobody else is asked about then.
        through = min([partitions.get(holder, 0) for holder in self.expected] + list(sinks.values()))
        believed = now if self._clock.agrees(now) else None
        for each in enforced.values():
            if each.order > through or now < self._ripe_us.get(each.id, 0):
                continue
            confirmed = core.Confirmed(partitions=partitions, sinks=sinks, reports={each.order: self._said.reports(each.order)})
            if not core.awaited_to_complete(each.order, confirmed, self.expected, believed, self._bound_us).holders:
                yield each
            else:
                tombstones_at = core.tombstones_at(each.order, confirmed) or 0
                ripe_us = tombstones_at + self._bound_us
                self._ripe_us[each.id] = ripe_us if now < ripe_us else now + _AGAIN_US
