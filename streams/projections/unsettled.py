"""What of a session is not settled: each Turn, Run, wait, child work and effect that nothing has ended yet, and each approval that may
authorise one more effect.

    o/<session id>/<place of its kind><its id>      the row; gone once the thing is settled

- A thing is one row, made by the event that begins it and taken out by the one that ends it, so endings of others hide nothing, and
  whoever asks what is open reads that and no more.
- Of approvals, those that name a Run have no row: while it goes on its own row tells, and after it is settled nobody decides on them and
  nothing is dispatched under them (`streams.session.rules`). One outside of all Runs is taken out where it is denied or used; an effect
  that the provider is known not to have done gives it back. No event tells that its time is over: `expires_at` says when.
- Rows of a closed session stay as they were when it was closed.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from streams.log.reader import Record
from streams.projections.projection import Unreadable
from streams.session.events import ApprovalAttributes, ChildAttributes, EffectAttributes, Event, WaitAttributes, read
from streams.session.rules.effects import NOT_DONE
from streams.store.table import Put, Reads

_ROW: Final = b"o/"

TURN: Final = "turn"
RUN: Final = "run"
WAIT: Final = "wait"
CHILD: Final = "child"
EFFECT: Final = "effect"
APPROVAL: Final = "approval"
_PLACES: Final = {WAIT: b"1", RUN: b"2", TURN: b"3", CHILD: b"4", EFFECT: b"5", APPROVAL: b"6"}
"""Approvals come last: a page that is full of those whose time is over still has everything else."""


class Unsettled(Struct, array_like=True, frozen=True):
    """One thing. `expires_at`: of an approval, in microseconds since the epoch; None: never. `approval`: of an effect, what it used."""

    kind: str
    item_id: str
    expires_at: int | None = None
    approval: "Unsettled | None" = None


_encode = msgspec.msgpack.Encoder().encode
decode_unsettled: Final = msgspec.msgpack.Decoder(Unsettled).decode


def unsettled_prefix(session_id: str) -> bytes:
    return b"%s%s/" % (_ROW, session_id.encode())


def _key(session_id: str, kind: str, item_id: str) -> bytes:
    return unsettled_prefix(session_id) + _PLACES[kind] + item_id.encode()


class UnsettledView:
    name = "unsettled"
    version = 1

    def begin(self, rows: Reads) -> "UnsettledFold":
        return UnsettledFold(rows)


class UnsettledFold:
    def __init__(self, rows: Reads) -> None:
        self._stored = rows
        self._puts: dict[bytes, bytes | None] = {}

    def apply(self, event: Event, record: Record) -> None:
        change = CHANGES.get(event.type)
        if change is not None:
            change(self, event)

    def set_aside(self, unreadable: Unreadable) -> None:
        """What it began or ended cannot be known; the transcript shows that there is a gap."""

    def awaited(self) -> tuple[str, ...]:
        return ()

    def puts(self) -> Iterator[Put]:
        yield from self._puts.items()

    def found(self, session_id: str, kind: str, item_id: str) -> Unsettled | None:
        key = _key(session_id, kind, item_id)
        value = self._puts[key] if key in self._puts else self._stored.get(key)
        return None if value is None else decode_unsettled(value)

    def begun(self, session_id: str, row: Unsettled) -> None:
        self._puts[_key(session_id, row.kind, row.item_id)] = _encode(row)

    def ended(self, session_id: str, kind: str, item_id: str | None) -> None:
        if item_id is not None:
            self._puts[_key(session_id, kind, item_id)] = None


_Change = Callable[[UnsettledFold, Event], None]
_Named = Callable[[Event], str | None]


def _begins(kind: str, named: _Named) -> _Change:
    def change(fold: UnsettledFold, event: Event) -> None:
        item_id = named(event)
        if item_id is not None:
            fold.begun(event.session_id, Unsettled(kind, item_id))

    return change


def _ends(kind: str, named: _Named) -> _Change:
    return lambda fold, event: fold.ended(event.session_id, kind, named(event))


def _turn(event: Event) -> str | None:
    return event.turn_id


def _run(event: Event) -> str | None:
    return event.run_id


def _wait(event: Event) -> str | None:
    return read(event, WaitAttributes).wait_id


def _child(event: Event) -> str | None:
    return read(event, ChildAttributes).child_id


def _approval(event: Event) -> str | None:
    return read(event, ApprovalAttributes).approval_id


def _approval_requested(fold: UnsettledFold, event: Event) -> None:
    told = read(event, ApprovalAttributes)
    if told.approval_id is not None and event.run_id is None:
        fold.begun(event.session_id, Unsettled(APPROVAL, told.approval_id, told.expires_at))


def _effect_dispatched(fold: UnsettledFold, event: Event) -> None:
    told = read(event, EffectAttributes)
    if told.effect_id is None:
        return
    used = None if told.approval_id is None else fold.found(event.session_id, APPROVAL, told.approval_id)
    fold.begun(event.session_id, Unsettled(EFFECT, told.effect_id, approval=used))
    if used is not None:
        fold.ended(event.session_id, APPROVAL, used.item_id)


def _effect_settled(fold: UnsettledFold, event: Event) -> None:
    told = read(event, EffectAttributes)
    row = None if told.effect_id is None else fold.found(event.session_id, EFFECT, told.effect_id)
    if row is None:
        return
    fold.ended(event.session_id, EFFECT, row.item_id)
    if row.approval is not None and told.outcome in NOT_DONE:
        fold.begun(event.session_id, row.approval)


CHANGES: Final[dict[str, _Change]] = {
    "turn.started": _begins(TURN, _turn),
    "turn.completed": _ends(TURN, _turn),
    "run.accepted": _begins(RUN, _run),
    "run.completed": _ends(RUN, _run),
    "run.failed": _ends(RUN, _run),
    "run.cancelled": _ends(RUN, _run),
    "wait.opened": _begins(WAIT, _wait),
    "wait.answered": _ends(WAIT, _wait),
    "wait.expired": _ends(WAIT, _wait),
    "child.started": _begins(CHILD, _child),
    "child.settled": _ends(CHILD, _child),
    "approval.requested": _approval_requested,
    "approval.denied": _ends(APPROVAL, _approval),
    "effect.dispatched": _effect_dispatched,
    "effect.receipt_accepted": _effect_settled,
    "effect.reconciled": _effect_settled,
}
"""Events that change a row; no other costs more than this look-up."""
