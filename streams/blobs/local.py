"""A directory as a store of blobs: with the fsyncs that obstore leaves out, and an eye for what a killed process has left.

obstore writes a stream beside its name (`name#1`) and renames it when it is whole. So a process that was killed leaves a file that
obstore neither lists nor deletes: this class does both.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from obstore.store import LocalStore

from streams.blobs.blobs import Blob
from streams.blobs.object_store import ObjectStoreBlobs
from streams.errors import BlobStoreUnavailable
from streams.files import sync_directory

_ASIDE: Final = "#"


class LocalBlobs(ObjectStoreBlobs):
    """A `BlobStore` below `directory`, which only its owner may look into."""

    part_bytes = 1024 * 1024

    def __init__(self, directory: Path) -> None:
        """Raises `BlobStoreUnavailable` where the directory cannot be made."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BlobStoreUnavailable(f"blob store {directory}: {error}") from error
        self._directory = directory.resolve()
        super().__init__(LocalStore(self._directory, automatic_cleanup=True))

    async def delete(self, name: str) -> None:
        await super().delete(name)
        await asyncio.to_thread(self._delete_aside, name)

    async def walk(self, prefix: str) -> AsyncIterator[Blob]:
        async for blob in super().walk(prefix):
            yield blob
        for blob in await asyncio.to_thread(self._aside, prefix):
            yield blob

    async def _settle(self, name: str) -> None:
        await asyncio.to_thread(self._sync, name)

    def _sync(self, name: str) -> None:
        path = self._directory / name
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # Its folders may be as new as it is.
        while path != self._directory:
            path = path.parent
            sync_directory(path)

    def _delete_aside(self, name: str) -> None:
        path = self._directory / name
        # Whoever deletes the last file of a folder takes the folder along.
        with suppress(FileNotFoundError):
            for entry in os.scandir(path.parent):
                if entry.name.startswith(f"{path.name}{_ASIDE}"):
                    Path(entry).unlink(missing_ok=True)

    def _aside(self, prefix: str) -> list[Blob]:
        found: list[Blob] = []
        for folder, _, files in os.walk(self._directory / prefix):
            for file in files:
                if _ASIDE not in file:
                    continue
                path = Path(folder, file)
                with suppress(FileNotFoundError):
                    status = path.stat()
                    name = str(path.relative_to(self._directory)).partition(_ASIDE)[0]
                    found.append(Blob(name, status.st_size, status.st_mtime_ns // 1000))
        return found
