"""What the fold must come to, computed beside every engine, and what the broker's stamps say of the rate.

An engine's outputs are gone through in the order of each partition: every hash is computed again from the one before,
counts go up by one, and in the end each key stands where the input puts it. So nothing is lost, doubled, reordered or
changed that this does not see. Where an engine only promises at-least-once, what it wrote twice is counted instead.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Final

_HEAD: Final = struct.Struct(">Q32s")
_ZERO: Final = bytes(32)

State = tuple[int, bytes]
"""Count and hash of a key."""
_NEW: Final[State] = (0, _ZERO)


class WrongOutput(Exception):
    """An engine wrote something else than the fold of its input. `detail` names the key and the counts."""


class Ledger:
    """Where each key stands after the values so far."""

    def __init__(self) -> None:
        self.states: dict[bytes, State] = {}

    def add(self, key: bytes, value: bytes) -> None:
        count, before = self.states.get(key, _NEW)
        digest = hashlib.sha256(before)
        digest.update(value)
        self.states[key] = (count + 1, digest.digest())


class Audit:
    """Goes through an engine's outputs. `duplicates` are those that repeat a count of their key with the same hash."""

    def __init__(self, expected: Mapping[bytes, State], *, duplicates_allowed: bool = False) -> None:
        self._expected = expected
        self._allowed = duplicates_allowed
        self._seen: dict[bytes, list[bytes]] = {}
        self.duplicates = 0

    def add(self, key: bytes, output: bytes) -> None:
        """Raises `WrongOutput`."""
        count, found = _HEAD.unpack_from(output)
        hashes = self._seen.setdefault(key, [_ZERO])
        if not 0 < count <= len(hashes):
            raise WrongOutput(f"{key!r}: count {count} after {len(hashes) - 1}")
        digest = hashlib.sha256(hashes[count - 1])
        digest.update(memoryview(output)[_HEAD.size :])
        if digest.digest() != found:
            raise WrongOutput(f"{key!r}: at count {count} the hash is not that of the one before and the value")
        if count == len(hashes):
            hashes.append(found)
        elif self._allowed and hashes[count] == found:
            self.duplicates += 1
        else:
            raise WrongOutput(f"{key!r}: count {count} again after {len(hashes) - 1}")

    def finish(self) -> None:
        """Raises `WrongOutput` unless every key, and no other, stands where it must."""
        compare({key: (len(hashes) - 1, hashes[-1]) for key, hashes in self._seen.items()}, self._expected, "outputs")


def compare(found: Mapping[bytes, State], expected: Mapping[bytes, State], what: str) -> None:
    """Raises `WrongOutput` naming the first key that stands elsewhere."""
    for key in {**expected, **found}:
        if found.get(key) != expected.get(key):
            have, want = (states.get(key, _NEW)[0] for states in (found, expected))
            raise WrongOutput(f"{what} of {key!r}: {have} counted, {want} expected" if have != want else f"{what} of {key!r}: another hash")


def state_of(packed: bytes) -> State:
    """Of the 40 bytes that every engine keeps."""
    count, digest = _HEAD.unpack(packed)
    return count, digest


def rate_per_s(stamps_ms: Sequence[int], after: float) -> float:
    """Records a second behind the part `after` (0 to 1) of all, to the last. `stamps_ms` in order of time.

    Raises ValueError where fewer than two records are behind it.
    """
    first = int(after * len(stamps_ms))
    count = len(stamps_ms) - 1 - first
    if count < 1:
        raise ValueError(f"{len(stamps_ms)} stamps are too few for a rate behind {after:g} of them")
    # The broker's clock counts whole milliseconds.
    return count * 1000 / max(1, stamps_ms[-1] - stamps_ms[first])
