"""What a store offers, and what it is of.

    key -> value, ordered by key, and beside them named offsets: "everything below this offset is in here"

One implementation lies on disk (`store.Store`), one in memory (`memory.MemoryStore`); `tests/contract/store_contract.py`
holds for both.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

Pair = tuple[bytes, bytes]
Put = tuple[bytes, bytes | None]


class StoreIdentity(Struct, frozen=True):
    """What a store was filled from; a store of anything else is wiped and rebuilt, never read.

    `version` is that of the layout of the rows. A topic that is deleted and made again has another `topic_id`.
    """

    role: str
    version: int
    cluster_id: str
    topic_id: str
    partition: int


def digest_of(rows: Iterable[Pair]) -> str:
    """SHA-256 (hex) over rows in key order, keys and values length-prefixed."""
    seen = hashlib.sha256()
    for key, value in rows:
        seen.update(b"%d:%d:" % (len(key), len(value)))
        seen.update(key)
        seen.update(value)
    return seen.hexdigest()


class Reads(Protocol):
    """The reading half: all that a projection or a query sees."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]: ...

    def scan(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> AbstractContextManager[Iterator[Pair]]: ...

    def offsets(self) -> dict[str, int]: ...


class Table(Reads, Protocol):
    """The writing half. `write` is atomic: all the puts and all the offsets, or nothing."""

    def write(self, puts: Iterable[Put], offsets: Mapping[str, int]) -> None: ...

    def begin_filling(self) -> None: ...

    def end_filling(self) -> None: ...

    def digest(self) -> str: ...

    def close(self) -> None: ...

    def wipe(self) -> None: ...
