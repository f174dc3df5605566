"""Follows orders to erase: each becomes a row for every session that it concerns, and is told of once all of them are done.

Design 04: what a subject or a session has is erased in every session and fork; content that was under way and is accepted later is
erased content. An order for a subject erases all its sessions; one for a session erases that one, and takes from every fork what it has
of it (`Kind.DISINHERIT`).
"""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from msgspec import structs

from streams.custodian import asking
from streams.custodian.armed import Rows
from streams.custodian.backlog import Backlog
from streams.custodian.rows import (
    FOLLOWED,
    OPEN,
    PURGED,
    Begun,
    Erasing,
    Followed,
    begun_key,
    decode_counts,
    decode_through,
    encode,
    encode_counts,
    encode_through,
    erase_key,
    erased_key,
    fork_prefix,
    found,
    order_of_open,
    order_of_purged,
    purged_key,
    subject_prefix,
)
from streams.errors import BrokerUnavailable
from streams.holders.orders import Orders
from streams.log.retention import SESSION, SUBJECT, Order, Purged
from streams.loop.restore import INPUT
from streams.session.commands import Kind
from streams.session.events import SEALED, Event, SessionAttributes
from streams.session.outcomes import Outcome
from streams.store.table import Reads

_ROWS_AT_ONCE: Final = 500
"""Sessions that an order is applied to in one transaction."""
_LASTING: Final = frozenset({"checkpoint.created", "capsule.created"})
"""They have something of their own besides the event: uploads, or a secret."""
_TOLD_AGAIN: Final = 1_000
"""Reports that are told once more when a partition is taken over, those of the latest orders."""


class Tells(Protocol):
    """As `streams.holders.partitions.PartitionHolders`."""

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged] = ()) -> None: ...

    def again(self) -> None: ...


