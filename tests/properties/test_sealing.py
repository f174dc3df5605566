"""Sealed bytes, whatever the text: they come back whole or not at all."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.custody.dead_letters import Address, dead_letter_aad
from streams.custody.sealing import content_aad, content_expiry_day, content_key, day_end_us, open_bytes, seal_bytes
from streams.errors import ContentUnavailable

secret = st.binary(min_size=32, max_size=32)
salt = st.binary(min_size=16, max_size=16)
nonce = st.binary(min_size=12, max_size=12)
text = st.one_of(
    st.binary(max_size=600), st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=9), st.integers(0, 2000))
)
identifiers = st.tuples(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
modest = settings(max_examples=100, deadline=None)


@modest
@given(secret, st.binary(max_size=40), nonce, salt, text, st.booleans())
def test_any_bytes_come_back(key: bytes, aad: bytes, nonce: bytes, salt: bytes, text: bytes, compress: bool) -> None:
    ciphertext, digest = seal_bytes(key, aad=aad, nonce=nonce, salt=salt, json_text=text, compress=compress)
    assert open_bytes(key, aad=aad, ciphertext=ciphertext, digest=digest) == text
    assert digest == hashlib.sha256(salt + text).digest()
    assert len(ciphertext) <= 12 + 2 + 16 + len(text) + 16


@modest
@given(secret, nonce, salt, text, st.data())
def test_one_changed_bit_anywhere_is_noticed(key: bytes, nonce: bytes, salt: bytes, text: bytes, data: st.DataObject) -> None:
    aad = b"place"
    ciphertext, digest = seal_bytes(key, aad=aad, nonce=nonce, salt=salt, json_text=text)
    parts = [bytearray(part) for part in (key, aad, ciphertext, digest)]
    part = data.draw(st.sampled_from(parts))
    at = data.draw(st.integers(0, len(part) * 8 - 1))
    part[at // 8] ^= 1 << at % 8
    changed_key, changed_aad, changed_ciphertext, changed_digest = map(bytes, parts)
    with pytest.raises(ContentUnavailable):
        open_bytes(changed_key, aad=changed_aad, ciphertext=changed_ciphertext, digest=changed_digest)


@modest
@given(secret, nonce, salt, text, st.integers(0, 10_000))
def test_a_shortened_ciphertext_is_noticed(key: bytes, nonce: bytes, salt: bytes, text: bytes, length: int) -> None:
    ciphertext, digest = seal_bytes(key, aad=b"", nonce=nonce, salt=salt, json_text=text)
    with pytest.raises(ContentUnavailable):
        open_bytes(key, aad=b"", ciphertext=ciphertext[: length % len(ciphertext)], digest=digest)


@modest
@given(identifiers, identifiers)
def test_two_places_never_share_their_associated_data(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    assert (content_aad(*one) == content_aad(*other)) == (one == other)


@modest
@given(st.lists(secret, min_size=3, max_size=3), st.lists(secret, min_size=3, max_size=3))
def test_each_of_the_three_secrets_and_their_order_make_the_key(one: list[bytes], other: list[bytes]) -> None:
    assert (content_key(*one) == content_key(*other)) == (one == other)


@modest
@given(st.tuples(st.text(max_size=4), st.none() | st.integers(0, 99), st.none() | st.integers(0, 99)), st.none() | st.text(max_size=4))
def test_a_dead_letters_address_is_told_apart_from_its_neighbours(parts: tuple[str, int | None, int | None], moved: str | None) -> None:
    origin, partition, offset = parts
    here = Address("2031-01-01", origin, partition, offset)
    there = Address("2031-01-01", origin if moved is None else moved, partition, None if offset is None else offset + 1)
    assert (dead_letter_aad(here) == dead_letter_aad(there)) == (here == there)


@modest
@given(st.integers(0, 4_000_000_000_000_000), st.integers(0, 3650))
def test_an_expiry_day_ends_after_the_window_and_at_most_two_days_later(now_us: int, window_days: int) -> None:
    """The authority refuses any other day."""
    day_us = 86_400_000_000
    beyond = day_end_us(content_expiry_day(now_us, window_days)) - (now_us + window_days * day_us)
    assert day_us < beyond <= 2 * day_us
