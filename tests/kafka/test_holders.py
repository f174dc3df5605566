"""Holders on a real broker: they forget what is ordered, say so, and learn the broker's time."""

from collections.abc import Callable, Sequence

import pytest

from streams.clock import boottime_s, now_us
from streams.holders.caches import CacheHolder
from streams.holders.orders import OrderFollower
from streams.holders.partitions import PartitionHolders
from streams.log.confirmations import ConfirmationLog
from streams.log.reader import PartitionReader, end_offsets
from streams.log.retention import (
    CACHE,
    DAY,
    ERASED,
    PARTITION,
    SUBJECT,
    Confirmation,
    Order,
    Purged,
    RetentionRow,
    decode_confirmation,
    encode_retention,
)
from streams.log.rows import put_row
from streams.log.topics import Topics
from streams.settings import Settings
from tests.conftest import Broker
from tests.support.examples import made_up_id
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(60)]

WORKSPACE = made_up_id("ws")


@pytest.fixture
def settings(broker: Broker, settings_on: Callable[..., Settings]) -> Settings:
    return settings_on(broker.bootstrap, partitions=1, lease_s=0.9)


def ordered(settings: Settings, number: int, kind: str = SUBJECT) -> Order:
    """As the custodian writes it."""
    row = RetentionRow(kind=kind, workspace_id=WORKSPACE, id=made_up_id("subj", number), state=ERASED, order=number, ended_at=now_us())
    put_row(settings, Topics(settings.topic_prefix).retention, row.key, encode_retention(row))
    return Order(number, kind, WORKSPACE, row.id)


def confirmations(settings: Settings) -> list[Confirmation]:
    place = (Topics(settings.topic_prefix).confirmations, 0)
    end = end_offsets(settings, [place], committed=False)[place]
    found: list[Confirmation] = []
    with PartitionReader(settings, "test", {place: 0}) as reader:
        while reader.position(*place) < end:
            found += [decode_confirmation(record.value) for record in reader.read(100, 0.2) if record.value is not None]
    return found


def test_a_cache_registers_before_it_holds_anything_and_forgets_what_is_ordered(settings: Settings) -> None:
    before = ordered(settings, 1)
    forgotten: list[Order] = []
    holder = CacheHolder(settings, "gateway", forgotten.extend)
    try:
        (registered,) = confirmations(settings)
        assert (registered.kind, registered.holder_id, registered.enforced_through) == (CACHE, holder.process, 0)
        orders = [ordered(settings, 2), ordered(settings, 3, DAY)]
        eventually(lambda: holder.enforced_through == 3)
        # Where the orders stand it learns from the last ones before it came.
        assert forgotten == [before, *orders]
        eventually(lambda: confirmations(settings)[-1].enforced_through == 3)
        # It goes on saying that it is there.
        told = len(confirmations(settings))
        eventually(lambda: len(confirmations(settings)) > told)
        assert holder.alive
    finally:
        holder.close()
    assert confirmations(settings)[-1].leaving


def test_an_order_is_confirmed_only_once_it_is_forgotten(settings: Settings) -> None:
    holders: list[CacheHolder] = []
    seen: list[int] = []

    def forget(orders: Sequence[Order]) -> None:
        seen.append(max(each.enforced_through for each in confirmations(settings)))

    holders.append(CacheHolder(settings, "gateway", forget))
    try:
        ordered(settings, 1)
        eventually(lambda: bool(seen))
        assert seen == [0]
        eventually(lambda: confirmations(settings)[-1].enforced_through == 1)
    finally:
        holders[0].close()


def test_a_store_learns_every_order_from_the_beginning(settings: Settings) -> None:
    first = [ordered(settings, number) for number in range(1, 4)]
    follower = OrderFollower(settings, "custodian")
    try:
        assert follower.wait_loaded(10)
        assert follower.after(0, 10) == first
        later = ordered(settings, 4)
        eventually(lambda: follower.reached == 4)
        assert follower.after(3, 10) == [later]
        assert follower.is_erased(later.id)
    finally:
        follower.close()


def test_a_store_tells_what_it_removed_under_the_name_of_its_partition(settings: Settings) -> None:
    holders = PartitionHolders(settings, "custodian")
    try:
        holders.told(0, 5, 4, [Purged(order=4, counts={"sessions": 2})])
        eventually(lambda: bool(confirmations(settings)))
        (told,) = confirmations(settings)
        assert (told.holder_id, told.kind, told.enforced_through, told.purged_through) == ("custodian/0", PARTITION, 5, 4)
        assert told.purged == (Purged(order=4, counts={"sessions": 2}),)
    finally:
        holders.close()


def test_the_brokers_clock_is_learnt_from_what_is_told(settings: Settings) -> None:
    log = ConfirmationLog(settings, "custodian")
    try:
        assert log.clock_offset is None
        began = boottime_s()
        log.tell_now(
            Confirmation(holder_id="x", kind=CACHE, process="x", enforced_through=0, purged_through=0, told_at=now_us())
        )  # fmt: skip
        offset = log.clock_offset
        assert offset is not None
        # It is this machine's.
        assert (offset.ahead_us, offset.measured_at_s >= began) == (0, True)
    finally:
        log.close()