class Following:
    """Of all partitions. What it keeps in memory is made of the rows again."""

    def __init__(self, orders: Orders, backlog: Backlog, holders: Tells | None) -> None:
        self._orders, self._backlog, self._holders = orders, backlog, holders
        self._covers: dict[int, int] = {}
        """Partition -> up to which order everything is read that had come before."""
        self._told: set[int] = set()
        """Partitions that have told how they stand."""
        self._changed: dict[int, set[int]] = {}
        """Partition -> orders that something was removed for since."""

    def require_orders(self, rows: Rows) -> None:
        """Raises `BrokerUnavailable` where the partition has followed orders that this process has not read yet: what they concern could
        be taken for something else."""
        followed = found(rows.step.get, FOLLOWED, Followed)
        if followed is not None and followed.applied > self._orders.reached:
            raise BrokerUnavailable(f"orders up to {followed.applied} are not read yet")

    # -- events -----------------------------------------------------------------------------------------------------------

    def begun(self, rows: Rows, event: Event, attributes: SessionAttributes) -> None:
        """A session begins: it is found from now on, and where it comes too late it is erased."""
        session_id, subject_id = event.session_id, event.subject_id
        begun = Begun(workspace_id=event.workspace_id, subject_id=subject_id, ancestors=ancestors_of(attributes))
        rows.put(begun_key(session_id), encode(begun))
        places = [(session_id, fork_prefix(session_id), Kind.ERASE)]
        if subject_id is not None:
            places.append((subject_id, subject_prefix(subject_id) + session_id.encode(), Kind.ERASE))
        places += [(each, fork_prefix(each) + session_id.encode(), Kind.DISINHERIT) for each in begun.ancestors]
        for erased, place, kind in places:
            number = self._orders.number_of(erased)
            if number is not None and self._has_passed(rows, number, place):
                self._arm(rows, session_id, begun, number, kind, event=event)

    def accepted(self, rows: Rows, event: Event) -> None:
        """Another event: where content, a checkpoint or a capsule comes to what is erased already, it is erased too."""
        lasts = event.type in _LASTING and event.attributes is not None
        if not lasts and event.content.state != SEALED:
            return
        reference = event.content.key_reference
        subject_id = event.subject_id if reference is None else reference.subject_id
        if not lasts and not self._numbers(event.session_id, subject_id):
            return
        begun = found(rows.step.get, begun_key(event.session_id), Begun)
        if begun is None:
            begun = Begun(workspace_id=event.workspace_id, subject_id=subject_id)
        self._came(rows, event, begun, self._numbers(event.session_id, begun.subject_id), Kind.ERASE, lasts)
        if lasts:
            self._came(rows, event, begun, self._numbers(*begun.ancestors), Kind.DISINHERIT, lasts)

    def _came(self, rows: Rows, event: Event, begun: Begun, numbers: Collection[int], kind: Kind, lasts: bool) -> None:
        get, session_id, sequence = rows.step.get, event.session_id, event.sequence
        if not numbers:
            return
        for number in numbers:
            key = erase_key(session_id, number)
            erasing = found(get, key, Erasing)
            if erasing is not None:
                if kind == Kind.ERASE and sequence > max(erasing.needed, erasing.through or 0):
                    # What was answered does not cover it, so the same is asked once more.
                    due_at = erasing.due_at if erasing.through is None else 0
                    rows.put(key, encode(structs.replace(erasing, needed=sequence, through=None, due_at=due_at)))
                return
        value = get(erased_key(session_id, kind))
        if value is None:
            # The order comes to it: it is applied to everything that was begun before.
            return
        through = decode_through(value)
        if sequence > through and kind == Kind.ERASE:
            self._arm(rows, session_id, begun, max(numbers), kind, event=event, late=True)
        elif sequence <= through and lasts:
            self._arm(rows, session_id, begun, max(numbers), kind, event=event, late=True, through=through)

    # -- answers ----------------------------------------------------------------------------------------------------------

    def heard(self, rows: Rows, key: bytes, outcome: Outcome) -> None:
        """What the authority answered for a session."""
        erasing = found(rows.step.get, key, Erasing)
        # What answers an earlier question says nothing of this one.
        if erasing is not None and erasing.through is None and asking.asked_by(erasing, erasing.asked - 1) == outcome.command_id:
            rows.put(key, encode(asking.having_erased(erasing, outcome)))

    def counted(self, rows: Rows, key: bytes, counts: dict[str, int]) -> None:
        """Something was removed for an order."""
        order = int(key.rpartition(b"/")[2])
        before = rows.step.get(purged_key(order))
        total = {} if before is None else decode_counts(before)
        for name, count in counts.items():
            if count:
                total[name] = total.get(name, 0) + count
        if total:
            rows.put(purged_key(order), encode_counts(total))
        self._changed.setdefault(rows.step.partition, set()).add(order)

    def finished(self, rows: Rows, key: bytes, erasing: Erasing) -> None:
        """Nothing is left of what an order meant for a session."""
        session_id, kind = key.partition(b"/")[0].decode(), Kind(erasing.kind)
        before = rows.step.get(erased_key(session_id, kind))
        through = max(erasing.through or 0, 0 if before is None else decode_through(before))
        rows.put(erased_key(session_id, kind), encode_through(through))
        rows.put(key, None)
        self.counted(rows, key, {} if erasing.late else {"sessions" if kind == Kind.ERASE else "forks": 1})

    # -- orders -----------------------------------------------------------------------------------------------------------

    def is_due(self, partition: int, store: Reads) -> bool:
        """Whether there is something to follow. Tells what holds, of what is committed."""
        followed = found(store.get, FOLLOWED, Followed) or Followed()
        if followed.applied > self._orders.reached:
            return False
        self._tell(partition, store, followed)
        if followed.applied < self._orders.reached:
            return True
        if followed.covered >= self._backlog.known:
            return False
        # Where nothing comes, a transaction of this kind alone moves the position.
        self._covers[partition] = self._backlog.covered(partition, store.offsets().get(INPUT, 0))
        return True

    def tick(self, rows: Rows) -> None:
        step = rows.step
        before = found(step.get, FOLLOWED, Followed) or Followed()
        followed, left = before, _ROWS_AT_ONCE
        for order in self._orders.after(before.applied, _ROWS_AT_ONCE):
            within, left = self._apply(rows, order, followed.within, left)
            if within:
                followed = structs.replace(followed, within=within)
                break
            followed = structs.replace(followed, applied=order.order, within="")
            if left <= 0:
                break
        followed = structs.replace(followed, covered=max(followed.covered, self._covers.pop(step.partition, 0)))
        if followed != before:
            rows.put(FOLLOWED, encode(followed))
            self._changed.setdefault(step.partition, set())

    def _apply(self, rows: Rows, order: Order, within: str, left: int) -> tuple[str, int]:
        """The last key that the order was applied to, where more may follow, and how many rows may still be made."""
        if order.kind == SUBJECT:
            prefix, kind = subject_prefix(order.id), Kind.ERASE
        elif order.kind == SESSION:
            prefix, kind = fork_prefix(order.id), Kind.DISINHERIT
            if not within:
                self._arm_known(rows, order.id, order, Kind.ERASE)
        else:
            return "", left
        start = within.encode() + b"\0" if within else None
        stored = [key for key, _ in rows.step.first_few(prefix, left, start)]
        for key in [*stored, *rows.put_below(prefix)]:
            self._arm_known(rows, key[len(prefix) :].decode(), order, kind)
        return (stored[-1].decode() if len(stored) == left else ""), left - len(stored)

    def _arm_known(self, rows: Rows, session_id: str, order: Order, kind: Kind) -> None:
        begun = found(rows.step.get, begun_key(session_id), Begun)
        if begun is not None and begun.workspace_id == order.workspace_id:
            self._arm(rows, session_id, begun, order.order, kind)

    def _arm(
        self, rows: Rows, session_id: str, begun: Begun, number: int, kind: Kind, *, event: Event | None = None, late: bool = False,
        through: int | None = None,
    ) -> None:  # fmt: skip
        key = erase_key(session_id, number)
        if rows.step.get(key) is not None:
            return
        armed_by = f"{session_id if event is None else event.event_id}/{number}"
        needed = 0 if event is None else event.sequence
        erasing = Erasing(
            workspace_id=begun.workspace_id, kind=kind.value, armed_at=rows.step.now, event_id=armed_by, needed=needed, through=through,
            late=late,
        )  # fmt: skip
        rows.put(key, encode(erasing))
        self._changed.setdefault(rows.step.partition, set())

    def _has_passed(self, rows: Rows, number: int, place: bytes) -> bool:
        """Whether an order was applied to this place of its index already, and does not come to it any more."""
        followed = found(rows.step.get, FOLLOWED, Followed) or Followed()
        if number <= followed.applied:
            return True
        within = followed.within.encode()
        return within[: within.rfind(b"/") + 1] == place[: place.rfind(b"/") + 1] and place <= within

    def _numbers(self, *identifiers: str | None) -> list[int]:
        numbers = [self._orders.number_of(each) for each in identifiers if each is not None]
        return [number for number in numbers if number is not None]

    # -- what is told -----------------------------------------------------------------------------------------------------

    def _tell(self, partition: int, store: Reads, followed: Followed) -> None:
        if self._holders is None:
            return
        self._holders.again()
        if partition in self._told and partition not in self._changed:
            return
        if partition in self._told:
            orders = sorted(self._changed.pop(partition))
            reports = [(order, store.get(purged_key(order))) for order in orders]
        else:
            self._changed.pop(partition, None)
            with store.scan(PURGED, reverse=True) as latest:
                reports = [(order_of_purged(key), value) for _, (key, value) in zip(range(_TOLD_AGAIN), latest, strict=False)]
        purged = [Purged(order=order, counts=decode_counts(value)) for order, value in sorted(reports) if value is not None]
        self._holders.told(partition, followed.applied, purged_through(store, followed), purged)
        self._told.add(partition)

    def discard(self) -> None:
        self._covers.clear()
        self._told.clear()
        self._changed.clear()


def purged_through(store: Reads, followed: Followed) -> int:
    """Up to which order a partition holds nothing of what was erased, as far as it has read."""
    with store.scan(OPEN) as rows:
        first = next(rows, None)
    through = min(followed.applied, followed.covered)
    return through if first is None else min(through, order_of_open(first[0]) - 1)


def ancestors_of(attributes: SessionAttributes) -> tuple[str, ...]:
    """The sessions that a fork has something of: its source, and what that one had of others."""
    inherited = [part.partition("=")[0] for part in (attributes.inherited or "").split(";") if part]
    source = attributes.source_session_id
    return tuple(dict.fromkeys([*inherited, *([] if source is None else [source])]))
