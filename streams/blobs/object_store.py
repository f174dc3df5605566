"""A store of blobs through obstore, whatever stands behind it. Its types and errors end here.

A stream is put in parts, two of them under way at once. obstore aborts what it has begun when its source raises, and not when
its caller is cancelled: so a cancelled `put` makes the source raise, and waits for the abort. Reading asks for a range
at a time: each is a short request that is repeated by itself, however long the reader takes with it.
"""

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import obstore
import structlog
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, S3Store

from streams.blobs.blobs import Blob
from streams.blobs.handoff import Handoff, ended
from streams.errors import BlobStoreUnavailable, Misconfigured, NotFound

PART_BYTES: Final = 8 * 1024 * 1024
"""Of a stream that is put: S3 takes 10,000 of them, which makes 80 GB."""
_PARTS_AT_ONCE: Final = 2
RANGE_BYTES: Final = 4 * 1024 * 1024
"""Read at once."""
_DETAIL_CHARACTERS: Final = 200
_ADDRESS: Final = re.compile(r"https?://\S+")
_log = structlog.get_logger(__name__)


class ObjectStoreBlobs:
    """A `BlobStore`. What it has put is as durable as its store makes it; `local.py` makes sure for a directory."""

    part_bytes = PART_BYTES

    def __init__(self, store: LocalStore | S3Store) -> None:
        self._store = store

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> None:
        handoff = Handoff()
        sending = asyncio.ensure_future(
            obstore.put_async(
                self._store, name, aiter(handoff), use_multipart=True, chunk_size=self.part_bytes, max_concurrency=_PARTS_AT_ONCE
            )
        )
        try:
            # What `chunks` raises is its own, and goes on as it is.
            async for chunk in chunks:
                with translated(name, writing=True):
                    await handoff.give(chunk, sending)
            with translated(name, writing=True):
                await handoff.end(sending)
                await asyncio.shield(sending)
                await self._settle(name)
        except BaseException:
            handoff.break_off()
            await ended(sending)
            if not sending.cancelled() and sending.exception() is None:
                # It was whole before its caller left.
                await ended(asyncio.ensure_future(self.delete(name)))
            raise

    async def create(self, name: str, content: bytes) -> bool:
        with translated(name, writing=True):
            try:
                await obstore.put_async(self._store, name, content, mode="create")
            except AlreadyExistsError:
                return False
            await self._settle(name)
            return True

    async def get(self, name: str) -> AsyncIterator[bytes]:
        with translated(name):
            size = (await obstore.head_async(self._store, name))["size"]
        for start in range(0, size, RANGE_BYTES):
            with translated(name):
                piece = bytes(await obstore.get_range_async(self._store, name, start=start, end=min(start + RANGE_BYTES, size)))
            yield piece

    async def delete(self, name: str) -> None:
        with translated(name):
            try:
                await obstore.delete_async(self._store, name)
            except FileNotFoundError:
                return

    async def walk(self, prefix: str) -> AsyncIterator[Blob]:
        listing = aiter(obstore.list(self._store, prefix=prefix or None, chunk_size=1000))
        while True:
            with translated(prefix):
                found = await anext(listing, None)
            if found is None:
                return
            for each in found:
                yield Blob(each["path"], each["size"], int(each["last_modified"].timestamp() * 1_000_000))

    async def _settle(self, name: str) -> None:
        """Make what was stored just now survive a power cut. An object store has done so before it answers."""


@contextmanager
def translated(name: str, *, writing: bool = False) -> Iterator[None]:
    """An error of obstore or the file system as one of ours, named by what to do next. What callers may be told has no path in it: that
    goes to the log."""
    try:
        yield
    except FileNotFoundError as error:
        if writing:
            raise Misconfigured(f"blob store: its bucket or folder is not there ({_short(error)})") from error
        raise NotFound(f"blob {name}") from error
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise Misconfigured(f"blob store: it refuses us ({_short(error)})") from error
    except (BaseError, OSError) as error:
        _log.warning("blob_store_failed", name=name, error=_short(error))
        raise BlobStoreUnavailable("the blob store does not answer as it should") from error


def _short(error: Exception) -> str:
    """Without what the store sent along, and without an address."""
    return _ADDRESS.sub("...", str(error).partition("\n")[0].partition(" - Server returned")[0])[:_DETAIL_CHARACTERS]
