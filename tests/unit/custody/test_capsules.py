"""The private part of a capsule opens with its four secrets, and without any one of them for nobody."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from streams.custody.capsules import CapsulePlace, open_capsule, seal_capsule
from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import ContentUnavailable

WORKSPACE = "ws_" + "1" * 32
PLACE = CapsulePlace(WORKSPACE, "sess_" + "2" * 32, "subj_" + "3" * 32, "2030-01-01", "cap_" + "4" * 32)


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Keyring]:
    made = open_local_keyring(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("plaintext", [b"", b"{}", b"x" * 1_500_000])
def test_what_was_sealed_opens_again(keyring: Keyring, plaintext: bytes) -> None:
    sealed = seal_capsule(keyring, PLACE, plaintext)

    assert open_capsule(keyring, PLACE, sealed) == plaintext
    assert len(plaintext) < 3 or plaintext not in sealed


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        (SecretRef("subject", WORKSPACE, "subj_" + "3" * 32), "content.erased"),
        (SecretRef("session", WORKSPACE, PLACE.session_id), "content.erased"),
        (SecretRef("day", WORKSPACE, PLACE.expiry_day), "content.expired"),
        (PLACE.secret, "content.expired"),
    ],
    ids=["subject", "session", "day", "its own"],
)
def test_each_secret_alone_shreds_it(keyring: Keyring, ref: SecretRef, code: str) -> None:
    sealed = seal_capsule(keyring, PLACE, b"private")
    keyring.destroy([ref])

    with pytest.raises(ContentUnavailable) as error:
        open_capsule(keyring, PLACE, sealed)
    assert error.value.code == code
    with pytest.raises(ContentUnavailable):
        seal_capsule(keyring, PLACE, b"again")


def test_it_opens_in_no_other_place(keyring: Keyring) -> None:
    sealed = seal_capsule(keyring, PLACE, b"private")
    other = structs.replace(PLACE, capsule_id="cap_" + "5" * 32)
    seal_capsule(keyring, other, b"other")

    with pytest.raises(ContentUnavailable):
        open_capsule(keyring, other, sealed)
    with pytest.raises(ContentUnavailable):
        open_capsule(keyring, structs.replace(PLACE, capsule_id="cap_" + "6" * 32), sealed)
