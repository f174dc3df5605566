"""Uploads on a temporary folder, with a keyring that remembers whose secrets it was asked for."""

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import TypeVar

from streams.blobs import BlobStore
from streams.custody.keyring import Keyring, PseudonymKind, SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.sealed_blobs import Place, Snapshots

T = TypeVar("T")

MIB = 1024 * 1024
WORKSPACE = "ws_" + "1" * 32
PLACE = Place(WORKSPACE, "sess_" + "2" * 32)
UPLOAD = "snap_" + "3" * 32


class NotingKeyring:
    """A keyring that notes which secrets it made."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self.made: list[SecretRef] = []

    def identity_key(self, workspace_id: str) -> bytes:
        return self._keyring.identity_key(workspace_id)

    def pseudonym(self, workspace_id: str, kind: PseudonymKind, outside_id: str, *, create: bool) -> str | None:
        return self._keyring.pseudonym(workspace_id, kind, outside_id, create=create)

    def secrets(self, refs: Collection[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
        found = self._keyring.secrets(refs, create=create)
        if create:
            self.made.extend(found)
        return found

    def destroyed(self, refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        return self._keyring.destroyed(refs)

    def destroy(self, refs: Collection[SecretRef]) -> None:
        self._keyring.destroy(refs)

    def close(self) -> None:
        self._keyring.close()

    def readable(self) -> list[SecretRef]:
        return list(self._keyring.secrets(self.made, create=False))


class Room:
    """A blob store, a keyring and what puts uploads into them."""

    def __init__(self, blobs: BlobStore, keyring_directory: Path) -> None:
        self.blobs = blobs
        self.keyring = NotingKeyring(open_local_keyring(keyring_directory))
        self.snapshots = Snapshots(blobs, self.keyring, grace_s=86_400)

    async def upload(self, content: bytes, upload_id: str = UPLOAD, *, place: Place = PLACE) -> str:
        """The digest."""
        return (await self.snapshots.upload(place, upload_id, pieces(content), bytes_max=len(content))).digest

    async def download(self, digest: str, upload_id: str = UPLOAD, *, place: Place = PLACE) -> bytes:
        download = await self.snapshots.download(place, upload_id, digest=digest)
        return b"".join([chunk async for chunk in download.chunks])

    async def names(self) -> list[str]:
        return sorted([blob.name async for blob in self.blobs.walk("")])


async def pieces(content: bytes, *, size: int = 65_536, then: BaseException | None = None) -> AsyncIterator[bytes]:
    """As a body comes: in small pieces, with the loop's other work in between."""
    for start in range(0, len(content), size):
        await asyncio.sleep(0)
        yield content[start : start + size]
    if then is not None:
        raise then


def content_of(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{seed}/{size}").randbytes(size)
