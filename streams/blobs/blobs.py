"""What a store of blobs promises (tests/contract/blob_contract.py holds each to it).

- What a call has stored when it returns is still there after a power cut.
- A blob appears whole or not at all: nobody reads one that is being put.
- A name holds one content for ever, or nothing: `create` refuses a name that is taken, and who puts a stream chooses a
  fresh one.

A name is one or more parts of letters, digits, `_`, `-` and `.`, with `/` between. Every call raises `BlobStoreUnavailable`
where the store cannot answer now, `Misconfigured` where it refuses us or is not there at all.
"""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Protocol

from msgspec import Struct


class Blob(Struct, frozen=True):
    """`stored_at` in microseconds since the epoch: when its last byte came, or its first one (S3)."""

    name: str
    bytes: int
    stored_at: int


class BlobStore(Protocol):
    """Belongs to one event loop at a time; no call blocks it."""

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> None:
        """Store a stream, some MiB of it in memory at once, under a fresh name.

        Where `chunks` raises, or the caller is cancelled, nothing is stored, no part of it remains, and the error goes on.
        """
        ...

    async def create(self, name: str, content: bytes) -> bool:
        """Store a small blob, unless the name is taken: of several who try at once one is told true.

        With `BlobStoreUnavailable` it may be there all the same.
        """
        ...

    def get(self, name: str) -> AsyncIterator[bytes]:
        """Its bytes, in order, in pieces of some MiB. Raises `NotFound`."""
        ...

    async def delete(self, name: str) -> None:
        """Also what a broken `put` under this name has left. A name that holds nothing is fine."""
        ...

    def walk(self, prefix: str) -> AsyncIterator[Blob]:
        """Everything below a name (`a/b` has `a/b/c`, not `a/bc`; empty: everything), also what was left of a broken `put`,
        under the name that it was to have. What has the same parts but the last comes together."""
        ...
