"""Uploads of a session's workers: sealed on the way in, opened on the way out, a few MiB in memory at once.

An upload's id comes from its sender (derived from the Idempotency-Key), so it can be repeated:

- The same bytes under the same id get the same answer; other bytes are refused. Both whether the first upload is long over or
  still under way: the receipt is created once, and who comes second compares.
- An attempt seals with a secret of its own, durable before its first byte. One that fails, for whatever reason, destroys
  its secret and leaves no bytes; the next attempt under the same id starts anew. What a killed process leaves, and on S3 the
  parts of its upload that nobody can list, opens for nobody once the sweeper (`sweep.py`) has seen its mark.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from msgspec import Struct

from streams.blobs import BlobStore
from streams.clock import now_us
from streams.custody.keyring import Keyring
from streams.custody.sealed_stream import CHUNK_BYTES, StreamOpener, StreamPlace, StreamSealer
from streams.custody.snapshot_secrets import SnapshotSecrets, new_secret_id
from streams.errors import BlobStoreUnavailable, ContentUnavailable, Invalid, NotFound, Retriable
from streams.sealed_blobs.discarding import Discard, Discarded, discard_all
from streams.sealed_blobs.names import Place, UploadFolder
from streams.sealed_blobs.receipt import RECEIPT_BYTES_MAX, Receipt, decode_receipt, encode_receipt, is_fresh, plaintext_tag

_PART: Final = "upload"
_MARK: Final = b"begun"
_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Uploaded(Struct, frozen=True):
    """`bytes` of plaintext; `digest` is sha256:<hex> of the sealed bytes, which anybody may know."""

    upload_id: str
    bytes: int
    digest: str


class Download(Struct, frozen=True):
    """`size` in bytes. `chunks` raises `ContentUnavailable` at the first chunk that is not what was sealed; what came before it is."""

    size: int
    chunks: AsyncIterator[bytes]


class Snapshots:
    """Belongs to one event loop. The keyring and the ciphers work in `executor`, one step of an upload or download at a time.

    Every method raises `BlobStoreUnavailable`, `KeyringUnavailable` and `Misconfigured` (the store refuses us).
    """

    def __init__(self, blobs: BlobStore, keyring: Keyring, *, grace_s: float, executor: Executor | None = None) -> None:
        """`grace_s` is how long the sweeper lets an upload lie that nothing refers to."""
        self.blobs = blobs
        self._grace_s = grace_s
        self._secrets = SnapshotSecrets(keyring)
        self._executor = executor

    async def upload(
        self, place: Place, upload_id: str, chunks: AsyncIterable[bytes], *, sha256: bytes | None = None, bytes_max: int
    ) -> Uploaded:
        """Store what `chunks` gives. Whatever it raises goes on, and nothing is kept.

        Raises `Invalid`: request.too_large beyond `bytes_max`, request.invalid where `sha256` is not the digest of what came,
        request.idempotency_mismatch where the id stands for other bytes; `ContentUnavailable` (content.expired) where it stands for
        erased ones, or for some that nothing may come to refer to any more.
        """
        folder = UploadFolder(place, upload_id)
        hashed = _Hashed(bytes_max, sha256)
        if (receipt := await self._receipt(folder)) is not None:
            self._require_fresh(folder, receipt)
            async for chunk in _gathered(chunks):
                await self._in_thread(partial(hashed.add, chunk))
            hashed.check()
            return await self._repeated(folder, receipt, hashed)
        secret_id = new_secret_id()
        try:
            await _whole(self.blobs.create(folder.begun(secret_id), _MARK))
            secret = await self._in_thread(partial(self._secrets.create, place.workspace_id, secret_id))
            sealing = _Sealing(StreamSealer(secret, _stream_place(folder, secret_id)), hashed)
            await self.blobs.put(folder.sealed(secret_id), self._sealed(sealing, chunks))
        except BaseException:
            await _whole(self._undo(folder, secret_id))
            raise
        made = Receipt(secret_id, hashed.size, sealing.digest(), plaintext_tag(secret, hashed.digest()), now_us())
        stands = await _whole(self._settled(folder, made))
        return _uploaded(folder, made) if stands == made else await self._repeated(folder, stands, hashed)

    async def find(self, place: Place, upload_id: str) -> Uploaded:
        """An upload that may be referred to: the sweeper leaves it alone for as long again.

        Raises `NotFound`; `ContentUnavailable`: content.expired where it is too old, content.unreadable where its receipt is none.
        """
        folder = UploadFolder(place, upload_id)
        receipt = await self._receipt_of(folder)
        self._require_fresh(folder, receipt)
        return _uploaded(folder, receipt)

    async def download(self, place: Place, upload_id: str, *, digest: str) -> Download:
        """What an upload holds. `digest` (sha256:<hex>) is what the log says of its sealed bytes.

        Raises `NotFound`; `ContentUnavailable`: content.expired where its secret is destroyed, content.unreadable where it is
        another upload than expected.
        """
        folder = UploadFolder(place, upload_id)
        receipt = await self._receipt_of(folder)
        if receipt.digest != digest:
            raise ContentUnavailable(f"upload {upload_id}: {receipt.digest} was sealed, {digest} is expected")
        secret = await self._in_thread(partial(self._secrets.read, place.workspace_id, receipt.secret_id))
        opener = StreamOpener(secret, _stream_place(folder, receipt.secret_id))
        return Download(receipt.bytes, self._opened(folder, receipt, opener))

    async def discard(self, place: Place, upload_id: str) -> None:
        """Destroy every secret of an upload, then delete its bytes. Repeating it, also after a crash in between, is fine."""
        await self.discard_all([Discard(place, upload_id)])

    async def discard_session(self, place: Place) -> Discarded:
        """As `discard`, for all that a session has: its uploads, and the texts that its events claim."""
        return (await self.discard_all([Discard(place)]))[0]

    async def discard_all(self, discards: Sequence[Discard]) -> list[Discarded]:
        """As `discard`, for many at once: the secrets of all are destroyed in one step, before any byte goes. What there was of each."""

        async def destroy(secrets: Collection[tuple[str, str]]) -> None:
            await self._in_thread(partial(self._secrets.destroy, secrets))

        return await discard_all(self.blobs, destroy, discards)

    async def discard_attempt(self, folder: UploadFolder, secret_id: str) -> None:
        """Destroy the secret of one attempt at an upload, then delete its bytes, its mark last: while it stands, this is repeated."""
        await self._in_thread(partial(self._secrets.destroy, [(folder.place.workspace_id, secret_id)]))
        await self.blobs.delete(folder.sealed(secret_id))
        await self.blobs.delete(folder.begun(secret_id))

    async def receipt(self, folder: UploadFolder) -> Receipt | None:
        """None where the upload does not exist. Raises `ContentUnavailable`."""
        return await self._receipt(folder)

    async def _undo(self, folder: UploadFolder, secret_id: str) -> None:
        try:
            await self.discard_attempt(folder, secret_id)
        except Retriable as error:
            # Its mark stands, so the sweeper does it.
            _log.warning("upload_left_behind", upload_id=folder.upload_id, secret_id=secret_id, code=error.code)

    async def _settled(self, folder: UploadFolder, made: Receipt) -> Receipt:
        """The receipt that stands: this one, or one that was there before; this attempt is undone then."""
        try:
            created = await self.blobs.create(folder.receipt, encode_receipt(made))
        except BlobStoreUnavailable:
            # It may be there all the same: only reading it tells. Where nobody can tell, the mark stays for the sweeper.
            found = await self._receipt(folder)
            if found is None:
                await self._undo(folder, made.secret_id)
                raise
        else:
            found = made if created else await self._receipt_of(folder)
        if found != made:
            await self._undo(folder, made.secret_id)
        else:
            with suppress(BlobStoreUnavailable):
                await self.blobs.delete(folder.begun(made.secret_id))
        return found

    async def _repeated(self, folder: UploadFolder, receipt: Receipt, hashed: "_Hashed") -> Uploaded:
        secret = await self._in_thread(partial(self._secrets.read, folder.place.workspace_id, receipt.secret_id))
        if plaintext_tag(secret, hashed.digest()) != receipt.plaintext_tag:
            raise Invalid(f"upload {folder.upload_id} was made of other bytes", code="request.idempotency_mismatch")
        return _uploaded(folder, receipt)

    def _require_fresh(self, folder: UploadFolder, receipt: Receipt) -> None:
        if not is_fresh(receipt.made_at, now_us=now_us(), grace_s=self._grace_s):
            raise ContentUnavailable(f"upload {folder.upload_id}: too old to be named, upload it again", code="content.expired")

    async def _receipt(self, folder: UploadFolder) -> Receipt | None:
        try:
            return await self._receipt_of(folder)
        except NotFound:
            return None

    async def _receipt_of(self, folder: UploadFolder) -> Receipt:
        content = b""
        async for piece in self.blobs.get(folder.receipt):
            content += piece
            if len(content) > RECEIPT_BYTES_MAX:
                break
        return decode_receipt(content, folder.receipt)

    async def _sealed(self, sealing: "_Sealing", chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        async for chunk in _gathered(chunks):
            for sealed in await self._in_thread(partial(sealing.add, chunk)):
                yield sealed
        yield await self._in_thread(sealing.finish)

    async def _opened(self, folder: UploadFolder, receipt: Receipt, opener: StreamOpener) -> AsyncIterator[bytes]:
        opening = _Opening(opener)
        try:
            async for piece in _gathered(self.blobs.get(folder.sealed(receipt.secret_id))):
                for chunk in await self._in_thread(partial(opening.add, piece)):
                    yield chunk
        except NotFound:
            raise ContentUnavailable(f"upload {folder.upload_id}: its bytes are gone") from None
        last = await self._in_thread(opening.finish)
        if (opening.digest(), opening.size) != (receipt.digest, receipt.bytes):
            raise ContentUnavailable(f"upload {folder.upload_id}: its bytes are not those of its receipt")
        if last:
            yield last

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


@dataclass
class _Hashed:
    """What has come of an upload's plaintext."""

    bytes_max: int
    expected: bytes | None
    size: int = 0
    _sha256: Any = field(default_factory=hashlib.sha256)

    def add(self, chunk: bytes) -> None:
        """Raises `Invalid` (request.too_large)."""
        self.size += len(chunk)
        if self.size > self.bytes_max:
            raise Invalid(f"upload: at most {self.bytes_max} bytes", code="request.too_large")
        self._sha256.update(chunk)

    def digest(self) -> bytes:
        return bytes(self._sha256.digest())

    def check(self) -> None:
        """Raises `Invalid`."""
        if self.expected is not None and self.digest() != self.expected:
            raise Invalid("upload: its SHA-256 is another one than was said", code="request.invalid")


