"""What a store has removed is told until it is known to be stored: an order is never taken for done without its report."""

from collections.abc import Callable

import pytest

from streams.holders import partitions
from streams.holders.partitions import PartitionHolders
from streams.log.retention import Confirmation, Purged
from streams.settings import Settings


class LossyLog:
    """Keeps what was sent; nothing is stored until a test says so."""

    def __init__(self, *_: object) -> None:
        self.sent: list[tuple[Confirmation, Callable[[], None] | None]] = []

    def tell(self, told: Confirmation, on_stored: Callable[[], None] | None = None) -> None:
        self.sent.append((told, on_stored))

    def serve(self) -> None:
        """Nothing is looked at."""

    def store_last(self) -> None:
        on_stored = self.sent[-1][1]
        assert on_stored is not None
        on_stored()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LossyLog:
    made = LossyLog()
    monkeypatch.setattr(partitions, "ConfirmationLog", lambda *_: made)
    monkeypatch.setattr(partitions, "_AGAIN_S", 0.0)
    return made


def report(order: int, count: int = 1) -> Purged:
    return Purged(order=order, counts={"sessions": count})


def test_a_report_that_was_lost_goes_with_the_next_confirmation(log: LossyLog) -> None:
    holders = PartitionHolders(Settings(), "custodian")
    holders.told(0, 1, 1, [report(1)])
    holders.told(0, 2, 2, [report(2)])
    assert log.sent[-1][0].purged == (report(1), report(2))
    log.store_last()
    holders.again()
    assert (log.sent[-1][0].purged_through, log.sent[-1][0].purged) == (2, ())


def test_telling_again_carries_what_is_not_stored(log: LossyLog) -> None:
    holders = PartitionHolders(Settings(), "custodian")
    holders.told(0, 1, 1, [report(1)])
    holders.again()
    assert log.sent[-1][0].purged == (report(1),)


def test_a_report_that_grew_meanwhile_is_told_again(log: LossyLog) -> None:
    holders = PartitionHolders(Settings(), "custodian")
    holders.told(0, 1, 0, [report(1)])
    first = log.sent[-1][1]
    holders.told(0, 1, 1, [report(1, 2)])
    assert first is not None
    first()
    holders.again()
    assert log.sent[-1][0].purged == (report(1, 2),)


def test_a_partition_that_is_given_up_is_told_of_no_more(log: LossyLog) -> None:
    holders = PartitionHolders(Settings(), "custodian")
    holders.told(0, 1, 1, [report(1)])
    holders.given_up(0)
    sent = len(log.sent)
    holders.again()
    assert len(log.sent) == sent
