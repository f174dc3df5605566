"""Removes the rows of erased subjects, order by order, and says so (design 06: "an erasure removes rows").

A partition follows the orders of `sessions.retention` on its own. How far it is stands in its store only: one that is made anew begins
with the first order, and finds nothing left to remove. Which rows were removed stays on the changelog for a while, as keys: a broker
that was away longer than tombstones are kept brings old values back, and each is deleted once more (design 09, "Erasure on disk").
"""

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from schemas import codec
from streams.agents import rows
from streams.errors import StoreUnusable
from streams.holders.compaction import NUDGE_S, compaction_bound_s
from streams.holders.orders import Orders
from streams.log.retention import REISSUE, SUBJECT, Order, Purged
from streams.loop.step import Step
from streams.settings import Settings
from streams.store.table import Reads

WHAT: Final = "agent_checkpoints"
"""What is counted: rows and versions."""
_ORDERS_AT_ONCE: Final = 200
_ROWS_AT_ONCE: Final = 500
_PAGE: Final = 1_000
_NUDGE_US: Final = int(NUDGE_S * 1_000_000)
_KEPT_HORIZONS: Final = 13
"""For how many horizons of tombstones it is kept which rows were removed: about a quarter of a year."""
_NUMBER_BYTES: Final = 8
_ENTRY: Final = "agents/purged"


class Report(Struct, frozen=True):
    count: int
    at: int


class Telling(Protocol):
    """Says what is committed (`streams.holders.partitions`)."""

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: list[Purged]) -> None: ...
    def again(self) -> None: ...
    def given_up_all(self) -> None: ...


