"""An event that claims a text which lies elsewhere: what it says, and what is found where the text is not that one."""

import hashlib
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import structs

from streams.custody.claim_checks import LARGE_TEXT_BYTES_MAX, ClaimCheck, LargeText, claim_body, read_claim_body
from streams.custody.keyring import SecretRef
from streams.custody.sealed_bytes import CONTENT_FIELD, Claimed, content_aad, opened_with
from streams.custody.sealing import CONTENT_BYTES_MAX, NotAtHand, Sealer, SealItem
from streams.custody.sqlite_keyring import SqliteKeyring
from streams.errors import BlobStoreUnavailable, ContentUnavailable, Invalid
from streams.session.events import Content, Draft

WORKSPACE, SESSION, SUBJECT = "ws_" + "1" * 32, "sess_" + "2" * 32, "subj_" + "3" * 32
EVENT = "evt_" + "4" * 32
TEXT = b'"' + b"abc" * 3_000_000 + b'"'
DAY = "2031-02-03"


def item(text: bytes = TEXT) -> SealItem:
    return SealItem(workspace_id=WORKSPACE, session_id=SESSION, event_id=EVENT, subject_id=SUBJECT, expiry_day=DAY, json_text=text)


def event(content: Content, event_id: str = EVENT) -> Draft:
    return Draft(
        event_id=event_id,
        session_id=SESSION,
        type="message.appended",
        workspace_id=WORKSPACE,
        command_id="cmd_" + "0" * 32,
        content=content,
    )


@pytest.fixture
def sealer(keyring: SqliteKeyring) -> Sealer:
    return Sealer(keyring, cache_seconds=10)


@pytest.fixture
def claimed(sealer: Sealer) -> tuple[Content, LargeText]:
    return sealer.seal_claim(item())


def giving(text: bytes) -> Callable[[ClaimCheck], bytes]:
    return lambda claim: text


def test_the_event_is_small_and_its_digest_is_that_of_salt_and_text(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    content, text = claimed
    assert len(content.ciphertext or b"") == 12 + 18 + 24 + 16
    assert text.json_text == TEXT
    sealer.fetch_text = giving(TEXT)
    (opened,) = sealer.open_each([event(content)])
    assert opened is not None
    assert not isinstance(opened, ContentUnavailable)
    assert hashlib.sha256(opened.salt + TEXT).digest() == content.digest


def test_opening_asks_for_the_text_of_this_event_with_the_key_of_this_event(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    asked: list[ClaimCheck] = []

    def fetch(claim: ClaimCheck) -> bytes:
        asked.append(claim)
        return TEXT

    sealer.fetch_text = fetch
    assert sealer.open(event(claimed[0])) == TEXT
    assert asked == [claimed[1].claim]


def test_what_would_block_is_not_done_where_it_may_not(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    sealer.fetch_text = giving(TEXT)
    sealer.open(event(claimed[0]))
    with pytest.raises(NotAtHand):
        sealer.open_many([event(claimed[0])], ask=False)


@pytest.mark.parametrize("text", [b"", TEXT[:-1], TEXT + b" ", b'"other"'])
def test_another_text_than_the_event_shows_the_digest_of_is_told_as_unreadable(
    sealer: Sealer, claimed: tuple[Content, LargeText], text: bytes
) -> None:
    sealer.fetch_text = giving(text)
    (opened,) = sealer.open_many([event(claimed[0])])
    assert isinstance(opened, ContentUnavailable)
    assert opened.code == "content.unreadable"
    assert EVENT in opened.detail


def test_one_text_that_is_gone_closes_its_event_only(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    def gone(claim: ClaimCheck) -> bytes:
        raise ContentUnavailable("gone")

    sealer.fetch_text = gone
    (other,) = sealer.seal_many([structs.replace(item(b"1"), event_id="evt_" + "5" * 32)])
    first, second = sealer.open_many([event(claimed[0]), event(other, "evt_" + "5" * 32)])
    assert isinstance(first, ContentUnavailable)
    assert second == b"1"


def test_a_store_that_is_away_is_no_gap(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    def away(claim: ClaimCheck) -> bytes:
        raise BlobStoreUnavailable("away")

    sealer.fetch_text = away
    with pytest.raises(BlobStoreUnavailable):
        sealer.open(event(claimed[0]))


def test_who_has_no_store_is_told_where_the_text_lies(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    with pytest.raises(ContentUnavailable, match="blob store"):
        sealer.open(event(claimed[0]))


@pytest.mark.parametrize("kind", ["subject", "session", "day"])
def test_each_of_the_three_secrets_takes_the_text_along(
    sealer: Sealer, keyring: SqliteKeyring, claimed: tuple[Content, LargeText], kind: str
) -> None:
    """Nobody asks for the text any more, and its key cannot be made any more."""
    ref = {"subject": SecretRef("subject", WORKSPACE, SUBJECT), "session": SecretRef("session", WORKSPACE, SESSION)}
    keyring.destroy([ref.get(kind, SecretRef("day", WORKSPACE, DAY))])
    sealer.forget_all()
    sealer.fetch_text = giving(TEXT)
    with pytest.raises(ContentUnavailable) as told:
        sealer.open(event(claimed[0]))
    assert told.value.code == ("content.expired" if kind == "day" else "content.erased")


def test_a_claim_moved_to_another_event_does_not_open(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    sealer.fetch_text = giving(TEXT)
    with pytest.raises(ContentUnavailable):
        sealer.open(event(claimed[0], "evt_" + "6" * 32))


def test_more_than_a_text_may_have_is_refused(sealer: Sealer) -> None:
    assert CONTENT_BYTES_MAX < LARGE_TEXT_BYTES_MAX
    with pytest.raises(Invalid) as refused:
        sealer.seal_claim(item(b" " * (LARGE_TEXT_BYTES_MAX + 1)))
    assert refused.value.code == "request.too_large"


@pytest.mark.parametrize("body", [b"", bytes(23), bytes(25), bytes(16) + (LARGE_TEXT_BYTES_MAX + 1).to_bytes(8, "big")])
def test_a_body_that_is_none_of_ours_claims_nothing(body: bytes) -> None:
    with pytest.raises(ContentUnavailable):
        read_claim_body(body, event_id=EVENT)


def test_a_body_says_what_lies_where(sealer: Sealer, claimed: tuple[Content, LargeText]) -> None:
    content, text = claimed
    assert content.ciphertext is not None
    assert content.digest is not None
    key = text.claim.key
    opened = opened_with(AESGCM(key), content_aad(WORKSPACE, SESSION, EVENT, CONTENT_FIELD), content.ciphertext, content.digest)
    assert isinstance(opened, Claimed)
    assert opened.body == claim_body(text.claim)
    assert read_claim_body(opened.body, event_id=EVENT) == (text.claim.blob_id, len(TEXT))
