"""Throws away what nothing refers to: uploads that no checkpoint names, what is left of those that broke off, and texts whose
day is over and has no secret any more. (A text whose event never came about waits for its day, too: it is nobody's, and nobody can ask
for it.)

For each: its secret first, then its bytes, then what names the secret. So a sweep that stops anywhere is taken up by the next,
and two at once do no harm. Nothing younger than the grace is touched: an upload under way is younger, and one that a
checkpoint may still come to name is, too: it is named within half of the grace (`Snapshots.find`), or not at all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog
from msgspec import Struct

from streams.blobs import Blob, BlobStore
from streams.custody.days import day_end_us
from streams.errors import ContentUnavailable
from streams.sealed_blobs.names import UploadFolder, UploadName, parse_upload_name, text_day
from streams.sealed_blobs.snapshots import Snapshots

IsReferenced = Callable[[str, str], bool]
"""Asked with a session's id and an upload's: whether a checkpoint that still counts names it."""
DayIsGone = Callable[[str, str], bool]
"""Asked, in a thread, with a workspace and a day: whether nothing of that day can be opened any more. The clock alone never says so."""

_log = structlog.get_logger(__name__)


class Swept(Struct):
    """How many there were of each."""

    uploads: int = 0
    attempts: int = 0
    """That broke off, or lost against another one."""
    texts: int = 0


async def sweep(snapshots: Snapshots, is_referenced: IsReferenced, day_is_gone: DayIsGone, *, grace_s: float, now_us: int) -> Swept:
    """One pass over the whole store. Raises `BlobStoreUnavailable`, `KeyringUnavailable`: the next pass goes on."""
    swept = Swept()
    before = now_us - int(grace_s * 1_000_000)
    async for folder, found in _folders(snapshots):
        old = [name for blob, name in found if blob.stored_at < before]
        if old and not _is_plain([name for _, name in found]):
            swept.attempts += await _sweep_attempts(snapshots, folder, old)
        if any(name.secret_id is None for name in old) and not is_referenced(folder.place.session_id, folder.upload_id):
            await snapshots.discard(folder.place, folder.upload_id)
            swept.uploads += 1
    swept.texts = await _sweep_texts(snapshots.blobs, day_is_gone, before)
    return swept


def _is_plain(names: list[UploadName]) -> bool:
    """Whether this is what one attempt leaves that came through: the receipt need not be read then."""
    return len(names) == 2 and {name.secret_id is None for name in names} == {True, False} and not any(name.is_begun for name in names)


async def _sweep_attempts(snapshots: Snapshots, folder: UploadFolder, old: list[UploadName]) -> int:
    """How many attempts were thrown away that did not make the upload."""
    try:
        receipt = await snapshots.receipt(folder)
    except ContentUnavailable as error:
        # Which attempt counts cannot be told, so none is thrown away while somebody may refer to it.
        _log.warning("receipt_unreadable", upload_id=folder.upload_id, detail=error.detail)
        return 0
    thrown = 0
    for attempt in sorted({name.secret_id for name in old if name.secret_id is not None}):
        if receipt is None or receipt.secret_id != attempt:
            await snapshots.discard_attempt(folder, attempt)
            thrown += 1
        elif any(name.is_begun and name.secret_id == attempt for name in old):
            # Its process ended between the receipt and the end of the mark.
            await snapshots.blobs.delete(folder.begun(attempt))
    return thrown


async def _sweep_texts(blobs: BlobStore, day_is_gone: DayIsGone, before: int) -> int:
    """How many texts were thrown away whose day ended before a moment, and whose secret is gone."""
    thrown, known = 0, dict[tuple[str, str], bool]()
    async for blob in blobs.walk(""):
        day = text_day(blob.name)
        if day is None or day_end_us(day) >= before:
            continue
        place = (blob.name.partition("/")[0], day)
        if place not in known:
            known[place] = await asyncio.to_thread(day_is_gone, *place)
        if known[place]:
            await blobs.delete(blob.name)
            thrown += 1
    return thrown


async def _folders(snapshots: Snapshots) -> AsyncIterator[tuple[UploadFolder, list[tuple[Blob, UploadName]]]]:
    """What lies in the store, upload by upload. One that comes in two parts does no harm: its receipt is read, not looked for."""
    folder: UploadFolder | None = None
    found: list[tuple[Blob, UploadName]] = []
    async for blob in snapshots.blobs.walk(""):
        name = parse_upload_name(blob.name)
        if name is None:
            continue
        if folder is not None and name.folder != folder:
            yield folder, found
            found = []
        folder = name.folder
        found.append((blob, name))
    if folder is not None:
        yield folder, found
