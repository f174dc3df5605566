"""Content that is too large for a record: stored before the event that claims it is sent, fetched when that is opened.

Each attempt at a command stores its texts under names of its own. Those of an attempt that came to nothing are dropped by
whoever learns so; where nobody learns (a process that died, an outcome that stayed unknown), they open for nobody but
who could read such an event, and end with their day.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final

import structlog

from streams.blobs import BlobStore
from streams.custody.claim_checks import ClaimCheck, FetchText, LargeText
from streams.custody.sealed_stream import CHUNK_BYTES, StreamOpener, StreamSealer
from streams.errors import BlobStoreUnavailable, ContentUnavailable, NotFound, Retriable
from streams.sealed_blobs.names import text_name

_FETCH_TIMEOUT_S: Final = 60.0
_log = structlog.get_logger(__name__)


class LargeTexts:
    """Belongs to one event loop. Ciphers work in the loop's own threads, a chunk at a time: never in those that wait in `fetch`."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def put(self, texts: Sequence[LargeText]) -> None:
        """Store all, or none. Raises `BlobStoreUnavailable`, `Misconfigured`."""
        try:
            for text in texts:
                await self._blobs.put(text_name(text.claim), self._sealed(text))
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self.drop(texts)))
            raise

    async def drop(self, texts: Sequence[LargeText]) -> None:
        """Nothing claims them. Where the store is away, they stay until their day is over."""
        try:
            for text in texts:
                await self._blobs.delete(text_name(text.claim))
        except Retriable as error:
            _log.warning("texts_left_behind", session_id=texts[0].claim.session_id, code=error.code)

    async def fetch(self, claim: ClaimCheck) -> bytes:
        """The text, proven to be the one that was stored for this event.

        Raises `ContentUnavailable` (content.unreadable: gone, damaged, or of another size), `BlobStoreUnavailable`.
        """
        opener = StreamOpener(claim.key, claim.place)
        held = bytearray()
        try:
            async for piece in self._blobs.get(text_name(claim)):
                for chunk in await asyncio.to_thread(opener.update, piece):
                    held += chunk
                if len(held) > claim.size:
                    raise ContentUnavailable("claimed text: larger than its event says")
        except NotFound:
            raise ContentUnavailable("claimed text: it is not in the blob store") from None
        held += await asyncio.to_thread(opener.finish)
        if len(held) != claim.size:
            raise ContentUnavailable("claimed text: of another size than its event says")
        return bytes(held)

    def fetch_from_threads(self, loop: asyncio.AbstractEventLoop) -> FetchText:
        """What a `Sealer` asks in threads that are neither the loop's own nor its workers (`asyncio.to_thread`)."""

        def fetch(claim: ClaimCheck) -> bytes:
            future = asyncio.run_coroutine_threadsafe(self.fetch(claim), loop)
            try:
                return future.result(_FETCH_TIMEOUT_S)
            except FutureTimeout:
                future.cancel()
                raise BlobStoreUnavailable(f"claimed text: not read within {_FETCH_TIMEOUT_S:g} s") from None

        return fetch

    async def _sealed(self, text: LargeText) -> AsyncIterator[bytes]:
        sealer, whole = StreamSealer(text.claim.key, text.claim.place), memoryview(text.json_text)
        for start in range(0, len(whole), CHUNK_BYTES):
            for sealed in await asyncio.to_thread(sealer.update, whole[start : start + CHUNK_BYTES]):
                yield sealed
        yield await asyncio.to_thread(sealer.finish)
