"""What holds data, of whichever kind: it follows every order, drops what is named and nothing else, and says so when it has.

A test class inherits it and says how to make one. A cache keeps secrets, a partition's store rows and blobs, a sink whatever it was given.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

from streams.log.retention import SESSION, SUBJECT, Confirmation, Order
from tests.support.commands import new_id

WORKSPACE = "ws_" + "a" * 32


class Held(ABC):
    """One holder, and the driver whose orders it follows."""

    @abstractmethod
    def takes(self, kind: str, identifier: str) -> None:
        """It comes to hold something of a subject or a session."""

    @abstractmethod
    def holds(self, kind: str, identifier: str) -> bool:
        """Whether anything of it can still be read here."""

    @abstractmethod
    def orders(self, *orders: Order) -> None:
        """The driver destroys what they name, and tells of it."""

    @abstractmethod
    def writes(self, key: bytes, value: bytes) -> None:
        """A row of `sessions.retention`, whatever it is."""

    @abstractmethod
    def told(self) -> list[Confirmation]:
        """What it has confirmed so far, oldest first."""

    @abstractmethod
    def until(self, condition: Callable[[], bool]) -> None:
        """Lets it work until the condition holds; fails where it never does."""

    @abstractmethod
    def starts_again(self) -> None:
        """The process goes, and another takes its place."""

    # -- what the suite asks ------------------------------------------------------------------------------------------------

    def confirmed(self) -> int:
        """The last order through which nothing is readable here, as far as it says."""
        told = self.told()
        return told[-1].enforced_through if told else 0

    def has_followed(self, order: int) -> None:
        self.until(lambda: self.confirmed() >= order)


def of_a_subject(number: int) -> Order:
    return Order(number, SUBJECT, WORKSPACE, new_id("subj"))


class HolderContract(ABC):
    """`holder()` is one that has just begun. `kinds`: of what it holds something."""

    kinds: tuple[str, ...] = (SUBJECT, SESSION)

    @abstractmethod
    def holder(self) -> AbstractContextManager[Held]: ...

    def test_it_tells_of_itself_before_it_holds_anything(self) -> None:
        with self.holder() as held:
            held.until(lambda: bool(held.told()))
            first = held.told()[0]
            assert (first.enforced_through, first.purged_through, first.leaving) == (0, 0, False)

    def test_what_an_order_names_is_gone_when_it_is_confirmed_and_nothing_else_is(self) -> None:
        with self.holder() as held:
            orders = [of_a_subject(1), Order(2, SESSION, WORKSPACE, new_id("sess"))]
            left, kept = [order for order in orders if order.kind in self.kinds], new_id("subj")
            for kind, identifier in (*((order.kind, order.id) for order in left), (SUBJECT, kept)):
                held.takes(kind, identifier)
                assert held.holds(kind, identifier)
            for order in orders:
                held.orders(order)
                held.has_followed(order.order)
                left = [each for each in left if each is not order]
                assert not held.holds(order.kind, order.id)
                assert all(held.holds(each.kind, each.id) for each in left)
            assert held.holds(SUBJECT, kept)

    def test_many_orders_are_followed_to_the_last(self) -> None:
        with self.holder() as held:
            orders = [of_a_subject(number) for number in range(1, 31)]
            for order in orders[::5]:
                held.takes(SUBJECT, order.id)
            held.orders(*orders)
            held.has_followed(30)
            assert [order for order in orders[::5] if held.holds(SUBJECT, order.id)] == []

    def test_it_never_takes_back_what_it_confirmed(self) -> None:
        with self.holder() as held:
            for number in range(1, 6):
                held.orders(of_a_subject(number))
            held.has_followed(5)
            by_process: dict[str, list[int]] = {}
            for told in held.told():
                assert told.purged_through <= told.enforced_through
                by_process.setdefault(told.process, []).append(told.enforced_through)
            assert all(through == sorted(through) for through in by_process.values())

    def test_an_order_that_is_told_twice_changes_nothing(self) -> None:
        with self.holder() as held:
            order, kept = of_a_subject(1), new_id("subj")
            held.takes(SUBJECT, kept)
            held.orders(order, order)
            held.orders(order)
            held.orders(of_a_subject(2))
            held.has_followed(2)
            assert held.holds(SUBJECT, kept)

    def test_a_row_that_cannot_be_read_keeps_nobody_from_the_next(self) -> None:
        with self.holder() as held:
            order = of_a_subject(1)
            held.takes(SUBJECT, order.id)
            held.writes(b"subject/garbage", b"garbage")
            held.orders(order)
            held.has_followed(1)
            assert not held.holds(SUBJECT, order.id)

    def test_who_takes_its_place_confirms_as_much_and_holds_nothing_of_what_went(self) -> None:
        with self.holder() as held:
            before, meanwhile = of_a_subject(1), of_a_subject(2)
            held.takes(SUBJECT, before.id)
            held.orders(before)
            held.has_followed(1)
            held.starts_again()
            held.orders(meanwhile)
            held.has_followed(2)
            assert not held.holds(SUBJECT, before.id)
