"""Small objects of a bucket for whoever works in threads: created once, or replaced where nobody has been faster.

S3 and what is compatible with it: a `PUT` with `If-None-Match: *` creates, one with `If-Match` replaces what was read.
"""

from collections.abc import Iterator
from typing import Final

import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from streams.blobs.object_store import translated
from streams.errors import NotFound

_PAGE: Final = 1000


class Found(Struct, frozen=True):
    """`version` names exactly this content."""

    content: bytes
    version: str


class Bucket:
    """Thread-safe; calls block. All raise `BlobStoreUnavailable` and `Misconfigured`."""

    def __init__(self, store: S3Store) -> None:
        self._store = store

    def read(self, name: str) -> Found | None:
        try:
            with translated(name):
                found = obstore.get(self._store, name)
                return Found(bytes(found.bytes()), str(found.meta["e_tag"]))
        except NotFound:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """False where the name is taken. After `BlobStoreUnavailable` it may be there all the same."""
        with translated(name, writing=True):
            try:
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def replace(self, name: str, content: bytes, version: str) -> bool:
        """False where something else is there than was read."""
        with translated(name, writing=True):
            try:
                obstore.put(self._store, name, content, mode={"e_tag": version}, use_multipart=False)
            except PreconditionError:
                return False
            return True

    def overwrite(self, name: str, content: bytes) -> None:
        """Whatever was there."""
        with translated(name, writing=True):
            obstore.put(self._store, name, content, use_multipart=False)

    def delete(self, name: str) -> None:
        """A name that holds nothing is fine."""
        with translated(name):
            try:
                obstore.delete(self._store, name)
            except FileNotFoundError:
                return

    def names(self, prefix: str, after: str | None = None) -> Iterator[str]:
        """Below a name, in the order of their bytes."""
        listing = obstore.list(self._store, prefix=prefix or None, offset=after, chunk_size=_PAGE)
        while True:
            with translated(prefix):
                page = next(listing, None)
            if page is None:
                return
            yield from sorted(each["path"] for each in page)
