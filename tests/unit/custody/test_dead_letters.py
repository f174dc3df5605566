"""Dead letters keep what could not be read, sealed under a secret of their day."""

from collections.abc import Callable

import msgspec
import pytest

from streams.custody.dead_letters import UNKNOWN_WORKSPACE, Address, Letter, open_dead_letter, seal_dead_letter
from streams.custody.keyring import SecretRef
from streams.custody.sealing import Sealer, day_end_us
from streams.custody.sqlite_keyring import SqliteKeyring
from streams.errors import ContentUnavailable, Invalid

DAY = "2031-02-03"
ADDRESS = Address(key_day=DAY, origin="sessions.commands", partition=3, offset=71)


class World:
    def __init__(self, keyring: SqliteKeyring) -> None:
        self.now_us = 0
        self.keyring = keyring
        self.sealer = Sealer(keyring, cache_seconds=10, now_us=lambda: self.now_us)


@pytest.fixture
def world(open_keyring: Callable[[], SqliteKeyring]) -> World:
    return World(open_keyring())


@pytest.mark.parametrize(
    "letter",
    [
        Letter(key=b"mia_li_3668", value=b"\x00\xff" * 400, place="/home/mia/a.jsonl line 7"),
        Letter(key=None, value=None),
        Letter(key=b"", value=b"", place="caf\udce9"),
    ],
    ids=["personal", "absent", "odd path"],
)
@pytest.mark.parametrize("workspace_id", [None, "ws_" + "5" * 32])
def test_a_letter_opens_as_it_was(world: World, letter: Letter, workspace_id: str | None) -> None:
    address = msgspec.structs.replace(ADDRESS, workspace_id=workspace_id)
    sealed = seal_dead_letter(world.sealer, address, letter)
    assert sealed.key_day == DAY
    assert b"mia" not in sealed.ciphertext
    assert open_dead_letter(world.sealer, address, ciphertext=sealed.ciphertext, digest=sealed.digest) == letter


@pytest.mark.parametrize("change", [{"offset": 72}, {"partition": None}, {"origin": "sessions.events"}])
def test_a_letter_moved_to_another_address_does_not_open(world: World, change: dict[str, object]) -> None:
    sealed = seal_dead_letter(world.sealer, ADDRESS, Letter(key=b"k", value=b"v"))
    with pytest.raises(ContentUnavailable) as refused:
        open_dead_letter(world.sealer, msgspec.structs.replace(ADDRESS, **change), ciphertext=sealed.ciphertext, digest=sealed.digest)
    assert refused.value.code == "content.unreadable"


def test_a_letter_goes_with_the_secret_of_its_day(world: World) -> None:
    sealed = seal_dead_letter(world.sealer, ADDRESS, Letter(key=b"k", value=b"v"))
    ref = SecretRef("dead_letters", UNKNOWN_WORKSPACE, DAY)
    world.keyring.destroy([ref])
    world.sealer.forget([ref])
    with pytest.raises(ContentUnavailable) as refused:
        open_dead_letter(world.sealer, ADDRESS, ciphertext=sealed.ciphertext, digest=sealed.digest)
    assert refused.value.code == "content.expired"


def test_a_letter_is_not_shown_after_its_day(world: World) -> None:
    sealed = seal_dead_letter(world.sealer, ADDRESS, Letter(key=b"k", value=b"v"))
    world.now_us = day_end_us(DAY)
    with pytest.raises(ContentUnavailable) as refused:
        open_dead_letter(world.sealer, ADDRESS, ciphertext=sealed.ciphertext, digest=sealed.digest)
    assert refused.value.code == "content.expired"


def test_a_letter_of_another_keyring_is_unreadable(world: World) -> None:
    with pytest.raises(ContentUnavailable) as refused:
        open_dead_letter(world.sealer, ADDRESS, ciphertext=bytes(100), digest=bytes(32))
    assert refused.value.code == "content.unreadable"


def test_a_day_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(Invalid):
        seal_dead_letter(world.sealer, Address(key_day="today", origin="x"), Letter(key=None, value=None))
