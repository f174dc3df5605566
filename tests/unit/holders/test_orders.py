"""What stores have to follow: every order to erase, once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from streams.holders.caches import orders_in
from streams.holders.orders import Orders
from streams.log.reader import Record
from streams.log.retention import (
    ACCEPTED,
    CHECKPOINT,
    DAY,
    ERASED,
    ERASURE,
    EXPIRED,
    REISSUE,
    REQUESTED,
    SESSION,
    SUBJECT,
    Erasure,
    Order,
    RetentionRow,
    encode_retention,
)
from tests.support.examples import made_up_id

WORKSPACE = made_up_id("ws")


def row(kind: str, identifier: str, order: int, state: str = ERASED) -> RetentionRow:
    return RetentionRow(kind=kind, workspace_id=WORKSPACE, id=identifier, state=state, order=order, ended_at=1)


def record(value: bytes | None, offset: int = 0) -> Record:
    return Record("sessions.retention", 0, offset, b"key", value, 1)


class TestOrdersInRecords:
    def test_are_the_rows_that_have_a_number(self) -> None:
        progress = RetentionRow(
            kind=ERASURE, workspace_id=WORKSPACE, id=made_up_id("ers"), state=ACCEPTED, order=0, ended_at=1,
            erasure=Erasure(scope=SUBJECT, scope_id=made_up_id("subj"), principal_id=made_up_id("key"), order=1),
        )  # fmt: skip
        rows = [row(SUBJECT, made_up_id("subj"), 1), row(CHECKPOINT, made_up_id("ckpt"), 0, EXPIRED), progress, row(DAY, "2026-01-01", 2)]
        found = orders_in([record(encode_retention(each)) for each in rows])
        assert found == [
            Order(1, SUBJECT, WORKSPACE, made_up_id("subj")), Order(2, DAY, WORKSPACE, "2026-01-01"),
        ]  # fmt: skip

    def test_stand_behind_what_cannot_be_read(self) -> None:
        found = orders_in([record(b"not ours"), record(None), record(encode_retention(row(SESSION, made_up_id("sess"), 7)))])
        assert [order.order for order in found] == [7]


class TestOrders:
    def test_of_a_day_are_not_kept(self) -> None:
        orders = Orders()
        orders.add(Order(1, DAY, WORKSPACE, "2026-01-01"))
        orders.add(Order(2, SUBJECT, WORKSPACE, "subj_1"))
        assert (orders.after(0, 10), orders.reached) == ([Order(2, SUBJECT, WORKSPACE, "subj_1")], 2)

    def test_say_who_is_erased(self) -> None:
        orders = Orders()
        orders.add(Order(1, SUBJECT, WORKSPACE, "subj_1"))
        orders.add(Order(2, REISSUE, WORKSPACE, "broker"))
        assert orders.is_erased("subj_1")
        assert not orders.is_erased("broker")
        assert not orders.is_erased(None)

    @given(st.lists(st.integers(1, 30)), st.integers(0, 31), st.integers(1, 5))
    def test_come_once_and_in_order_however_often_they_are_read(self, numbers: list[int], after: int, limit: int) -> None:
        orders = Orders()
        for number in numbers:
            orders.add(Order(number, SUBJECT, WORKSPACE, f"subj_{number}"))
        known = [order.order for order in orders.after(0, 100)]
        assert known == sorted(set(known))
        assert [order.order for order in orders.after(after, limit)] == [number for number in known if number > after][:limit]


def test_a_row_that_is_no_order_of_a_state_reads_back() -> None:
    told = row(REISSUE, "1", 3, REQUESTED)
    assert [order.kind for order in orders_in([record(encode_retention(told))])] == [REISSUE]
