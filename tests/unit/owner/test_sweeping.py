"""Which uploads are orphans, as the custodian's tables say, and that a pass throws away those and no others."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from connectors.owner.sweeping import NamedUploads, Sweeping
from streams.blobs import open_blob_store
from streams.custodian.rows import NamedUpload, encode, upload_key
from streams.log.partitioner import partition_of
from streams.projections.tables import OwnedTable, Tables
from streams.sealed_blobs import Place
from streams.settings import Settings
from streams.store.memory import MemoryStore
from tests.support.examples import made_up_id
from tests.support.sealed_blobs import WORKSPACE, Room
from tests.support.waiting import eventually

SESSION, NAMED, ORPHAN = made_up_id("sess"), made_up_id("snap", "named"), made_up_id("snap", "orphan")
PARTITIONS = 4
PARTITION = partition_of(SESSION.encode(), PARTITIONS)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tables(clock: Clock) -> Tables:
    return Tables(10, clock)


def owned(tables: Tables, partition: int = PARTITION) -> OwnedTable:
    """A table that holds all there was when it was last asked, a moment ago."""
    store = MemoryStore()
    store.write([(upload_key(SESSION, NAMED), encode(NamedUpload(checkpoint_id=made_up_id("ckpt"))))], {})
    table = tables.add(partition, store)
    table.answered(1000.0, 7)
    table.reached(7)
    return table


def test_an_upload_is_an_orphan_only_where_an_up_to_date_table_does_not_name_it(tables: Tables, clock: Clock) -> None:
    uploads = NamedUploads(tables, PARTITIONS)
    assert uploads.is_referenced(SESSION, ORPHAN), "nobody knows"
    owned(tables, (PARTITION + 1) % PARTITIONS)
    assert uploads.is_referenced(SESSION, ORPHAN), "another custodian knows"
    table = owned(tables)
    assert uploads.is_referenced(SESSION, NAMED)
    assert not uploads.is_referenced(SESSION, ORPHAN)
    clock.now_s += 11
    assert uploads.is_referenced(SESSION, ORPHAN), "it may have been named since"
    table.answered(clock.now_s, 8)
    assert uploads.is_referenced(SESSION, ORPHAN), "what is behind cannot tell"
    table.reached(8)
    assert not uploads.is_referenced(SESSION, ORPHAN)
    table.store.close()
    assert uploads.is_referenced(SESSION, ORPHAN), "it is being given up"


def test_a_pass_throws_orphans_away_and_leaves_what_is_named(tables: Tables, tmp_path: Path) -> None:
    settings = Settings(partitions=PARTITIONS, data_dir=tmp_path, orphan_grace_s=0, sweep_every_s=0.05)
    room = Room(open_blob_store(settings), tmp_path / "keyring")
    place = Place(WORKSPACE, SESSION)

    async def fill() -> None:
        for upload_id in (NAMED, ORPHAN):
            await room.upload(upload_id.encode(), upload_id, place=place)

    async def left() -> set[str]:
        return {name.split("/")[2] for name in await room.names()}

    asyncio.run(fill())
    owned(tables)
    sweeping = Sweeping(settings, NamedUploads(tables, PARTITIONS))
    sweeping.start()
    try:
        eventually(lambda: ORPHAN not in asyncio.run(left()), timeout_s=30)
        assert asyncio.run(left()) == {NAMED}
    finally:
        sweeping.close()
        room.keyring.close()


def test_a_store_that_is_away_ends_a_pass_and_not_the_sweeping(tables: Tables, tmp_path: Path) -> None:
    settings = Settings(partitions=PARTITIONS, data_dir=tmp_path, orphan_grace_s=0, sweep_every_s=0.05)
    away = replace(settings, blob_store="nowhere://")
    sweeping = Sweeping(away, NamedUploads(tables, PARTITIONS))
    sweeping.start()
    eventually(lambda: sweeping.passes >= 2, timeout_s=30)
    sweeping.close()
