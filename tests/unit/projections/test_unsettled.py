"""What of a session is not settled, by thing: endings of one hide nothing of another."""

import itertools
from typing import Any

import pytest

from streams.clock import boottime_s
from streams.log.reader import Record
from streams.projections import unsettled
from streams.projections.fold import Fold
from streams.projections.tables import Tables
from streams.projections.unsettled import Unsettled
from streams.query.pages import UnsettledPage
from streams.query.queries import ReadModel
from streams.session import lifecycles
from streams.session.events import ApprovalAttributes, Attributes, ChildAttributes, EffectAttributes, RunAttributes, WaitAttributes
from streams.store.memory import MemoryStore
from tests.support.event_log import WORKSPACE, EventLog
from tests.support.examples import made_up_id

RUN, TURN, WAIT, CHILD, EFFECT, APPROVAL = (made_up_id(kind) for kind in ("run", "turn", "wait", "chld", "eff", "appr"))
OTHER = made_up_id("eff", 2)


class Told:
    """A session and its table: what is told is there at once, a batch each, so that rows are read again."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.log = EventLog()
        self.session = self.log.create("one")
        self.other = self.log.create("other")
        self._at_once, self._tables = at_once, Tables(60)
        self._table = self._tables.add(0, MemoryStore())
        self._table.answered(boottime_s(), 0)
        self._table.reached(0)

    def tell(self, event_type: str, attributes: Attributes | None = None, **fields: Any) -> None:
        self.log.command(self.session, [(event_type, attributes)], **fields)
        if not self._at_once:
            self._fold()

    def page(self, limit: int = 100) -> UnsettledPage:
        self._fold()
        return ReadModel(self._tables, 1).unsettled(WORKSPACE, self.session, limit=limit)

    def open(self) -> list[str]:
        return [each.item_id for each in self.page().items]

    def _fold(self) -> None:
        if self.log.records:
            Fold().apply(self._table, self.log.records)
            self.log.records.clear()


BEGINNINGS: dict[str, tuple[str, Attributes | None, dict[str, Any]]] = {
    WAIT: ("wait.opened", WaitAttributes(wait_id=WAIT), {"run_id": RUN}),
    RUN: ("run.accepted", RunAttributes(lane="l"), {"run_id": RUN}),
    TURN: ("turn.started", None, {"turn_id": TURN}),
    CHILD: ("child.started", ChildAttributes(child_id=CHILD, native=True), {"run_id": RUN}),
    EFFECT: ("effect.dispatched", EffectAttributes(effect_id=EFFECT), {"run_id": RUN}),
    APPROVAL: ("approval.requested", ApprovalAttributes(approval_id=APPROVAL, expires_at=7), {}),
}
ENDINGS: list[tuple[str, str, Attributes | None, dict[str, Any]]] = [
    (WAIT, "wait.answered", WaitAttributes(wait_id=WAIT), {"run_id": RUN}),
    (WAIT, "wait.expired", WaitAttributes(wait_id=WAIT), {}),
    (RUN, "run.completed", RunAttributes(), {"run_id": RUN}),
    (RUN, "run.failed", RunAttributes(), {"run_id": RUN}),
    (RUN, "run.cancelled", RunAttributes(), {"run_id": RUN}),
    (TURN, "turn.completed", None, {"turn_id": TURN}),
    (CHILD, "child.settled", ChildAttributes(child_id=CHILD), {}),
    (EFFECT, "effect.receipt_accepted", EffectAttributes(effect_id=EFFECT), {}),
    (EFFECT, "effect.reconciled", EffectAttributes(effect_id=EFFECT, outcome="abandoned"), {}),
    (APPROVAL, "approval.denied", ApprovalAttributes(approval_id=APPROVAL), {}),
]


@pytest.mark.parametrize("at_once", [True, False])
def test_each_thing_is_open_from_its_beginning_to_its_own_end(at_once: bool) -> None:
    for item_id, event_type, attributes, fields in ENDINGS:
        told = Told(at_once=at_once)
        for begin in BEGINNINGS.values():
            told.tell(begin[0], begin[1], **begin[2])
        assert told.open() == list(BEGINNINGS)
        told.tell(event_type, attributes, **fields)
        assert told.open() == [each for each in BEGINNINGS if each != item_id]


def test_what_does_not_end_a_thing_leaves_it_open() -> None:
    told = Told()
    for begin in BEGINNINGS.values():
        told.tell(begin[0], begin[1], **begin[2])
    told.tell("run.waiting", None, run_id=RUN)
    told.tell("effect.indeterminate", EffectAttributes(effect_id=EFFECT), run_id=RUN)
    told.tell("approval.granted", ApprovalAttributes(approval_id=APPROVAL))
    assert told.open() == list(BEGINNINGS)


def test_endings_of_what_never_began_here_hide_nothing() -> None:
    """A beginning that could not be read leaves a surplus of endings: a sum of both would say that nothing is open."""
    told = Told()
    told.tell("wait.opened", WaitAttributes(wait_id=WAIT))
    for label in range(3):
        told.tell("wait.answered", WaitAttributes(wait_id=made_up_id("wait", label + 10)))
    assert told.open() == [WAIT]
    assert not told.page().gaps
    told.log.append(told.session.encode(), b"no event")
    assert told.page().gaps


def test_a_record_of_another_session_is_no_gap_here() -> None:
    told = Told()
    told.log.append(told.other.encode(), b"no event")
    assert not told.page().gaps


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("outcome", "left"), [("failed", [APPROVAL]), ("not_performed", [APPROVAL]), ("succeeded", []), (None, [])])
def test_an_approval_is_used_by_an_effect_unless_it_was_not_done(outcome: str | None, left: list[str], at_once: bool) -> None:
    told = Told(at_once=at_once)
    told.tell("approval.requested", ApprovalAttributes(approval_id=APPROVAL, expires_at=7))
    told.tell("approval.granted", ApprovalAttributes(approval_id=APPROVAL))
    told.tell("effect.dispatched", EffectAttributes(effect_id=EFFECT, approval_id=APPROVAL), run_id=RUN)
    assert told.page().items == (Unsettled("effect", EFFECT, approval=Unsettled("approval", APPROVAL, 7)),)
    told.tell("effect.reconciled", EffectAttributes(effect_id=EFFECT, outcome=outcome))
    assert told.open() == left
    if left:
        assert told.page().items[0].expires_at == 7
        told.tell("effect.dispatched", EffectAttributes(effect_id=OTHER, approval_id=APPROVAL), run_id=RUN)
        assert told.open() == [OTHER]


def test_an_approval_of_a_run_is_told_of_by_its_run() -> None:
    told = Told()
    told.tell("approval.requested", ApprovalAttributes(approval_id=APPROVAL), run_id=RUN)
    told.tell("approval.granted", ApprovalAttributes(approval_id=APPROVAL), run_id=RUN)
    assert told.open() == []


def test_a_page_is_bounded_and_has_approvals_last() -> None:
    told = Told()
    for label in range(5):
        told.tell("approval.requested", ApprovalAttributes(approval_id=made_up_id("appr", label)))
    told.tell("wait.opened", WaitAttributes(wait_id=WAIT))
    page = told.page(limit=3)
    assert ([each.kind for each in page.items], page.truncated) == (["wait", "approval", "approval"], True)
    assert not told.page(limit=6).truncated


def test_the_rows_are_the_same_wherever_a_batch_was_cut() -> None:
    records = _story()
    whole = _rows([records])
    assert whole
    for cut in range(1, len(records)):
        assert _rows([records[:cut], records[cut:]]) == whole


def _story() -> list[Record]:
    told = Told(at_once=True)
    for begin in BEGINNINGS.values():
        told.tell(begin[0], begin[1], **begin[2])
    told.tell("effect.dispatched", EffectAttributes(effect_id=OTHER, approval_id=APPROVAL), run_id=RUN)
    told.tell("effect.receipt_accepted", EffectAttributes(effect_id=OTHER, outcome="failed"))
    told.tell("wait.answered", WaitAttributes(wait_id=WAIT))
    return told.log.records


def _rows(batches: list[list[Record]]) -> list[tuple[bytes, bytes]]:
    table = Tables(60).add(0, MemoryStore())
    for batch in batches:
        Fold().apply(table, batch)
    with table.store.scan(b"o/") as pairs:
        return list(itertools.chain(pairs))


@pytest.mark.parametrize("name", ["TURN", "RUN", "WAIT", "CHILD", "EFFECT"])
def test_every_event_that_settles_a_thing_takes_its_row_out(name: str) -> None:
    """The tables of what may follow what are the authority's; an ending that is added there must be one here."""
    transitions = getattr(lifecycles, name)
    befores = {before for moves in transitions.values() for before in moves}
    endings = {event for event, moves in transitions.items() if not befores.issuperset(moves.values())}
    assert endings
    assert endings <= unsettled.CHANGES.keys()
