"""Expired uploads go from real files, thousands of them, while the loop's transactions stay small and nothing of it waits."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams.blobs import BlobStore, open_blob_store
from streams.custodian.custodian import ROLE, Custodian
from streams.custodian.removing import Removing
from streams.custodian.rows import Expiring, encode, expiry_key, local_rows
from streams.custody.capsules import CapsulePlace, open_capsule, seal_capsule
from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import BlobStoreUnavailable, ContentUnavailable
from streams.log.retention import decode_retention
from streams.loop.step import Step
from streams.sealed_blobs import Place
from streams.settings import Settings
from streams.store.memory import MemoryStore
from streams.store.store import Store, StoreIdentity
from streams.store.table import Table
from tests.support.sealed_blobs import WORKSPACE, Room
from tests.support.waiting import eventually

NOW = 1_800_000_000_000_000
SESSIONS = 50


class Driven:
    """A custodian of one partition whose transactions this test makes: ticks only, each committed to the store."""

    def __init__(self, store: Table, remover: Removing, **settings: Any) -> None:
        self.store, self.now, self.most = store, NOW, 0
        self.custodian = Custodian(Settings(partitions=1, **settings), f"{ROLE}.test/1", remover=remover)
        self.retained: list[bytes] = []

    def tick(self) -> bool:
        """Whether there was something to commit."""
        self.now += 100_000
        if not self.custodian.is_due(0, self.store, self.now):
            return False
        step = Step(0, self.store, [], self.now, NOW)
        self.custodian.tick(step)
        self.retained += [output.value for output in step.outputs if output.value is not None]
        self.most = max(self.most, len(step.changelog))
        self.store.write([*step.changelog.items(), *step.local.items()], {})
        return True

    def drain(self, count: int, *, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while len(self.retained) < count and time.monotonic() < until:
            if not self.tick():
                time.sleep(0.002)
        assert len(self.retained) == count


def expired(store: Table, names: Sequence[tuple[str, str, str]]) -> None:
    """Session, checkpoint and upload of each: armed, and due."""
    for start in range(0, len(names), 5000):
        puts: dict[bytes, bytes | None] = {}
        for session_id, checkpoint_id, upload_id in names[start : start + 5000]:
            key = expiry_key(session_id, checkpoint_id)
            value = encode(Expiring(workspace_id=WORKSPACE, expires_at=NOW - 10, due_at=NOW - 5, sequence=1, uploads=(upload_id,)))
            puts[key] = value
            puts.update(local_rows(store.get, key, None, value))
        store.write(puts.items(), {})


def named(count: int) -> list[tuple[str, str, str]]:
    return [(f"sess_{number % SESSIONS:032x}", f"ckpt_{number:032x}", f"snap_{number:032x}") for number in range(count)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(partitions=1, data_dir=tmp_path)


@pytest.fixture
def removing(settings: Settings) -> Iterator[Removing]:
    made = Removing(partial(open_blob_store, settings), partial(open_local_keyring, settings.data_dir / "keyring"))
    made.start()
    yield made
    made.close()


def uploaded(settings: Settings, names: Sequence[tuple[str, str, str]]) -> list[SecretRef]:
    """Real uploads; their secrets."""
    room = Room(open_blob_store(settings), settings.data_dir / "keyring")

    async def fill() -> None:
        for session_id, _, upload_id in names:
            await room.upload(b"disk", upload_id, place=Place(WORKSPACE, session_id))

    asyncio.run(fill())
    room.keyring.close()
    return room.keyring.made


def test_uploads_and_their_secrets_go_from_real_files(settings: Settings, removing: Removing) -> None:
    names = named(60)
    secrets = uploaded(settings, names)
    store = MemoryStore()
    expired(store, names[:40])
    driven = Driven(store, removing)
    driven.drain(40, timeout_s=60)
    rows = [decode_retention(value) for value in driven.retained]
    assert {(row.id, row.state, row.ended_at) for row in rows} == {(name[1], "expired", NOW - 10) for name in names[:40]}
    left = {path.parent.name for path in (settings.data_dir / "blobs").rglob("*") if path.is_file()}
    assert left == {name[2] for name in names[40:]}
    keyring = open_local_keyring(settings.data_dir / "keyring")
    assert len(keyring.secrets(secrets, create=False)) == 20
    keyring.close()


def test_a_capsule_whose_secret_went_opens_no_more_and_another_does(settings: Settings, removing: Removing) -> None:
    keyring = open_local_keyring(settings.data_dir / "keyring")
    session_id = f"sess_{0:032x}"
    gone, stays = (CapsulePlace(WORKSPACE, session_id, None, "2099-01-01", f"cap_{number:032x}") for number in range(2))
    sealed = {place: seal_capsule(keyring, place, b"cursor") for place in (gone, stays)}
    store = MemoryStore()
    key = expiry_key(session_id, gone.capsule_id)
    value = encode(Expiring(workspace_id=WORKSPACE, expires_at=NOW - 10, due_at=NOW - 5, sequence=1, uploads=()))
    store.write([(key, value), *local_rows(store.get, key, None, value)], {})
    driven = Driven(store, removing)
    driven.drain(1, timeout_s=30)
    (row,) = [decode_retention(each) for each in driven.retained]
    assert (row.kind, row.id, row.state) == ("capsule", gone.capsule_id, "expired")
    with pytest.raises(ContentUnavailable) as refused:
        open_capsule(keyring, gone, sealed[gone])
    assert refused.value.code == "content.expired"
    assert open_capsule(keyring, stays, sealed[stays]) == b"cursor"
    keyring.close()


def test_ten_thousand_that_are_due_drain_in_small_transactions(settings: Settings, removing: Removing) -> None:
    """Few of them have bytes; each is looked for, and told of once."""
    names = named(10_000)
    uploaded(settings, names[::500])
    identity = StoreIdentity(ROLE, 1, "cluster", "topic", 0)
    store = Store.open(settings.data_dir / "store", identity)
    try:
        expired(store, names)
        driven = Driven(store, removing, expiries_per_s=1e6)
        driven.drain(10_000, timeout_s=120)
        assert len({decode_retention(value).id for value in driven.retained}) == 10_000
        assert driven.most <= 500
        with store.scan(b"sess_") as rows:
            assert list(rows) == []
    finally:
        store.close()
    assert [path for path in (settings.data_dir / "blobs").rglob("*") if path.is_file()] == []


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_million_that_are_due_drain_in_small_transactions(settings: Settings, removing: Removing) -> None:
    store = Store.open(settings.data_dir / "store", StoreIdentity(ROLE, 1, "cluster", "topic", 0))
    try:
        expired(store, named(1_000_000))
        driven = Driven(store, removing, expiries_per_s=1e6)
        driven.drain(1_000_000, timeout_s=2800)
        assert driven.most <= 500
    finally:
        store.close()


def test_a_store_that_is_away_is_asked_again_and_nothing_is_told_before(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.custodian.removing._PAUSE_S", 0.01)
    asked: list[int] = []

    def opening() -> BlobStore:
        asked.append(1)
        if len(asked) < 4:
            raise BlobStoreUnavailable("away")
        return open_blob_store(settings)

    def keyring() -> Keyring:
        return open_local_keyring(settings.data_dir / "keyring")

    removing = Removing(opening, keyring)
    removing.start()
    try:
        store = MemoryStore()
        expired(store, named(3))
        driven = Driven(store, removing)
        assert not driven.tick()
        driven.drain(3, timeout_s=30)
        assert len(asked) == 4
    finally:
        removing.close()


def test_what_was_forgotten_is_given_again_and_told_once(settings: Settings, removing: Removing) -> None:
    store = MemoryStore()
    expired(store, named(5))
    driven = Driven(store, removing)
    assert not driven.tick()
    eventually(lambda: removing.has_done(0), timeout_s=30)
    # As after a transaction that was aborted.
    driven.custodian.discard()
    assert not removing.has_done(0)
    driven.drain(5, timeout_s=30)
    assert not driven.tick()
