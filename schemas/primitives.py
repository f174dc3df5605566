"""Avro's long, and what is preceded by one, without fastavro: for the few values that every event passes through.

A long is zigzag, then seven bits a byte, the lowest first. Text here is what those bytes are in Latin-1, character for
byte, so that regular expressions and string formatting can read and write whole values at once. Whatever is read or
written with these is compared with fastavro in tests/properties/test_shapes.py.
"""

from functools import lru_cache
from typing import Final

LONG: Final = r"[\x80-\xff]{0,8}[\x00-\x7f]"
"""The pattern of a long of at most nine bytes (63 bits of the ten that Avro allows)."""
_WIDE: Final = 8
"""Bytes that one round of masks can read."""


@lru_cache(4096)
def long_text(value: int) -> str:
    """The bytes of a long, as text. Raises `OverflowError` beyond 64 bits."""
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} does not fit 64 bits")
    rest = (value << 1) ^ (value >> 63)
    characters = []
    while rest > 0x7F:
        characters.append(chr(rest & 0x7F | 0x80))
        rest >>= 7
    characters.append(chr(rest))
    return "".join(characters)


@lru_cache(4096)
def long_bytes(value: int) -> bytes:
    """The bytes of a long. Raises `OverflowError` beyond 64 bits."""
    return long_text(value).encode("latin-1")


def long_of(text: str) -> int:
    """The long that this text, which matches `LONG`, is."""
    size = len(text)
    if size == 1:
        raw = ord(text)
    elif size == 2:
        raw = ord(text[0]) & 0x7F | ord(text[1]) << 7
    elif size <= _WIDE:
        # Closes the gaps that the continuation bits leave: 7 bits to 14, to 28, to 56.
        raw = int.from_bytes(text.encode("latin-1"), "little")
        raw = raw & 0x007F007F007F007F | (raw & 0x7F007F007F007F00) >> 1
        raw = raw & 0x00003FFF00003FFF | (raw & 0x3FFF00003FFF0000) >> 2
        raw = raw & 0x000000000FFFFFFF | (raw & 0x0FFFFFFF00000000) >> 4
    else:
        raw = 0
        for place, character in enumerate(text):
            raw |= (ord(character) & 0x7F) << 7 * place
    return (raw >> 1) ^ -(raw & 1)


def long_at(value: bytes, start: int) -> tuple[int, int]:
    """The long of at most nine bytes at `start`, and the offset behind it. Raises `IndexError` where there is none."""
    first = value[start]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), start + 1
    raw, shift = first & 0x7F, 7
    while True:
        start += 1
        byte = value[start]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), start + 1
        shift += 7
        if shift > 56:
            raise IndexError("more than nine bytes")


def text(value: str) -> str:
    """A string of ASCII with its length in front. Raises `ValueError` for other text, whose bytes are more than its characters."""
    if not value.isascii():
        raise ValueError("not ASCII")
    return long_text(len(value)) + value


def text_bytes(value: str) -> bytes:
    """A string of any text with its length in front. Raises `UnicodeEncodeError` for a lone surrogate."""
    encoded = value.encode()
    return long_bytes(len(encoded)) + encoded


def sized(value: bytes) -> bytes:
    """Bytes with their length in front."""
    return long_bytes(len(value)) + value