class _Sealing:
    """One upload on its way in: hashed on both sides of the seal."""

    def __init__(self, sealer: StreamSealer, hashed: _Hashed) -> None:
        self._sealer, self._hashed = sealer, hashed
        self._sha256 = hashlib.sha256()

    def add(self, chunk: bytes) -> list[bytes]:
        self._hashed.add(chunk)
        return [self._out(sealed) for sealed in self._sealer.update(chunk)]

    def finish(self) -> bytes:
        """Raises `Invalid` before the last chunk leaves, so that what is refused was never whole."""
        self._hashed.check()
        return self._out(self._sealer.finish())

    def digest(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"

    def _out(self, sealed: bytes) -> bytes:
        self._sha256.update(sealed)
        return sealed


class _Opening:
    """One upload on its way out."""

    def __init__(self, opener: StreamOpener) -> None:
        self._opener = opener
        self._sha256 = hashlib.sha256()
        self.size = 0

    def add(self, sealed: bytes) -> list[bytes]:
        self._sha256.update(sealed)
        return [self._counted(chunk) for chunk in self._opener.update(sealed)]

    def finish(self) -> bytes:
        return self._counted(self._opener.finish())

    def digest(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"

    def _counted(self, chunk: bytes) -> bytes:
        self.size += len(chunk)
        return chunk


async def _gathered(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of about a chunk, so that small ones do not pay for a thread each."""
    held = bytearray()
    async for chunk in chunks:
        for start in range(0, len(chunk), CHUNK_BYTES):
            held += chunk[start : start + CHUNK_BYTES]
            if len(held) >= CHUNK_BYTES:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


async def _whole(work: Coroutine[Any, Any, T]) -> T:
    """Carries out to its end what must not stop halfway; a caller who was cancelled meanwhile learns of it afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        raise


def _stream_place(folder: UploadFolder, secret_id: str) -> StreamPlace:
    return StreamPlace(folder.place.workspace_id, folder.place.session_id, f"{folder.upload_id}/{secret_id}", _PART)


def _uploaded(folder: UploadFolder, receipt: Receipt) -> Uploaded:
    return Uploaded(folder.upload_id, receipt.bytes, receipt.digest)