class Purging:
    """Of the partitions of one process. Called from the loop's thread only."""

    def __init__(self, settings: Settings, orders: Orders, telling: Telling) -> None:
        self.orders, self._telling = orders, telling
        # As long as its tombstones may take to be followed.
        self._nudged_for_us = int(compaction_bound_s(settings) * 1_000_000)
        self._kept_us = int(settings.tombstone_horizon_s * 1_000_000) * _KEPT_HORIZONS
        self._told: dict[int, int] = {}
        """Partition -> the order up to which it was told what is removed."""
        self._known: dict[int, int] = {}
        """Partition -> the last order that was known before the records of this step were decided: what they may have put under a later
        one is not in the store yet."""
        self._reissued: dict[int, tuple[int, bytes]] = {}
        """Partition -> the order whose tombstones are being written again, and from which row on."""
        self._nudge: dict[int, tuple[int, int]] = {}
        """Partition -> when it is to be nudged next, and until when."""

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        """Whether `tick` has something to do; tells what was committed."""
        followed = _number(store.get(rows.FOLLOWED))
        self._known[partition] = self.orders.reached
        if self._told.get(partition) != followed:
            self._tell(partition, store, followed, now)
        self._telling.again()
        nudge_at, until = self._nudge.get(partition, (0, 0))
        return followed < self._known[partition] or nudge_at <= now < until

    def tick(self, step: Step) -> None:
        followed = _number(step.get(rows.FOLLOWED))
        left, known = _ROWS_AT_ONCE, self._known.get(step.partition, 0)
        for order in self.orders.after(followed, _ORDERS_AT_ONCE):
            if order.order > known:
                break
            removed, whole = self._follow(step, order, left)
            left -= removed
            if not whole:
                break
            step.put_local(rows.FOLLOWED, _bytes(order.order))
        nudge_at, until = self._nudge.get(step.partition, (0, 0))
        if nudge_at <= step.now < until:
            step.put(rows.NUDGE, None)
            self._nudge[step.partition] = (step.now + _NUDGE_US, until)

    def discard(self) -> None:
        self._told.clear()
        self._nudge.clear()
        self._reissued.clear()
        self._telling.given_up_all()

    def _follow(self, step: Step, order: Order, limit: int) -> tuple[int, bool]:
        """How many rows went, and whether all did."""
        if order.kind == SUBJECT:
            return self._remove(step, order, limit)
        if order.kind == REISSUE:
            return self._remove_again(step, order, limit)
        return 0, True

    def _remove(self, step: Step, order: Order, limit: int) -> tuple[int, bool]:
        if limit <= 0:
            return 0, False
        prefix = f"{order.workspace_id}/{order.id}/".encode()
        found = step.first_few(prefix, limit)
        gone = [(key, value) for key, value in found if step.get(key) is not None]
        count, at = 0, 0
        for key, value in gone:
            step.put(key, None)
            for row, held in rows.local_rows(key, rows.stored(value), None):
                step.put_local(row, held)
            count, at = count + (step.get(rows.PURGED + key) is None), step.now
            step.put(rows.PURGED + key, codec.encode(_ENTRY, {"order": order.order, "purged_at": step.now}))
        if len(found) == limit:
            return len(gone), False
        # A report is in a store only. That of one which died is told from what it left on the changelog.
        for purged in _purged_before(step, prefix):
            count, at = count + 1, max(at, purged["purged_at"])
        if count:
            self._report(step, order, count, at)
        return len(gone), True

    def _remove_again(self, step: Step, order: Order, limit: int) -> tuple[int, bool]:
        """Each tombstone once more; what is kept of them too long is forgotten. A page at a time: a process that begins again passes
        over those that are written for this order."""
        number, start = self._reissued.get(step.partition, (0, b""))
        page = step.first_few(rows.PURGED, _PAGE, start if number == order.order else None)
        written = 0
        for row, value in page:
            purged = _purged(value)
            key = row[len(rows.PURGED) :]
            if step.now - purged["purged_at"] > self._kept_us:
                step.put(row, None)
            elif purged["order"] < order.order and step.get(key) is None:
                if written == limit:
                    break
                step.put(key, None)
                step.put(row, codec.encode(_ENTRY, {"order": order.order, "purged_at": purged["purged_at"]}))
                written += 1
            self._reissued[step.partition] = (order.order, row + b"\0")
        else:
            if len(page) < _PAGE:
                self._reissued.pop(step.partition, None)
                if written:
                    self._report_more(step, order, written)
                return written, True
        if written:
            self._report_more(step, order, written)
        return written, False

    def _report_more(self, step: Step, order: Order, count: int) -> None:
        before = step.get(rows.REPORTS + _bytes(order.order))
        known = 0 if before is None else msgspec.msgpack.decode(before, type=Report).count
        self._report(step, order, known + count, step.now)

    def _report(self, step: Step, order: Order, count: int, at: int) -> None:
        step.put_local(rows.REPORTS + _bytes(order.order), msgspec.msgpack.encode(Report(count, at)))
        self._nudge_from(step.partition, at, step.now + _NUDGE_US)

    def _nudge_from(self, partition: int, at: int, first: int) -> None:
        """Tombstones were written at `at`."""
        until = max(at + self._nudged_for_us, self._nudge.get(partition, (0, 0))[1])
        self._nudge[partition] = (first, until)

    def _tell(self, partition: int, store: Reads, followed: int, now: int) -> None:
        before = self._told.get(partition)
        purged = []
        with store.scan(rows.REPORTS, start=rows.REPORTS + _bytes(0 if before is None else before + 1)) as found:
            for key, value in found:
                order = _number(key[len(rows.REPORTS) :])
                report = msgspec.msgpack.decode(value, type=Report)
                if before is None:  # what wrote them may be gone, and have nudged it no more
                    self._nudge_from(partition, report.at, now)
                if order <= followed:
                    purged.append(Purged(order=order, counts={WHAT: report.count}, tombstones_at=report.at))
        self._told[partition] = followed
        self._telling.told(partition, followed, followed, purged)


class NoOrders:
    """Where nothing is followed."""

    orders = Orders()

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        return False

    def tick(self, step: Step) -> None:
        """Goes on."""

    def discard(self) -> None:
        """Goes on."""


def _bytes(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")


def _purged_before(step: Step, prefix: bytes) -> Iterator[dict[str, int]]:
    """What is stored of rows that were removed below `prefix`, a page at a time."""
    prefix, start = rows.PURGED + prefix, None
    while page := step.first_few(prefix, _PAGE, start):
        yield from (_purged(value) for _, value in page)
        start = page[-1][0] + b"\0"


def _number(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value, "big")


def _purged(value: bytes) -> dict[str, int]:
    """Raises `StoreUnusable`."""
    try:
        return codec.decode_as(_ENTRY, value)
    except codec.Undecodable as error:
        raise StoreUnusable(f"{_ENTRY}: {error}") from error
