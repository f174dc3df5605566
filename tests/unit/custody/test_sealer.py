"""Sealing and opening events: which keys, how many questions to the keyring, and why content cannot be shown."""

import os
from collections.abc import Callable, Collection
from typing import Any

import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streams.custody import sealing
from streams.custody.keyring import SecretRef
from streams.custody.sealing import CONTENT_BYTES_MAX, Sealer, SealItem, content_aad, content_expiry_day, content_key, seal_bytes
from streams.custody.sqlite_keyring import SqliteKeyring
from streams.errors import ContentUnavailable, Invalid
from streams.session import words
from streams.session.events import Content, Draft, KeyReference

WORKSPACE = "ws_" + "1" * 32
SESSION = "sess_" + "2" * 32
SUBJECT = "subj_" + "3" * 32
TODAY_US = 1_930_000_000_000_000
DAY = content_expiry_day(TODAY_US, 30)
DAY_US = 86_400_000_000

SUBJECT_REF = SecretRef("subject", WORKSPACE, SUBJECT)
SESSION_REF = SecretRef("session", WORKSPACE, SESSION)
DAY_REF = SecretRef("day", WORKSPACE, DAY)


class Counted:
    """A keyring that notes what it is asked."""

    def __init__(self, keyring: SqliteKeyring) -> None:
        self._keyring = keyring
        self.calls: list[tuple[str, set[SecretRef]]] = []

    def secrets(self, refs: Collection[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
        self.calls.append(("create" if create else "read", set(refs)))
        return self._keyring.secrets(refs, create=create)

    def destroyed(self, refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        self.calls.append(("destroyed", set(refs)))
        return self._keyring.destroyed(refs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keyring, name)


class World:
    """A sealer with clocks that a test turns."""

    def __init__(self, keyring: SqliteKeyring, max_entries: int = 1000) -> None:
        self.keyring = Counted(keyring)
        self.now_us = TODAY_US
        self.elapsed_s = 0.0
        self.sealer = Sealer(
            self.keyring, cache_seconds=10, max_entries=max_entries, now_us=lambda: self.now_us, elapsed=lambda: self.elapsed_s
        )

    def fresh(self) -> "World":
        """Another process on the same keyring, at the same time."""
        other = World(self.keyring._keyring)
        other.now_us = self.now_us
        return other


@pytest.fixture
def world(open_keyring: Callable[[], SqliteKeyring]) -> World:
    return World(open_keyring())


def event(number: int, content: Content, session_id: str = SESSION) -> Draft:
    return Draft(
        event_id=f"evt_{number:032x}", session_id=session_id, type="message.appended", workspace_id=WORKSPACE,
        command_id="cmd_" + "0" * 32, content=content,
    )  # fmt: skip


def item(number: int, text: bytes = b'"hello"', subject_id: str | None = SUBJECT, session_id: str = SESSION, day: str = DAY) -> SealItem:
    return SealItem(
        workspace_id=WORKSPACE, session_id=session_id, event_id=f"evt_{number:032x}", subject_id=subject_id, expiry_day=day,
        json_text=text,
    )  # fmt: skip


def sealed(world: World, text: bytes = b'"hello"', number: int = 1, subject_id: str | None = SUBJECT) -> Draft:
    return event(number, world.sealer.seal_many([item(number, text, subject_id)])[0])


def code_of(world: World, draft: Draft) -> str:
    with pytest.raises(ContentUnavailable) as refused:
        world.sealer.open(draft)
    return refused.value.code


@pytest.mark.parametrize("subject_id", [SUBJECT, None])
@pytest.mark.parametrize("text", [b"{}", b"", b'"\\u0000 \xc3\xa9 1e400"', b'{"long":"' + b"ab" * 5000 + b'"}'], ids=len)
def test_what_was_sealed_opens_byte_for_byte_in_another_process(world: World, text: bytes, subject_id: str | None) -> None:
    draft = sealed(world, text, subject_id=subject_id)
    assert draft.content.state == "sealed"
    assert draft.content.key_reference == KeyReference(subject_id, SESSION, DAY)
    assert text not in (draft.content.ciphertext or b"") or not text
    assert world.fresh().sealer.open(draft) == text


def test_the_same_text_is_sealed_differently_each_time(world: World) -> None:
    one, other = sealed(world), sealed(world)
    assert one.content.ciphertext != other.content.ciphertext
    assert one.content.digest != other.content.digest


def test_long_text_is_compressed_and_what_does_not_shrink_is_not(world: World) -> None:
    assert len(sealed(world, b"ab" * 5000).content.ciphertext or b"") < 200
    noise = os.urandom(5000)
    assert len(sealed(world, noise).content.ciphertext or b"") == 12 + 2 + 16 + 5000 + 16


def test_a_page_is_sealed_and_opened_with_one_question_each(world: World) -> None:
    sessions = [f"sess_{number % 3:032x}" for number in range(50)]
    contents = world.sealer.seal_many([item(number, b'"x"', session_id=session_id) for number, session_id in enumerate(sessions)])
    events = [event(number, content, session_id) for number, (content, session_id) in enumerate(zip(contents, sessions, strict=True))]
    reader = world.fresh()
    assert reader.sealer.open_many(events) == [b'"x"'] * 50
    assert reader.sealer.open_many(events) == [b'"x"'] * 50
    refs = {SUBJECT_REF, DAY_REF, *(SecretRef("session", WORKSPACE, session_id) for session_id in sessions)}
    assert world.keyring.calls == [("create", refs)]
    assert reader.keyring.calls == [("read", refs)]


def test_a_page_tells_for_each_position_what_it_holds_or_why_not(world: World) -> None:
    erased = "subj_" + "4" * 32
    drafts = [
        sealed(world, b"1"),
        event(2, Content()),
        event(3, Content(state="omitted")),
        event(4, world.sealer.seal_many([item(4, b"4", erased)])[0]),
        sealed(world, b"5", number=5, subject_id=None),
    ]
    world.keyring.destroy([SecretRef("subject", WORKSPACE, erased)])
    opened = world.fresh().sealer.open_many(drafts)
    assert [each.code if isinstance(each, ContentUnavailable) else each for each in opened] == [
        b"1", None, "content.omitted", "content.erased", b"5",
    ]  # fmt: skip


@pytest.mark.parametrize(("ref", "code"), [(SUBJECT_REF, "content.erased"), (SESSION_REF, "content.erased"), (DAY_REF, "content.expired")])
def test_destroying_any_of_the_three_secrets_shreds_the_content(world: World, ref: SecretRef, code: str) -> None:
    draft = sealed(world)
    world.keyring.destroy([ref])
    assert code_of(world.fresh(), draft) == code


def test_content_is_readable_to_the_end_of_its_day_and_no_longer(world: World) -> None:
    """Read time is authoritative: the secret still stands in keyring and cache."""
    draft = sealed(world)
    world.now_us = sealing.day_end_us(DAY) - 1
    assert world.sealer.open(draft) == b'"hello"'
    world.now_us += 1
    assert code_of(world, draft) == "content.expired"


def test_erasure_is_told_before_expiry(world: World) -> None:
    draft = sealed(world)
    world.keyring.destroy([SESSION_REF, DAY_REF])
    world.now_us += 400 * DAY_US
    assert code_of(world.fresh(), draft) == "content.erased"


def test_secrets_that_this_keyring_never_held_are_no_erasure(world: World) -> None:
    ciphertext, digest = seal_bytes(os.urandom(32), aad=b"", nonce=bytes(12), salt=bytes(16), json_text=b"1")
    draft = event(1, Content(state="sealed", key_reference=KeyReference(SUBJECT, SESSION, DAY), ciphertext=ciphertext, digest=digest))
    assert code_of(world, draft) == "content.unreadable"


def test_why_content_is_closed_is_told_without_the_content(world: World) -> None:
    """The same answer as opening gives, also for references that name no secret and no day."""
    reference = sealed(world).content.key_reference
    assert reference is not None
    no_day, no_id = KeyReference(None, SESSION, "someday"), KeyReference("nobody", SESSION, DAY)
    assert world.sealer.why_closed(WORKSPACE, {reference, no_day, no_id}) == {no_day: sealing.UNREADABLE, no_id: sealing.UNREADABLE}
    assert world.sealer.why_closed("", {reference}) == {reference: sealing.UNREADABLE}
    world.now_us = sealing.day_end_us(DAY)
    assert world.sealer.why_closed(WORKSPACE, {reference}) == {reference: words.CONTENT_EXPIRED}
    world.keyring.destroy([SESSION_REF])
    world.sealer.forget_all()
    assert world.sealer.why_closed(WORKSPACE, {reference}) == {reference: words.CONTENT_ERASED}


def test_a_ciphertext_moved_to_another_event_does_not_open(world: World) -> None:
    content = sealed(world, number=1).content
    assert code_of(world, event(2, content)) == "content.unreadable"


@pytest.mark.parametrize(
    "key_reference",
    [None, KeyReference(SUBJECT, SESSION, "9999-99-99"), KeyReference(SUBJECT, SESSION, "soon"), KeyReference("mia", SESSION, DAY)],
    ids=str,
)
def test_a_key_reference_that_names_no_secret_is_unreadable(world: World, key_reference: KeyReference | None) -> None:
    content = sealed(world).content
    draft = event(1, Content(state="sealed", key_reference=key_reference, ciphertext=content.ciphertext, digest=content.digest))
    assert code_of(world, draft) == "content.unreadable"


def test_a_bomb_is_not_unpacked(world: World) -> None:
    """A frame of a gigabyte of zeros, sealed with the right key: refused by the size that it declares."""
    refs = (SUBJECT_REF, SESSION_REF, DAY_REF)
    secrets = world.keyring.secrets(refs, create=True)
    key = content_key(*(secrets[ref] for ref in refs))
    compressor = zstandard.ZstdCompressor().compressobj(size=1 << 30)
    frame = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(1 << 10)) + compressor.flush()
    nonce = os.urandom(12)
    aad = content_aad(WORKSPACE, SESSION, event(1, Content()).event_id)
    ciphertext = nonce + AESGCM(key).encrypt(nonce, b"\x01\x01" + bytes(16) + frame, aad)
    content = Content(state="sealed", key_reference=KeyReference(SUBJECT, SESSION, DAY), ciphertext=ciphertext, digest=bytes(32))
    with pytest.raises(ContentUnavailable, match="1073741824 bytes"):
        world.sealer.open(event(1, content))


def test_an_erased_subject_cannot_be_sealed_for(world: World) -> None:
    """The gateway that still knows the old pseudonym is told, and asks the keyring for the new one."""
    world.keyring.destroy([SUBJECT_REF])
    with pytest.raises(ContentUnavailable) as refused:
        sealed(world)
    assert refused.value.code == "content.erased"


def test_too_large_a_text_is_refused_however_well_it_compresses(world: World) -> None:
    assert world.sealer.open(sealed(world, b"0" * CONTENT_BYTES_MAX)) == b"0" * CONTENT_BYTES_MAX
    with pytest.raises(Invalid) as refused:
        sealed(world, b"0" * (CONTENT_BYTES_MAX + 1))
    assert refused.value.code == "request.too_large"


@pytest.mark.parametrize("day", ["", "9999-99-99", "20310203", "2031-2-3"])
def test_a_day_that_is_none_is_refused(world: World, day: str) -> None:
    with pytest.raises(Invalid):
        world.sealer.seal_many([item(1, day=day)])


def test_asking_to_open_nothing_is_misuse(world: World) -> None:
    with pytest.raises(RuntimeError):
        world.sealer.open(event(1, Content()))


def test_a_cached_secret_is_used_for_its_time_and_not_longer(world: World) -> None:
    """Nobody told this process of the destruction; the lease ends it."""
    draft = sealed(world)
    world.keyring.destroy([SESSION_REF])
    world.elapsed_s += 9.9
    assert world.sealer.open(draft) == b'"hello"'
    world.elapsed_s += 0.1
    assert code_of(world, draft) == "content.erased"


def test_forgetting_ends_it_at_once(world: World) -> None:
    draft = sealed(world)
    world.keyring.destroy([SESSION_REF])
    world.sealer.forget([SESSION_REF])
    assert code_of(world, draft) == "content.erased"


def test_the_cache_holds_no_more_than_it_may(open_keyring: Callable[[], SqliteKeyring]) -> None:
    world = World(open_keyring(), max_entries=3)
    for number in range(20):
        world.sealer.seal_many([item(number, session_id=f"sess_{number:032x}")])
    assert len(world.sealer._cache) == 3


def test_expiry_days() -> None:
    noon_of_31_december = 1_924_948_800_000_000
    assert content_expiry_day(noon_of_31_december, 0) == "2031-01-01"
    assert content_expiry_day(noon_of_31_december, 30) == "2031-01-31"
    assert sealing.day_end_us("1970-01-01") == DAY_US
