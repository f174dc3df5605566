"""Digests as they are compared. An event keeps the spelling that it came with."""

from typing import Final

_SHA256_DIGITS: Final = 64


def canonical(digest: str) -> str:
    """`sha256:<hex>` for each way to write that: without an algorithm (64 digits are SHA-256's), or with hyphens in its name."""
    algorithm, colon, digits = digest.rpartition(":")
    if not colon:
        return f"sha256:{digits}" if len(digits) == _SHA256_DIGITS else digits
    return f"{algorithm.replace('-', '')}:{digits}"


def spellings(digest: str) -> tuple[str, ...]:
    """The canonical one, then those under which items of before may lie."""
    return tuple(dict.fromkeys((canonical(digest), digest, digest.rpartition(":")[2])))


def same(one: str | None, other: str | None) -> bool:
    """Whether both name the same bytes, however they are written."""
    return one == other or (one is not None and other is not None and canonical(one) == canonical(other))
