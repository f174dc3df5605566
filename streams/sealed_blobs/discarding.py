"""Throwing away uploads and texts for ever: of many at once, the secrets of all in one step, and then the bytes.

Repeating it, also after a crash anywhere, is fine: names alone tell which secrets there are, and what is destroyed stays so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from msgspec import Struct

from streams.blobs import BlobStore
from streams.custody.snapshot_secrets import new_secret_id
from streams.sealed_blobs.names import Place, UploadFolder, parse_upload_name, text_day

_CALLS_AT_ONCE: Final = 16
"""Of the store."""
_NAMES_AT_ONCE: Final = 1000
"""So that not each of very many has a task of its own."""


class Discard(Struct, frozen=True):
    """What is to go: one upload, or all that a session has."""

    place: Place
    upload_id: str | None = None

    @property
    def prefix(self) -> str:
        """Below which it lies. Raises `Invalid` where an id is none."""
        name = UploadFolder(self.place, self.upload_id or new_secret_id()).name
        return name if self.upload_id is not None else name.rpartition("/")[0]


class Discarded(Struct, frozen=True):
    """How many there were."""

    uploads: int
    texts: int


async def discard_all(
    blobs: BlobStore, destroy: Callable[[Collection[tuple[str, str]]], Awaitable[None]], discards: Sequence[Discard]
) -> list[Discarded]:
    """What there was of each. `destroy` is given workspaces and ids of secrets. Raises what it and the store raise."""
    at_once = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def listed(discard: Discard) -> list[str]:
        async with at_once:
            return [blob.name async for blob in blobs.walk(discard.prefix)]

    async def deleted(name: str) -> None:
        async with at_once:
            await blobs.delete(name)

    found = await asyncio.gather(*[listed(discard) for discard in discards])
    names = [name for of_one in found for name in of_one]
    parsed = [parse_upload_name(name) for name in names]
    secrets = {(each.folder.place.workspace_id, each.secret_id) for each in parsed if each is not None and each.secret_id is not None}
    if secrets:
        await destroy(secrets)
    for start in range(0, len(names), _NAMES_AT_ONCE):
        await asyncio.gather(*[deleted(name) for name in names[start : start + _NAMES_AT_ONCE]])
    return [_counted(of_one) for of_one in found]


def _counted(names: Sequence[str]) -> Discarded:
    parsed = [parse_upload_name(name) for name in names]
    uploads = {each.folder.upload_id for each in parsed if each is not None}
    return Discarded(len(uploads), sum(text_day(name) is not None for name in names))
