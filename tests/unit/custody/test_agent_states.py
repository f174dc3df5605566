"""An agent's state opens with its subject's secret and its day's, in its own place, and with nothing else (design 04)."""

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest

from streams.custody.agent_states import StatePlace, agent_state_key, open_agent_state, seal_agent_state
from streams.custody.keyring import SecretRef
from streams.custody.sealing import NotAtHand, Sealer, content_expiry_day
from streams.custody.sqlite_keyring import SqliteKeyring
from streams.errors import ContentUnavailable, Invalid

WORKSPACE, SUBJECT = "ws_" + "1" * 32, "subj_" + "2" * 32
NOW_US, DAY_US = 1_930_000_000_000_000, 86_400_000_000
PLACE = StatePlace(WORKSPACE, SUBJECT, f"{WORKSPACE}/{SUBJECT}/actr_{'3' * 32}/cursor", "cmd_" + "4" * 32, content_expiry_day(NOW_US, 0))
TEXT = b'{"state":"' + b"abc" * 1000 + b'"}'


class Clock:
    now_us = NOW_US


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sealer(keyring: SqliteKeyring, clock: Clock) -> Sealer:
    return Sealer(keyring, cache_seconds=10, now_us=lambda: clock.now_us)


def why(sealer: Sealer, place: StatePlace, sealed: tuple[bytes, bytes]) -> str:
    with pytest.raises(ContentUnavailable) as refused:
        open_agent_state(sealer, place, *sealed)
    return refused.value.code


def test_a_state_opens_to_the_bytes_that_were_sealed(sealer: Sealer) -> None:
    for text in (TEXT, b"", b"\x00\xff" * 40_000):
        ciphertext, digest = seal_agent_state(sealer, PLACE, text)
        assert open_agent_state(sealer, PLACE, ciphertext, digest) == text
        assert text[:30] not in ciphertext or not text


@pytest.mark.parametrize(
    "moved",
    [
        {"workspace_id": "ws_" + "9" * 32},
        {"subject_id": "subj_" + "9" * 32},
        {"scope_key": PLACE.scope_key[:-6] + "workflow"},
        {"save_id": "x"},
    ],
)
def test_a_state_opens_in_no_other_place(sealer: Sealer, moved: dict[str, Any]) -> None:
    sealed = seal_agent_state(sealer, PLACE, TEXT)
    other = PLACE._replace(**moved)
    seal_agent_state(sealer, other, b"its secrets are there")
    assert why(sealer, other, sealed) == "content.unreadable"


def test_it_is_gone_with_its_subject_and_with_its_day(sealer: Sealer, keyring: SqliteKeyring) -> None:
    sealed = seal_agent_state(sealer, PLACE, TEXT)
    day, subject = SecretRef("day", WORKSPACE, PLACE.expiry_day), SecretRef("subject", WORKSPACE, SUBJECT)
    for ref, code in ((day, "content.expired"), (subject, "content.erased")):
        keyring.destroy([ref])
        sealer.forget([ref])
        assert why(sealer, PLACE, sealed) == code
        with pytest.raises(ContentUnavailable):
            seal_agent_state(sealer, PLACE, TEXT)


def test_it_is_not_opened_once_its_day_is_over_whether_or_not_the_secret_is_gone(sealer: Sealer, clock: Clock) -> None:
    sealed = seal_agent_state(sealer, PLACE, TEXT)
    clock.now_us = NOW_US + 2 * DAY_US
    assert why(sealer, PLACE, sealed) == "content.expired"


def test_why_it_is_closed_is_not_asked_for_without_asking(sealer: Sealer, clock: Clock) -> None:
    """Its secrets are at hand, and the keyring alone says whether it was erased."""
    sealed = seal_agent_state(sealer, PLACE, TEXT)
    clock.now_us = NOW_US + 2 * DAY_US
    with pytest.raises(NotAtHand):
        open_agent_state(sealer, PLACE, *sealed, ask=False)


def test_without_asking_it_is_sealed_and_opened_while_its_secrets_are_at_hand(sealer: Sealer) -> None:
    with pytest.raises(NotAtHand):
        seal_agent_state(sealer, PLACE, TEXT, ask=False)
    sealed = seal_agent_state(sealer, PLACE, TEXT)
    assert open_agent_state(sealer, PLACE, *seal_agent_state(sealer, PLACE, TEXT, ask=False), ask=False) == TEXT
    sealer.forget_all()
    with pytest.raises(NotAtHand):
        open_agent_state(sealer, PLACE, *sealed, ask=False)


def test_nothing_that_was_made_of_secrets_is_kept_once_any_is_forgotten(sealer: Sealer) -> None:
    forgetting: list[Callable[[], None]] = [lambda: sealer.forget([SecretRef("subject", WORKSPACE, SUBJECT)]), sealer.forget_all]
    for forget in forgetting:
        seal_agent_state(sealer, PLACE, TEXT)
        assert sealer._cipher_of.cache_info().currsize == 1
        forget()
        assert sealer._cipher_of.cache_info().currsize == 0


def test_a_day_that_is_none_and_an_altered_bit_are_refused(sealer: Sealer) -> None:
    with pytest.raises(Invalid):
        seal_agent_state(sealer, PLACE._replace(expiry_day="2027-02-30"), TEXT)
    ciphertext, digest = seal_agent_state(sealer, PLACE, TEXT)
    assert why(sealer, PLACE._replace(expiry_day="none"), (ciphertext, digest)) == "content.unreadable"
    assert why(sealer, PLACE, (ciphertext[:-1] + bytes([ciphertext[-1] ^ 1]), digest)) == "content.unreadable"
    assert why(sealer, PLACE, (ciphertext, digest[::-1])) == "content.unreadable"


def test_the_key_is_that_of_both_secrets_in_their_order() -> None:
    """As an independent HKDF-SHA-256 (RFC 5869) has it."""
    subject, day = bytes(range(32)), bytes(range(32, 64))
    pseudorandom = hmac.digest(bytes(32), subject + day, hashlib.sha256)
    assert agent_state_key(subject, day) == hmac.digest(pseudorandom, b"session-streams/agent-state/v1\x01", hashlib.sha256)
    assert agent_state_key(subject, day) != agent_state_key(day, subject)
