"""What a download does where the store does not hold what was sealed."""

import asyncio
import shutil
from pathlib import Path

import pytest

from streams.custody.sealed_stream import CHUNK_BYTES, HEADER_BYTES, TAG_BYTES
from streams.errors import ContentUnavailable, NotFound
from streams.sealed_blobs import Place
from tests.support.sealed_blobs import MIB, PLACE, UPLOAD, Room, content_of

CONTENT = content_of(6 * MIB + 9)
SEALED_CHUNK = CHUNK_BYTES + TAG_BYTES
OTHER_UPLOAD = "snap_" + "4" * 32


def sealed_file(directory: Path, upload_id: str = UPLOAD, place: Place = PLACE) -> Path:
    folder = directory / place.workspace_id / place.session_id / upload_id
    (found,) = [path for path in folder.iterdir() if path.name != "receipt"]
    return found


async def read(room: Room, digest: str, *, place: Place = PLACE, upload_id: str = UPLOAD) -> tuple[bytes, ContentUnavailable | None]:
    """What is handed out, and why no more."""
    out = bytearray()
    try:
        download = await room.snapshots.download(place, upload_id, digest=digest)
        async for chunk in download.chunks:
            out += chunk
    except ContentUnavailable as error:
        return bytes(out), error
    return bytes(out), None


@pytest.mark.parametrize("at", [0, 5, 20, HEADER_BYTES, HEADER_BYTES + 3 * SEALED_CHUNK, HEADER_BYTES + 5 * SEALED_CHUNK - 1, -1])
def test_a_flipped_byte_is_found_at_its_chunk_and_only_what_comes_before_it_is_handed_out(room: Room, directory: Path, at: int) -> None:
    digest = asyncio.run(room.upload(CONTENT))
    path = sealed_file(directory)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 0x10
    path.write_bytes(damaged)
    out, error = asyncio.run(read(room, digest))
    assert error is not None
    assert error.code == "content.unreadable"
    whole = max(0, (at if at >= 0 else len(damaged) + at) - HEADER_BYTES) // SEALED_CHUNK * CHUNK_BYTES
    assert out == CONTENT[:whole]


@pytest.mark.parametrize("keep", [0, 10, HEADER_BYTES, HEADER_BYTES + SEALED_CHUNK, HEADER_BYTES + 6 * SEALED_CHUNK, -1])
def test_a_file_that_was_cut_is_found(room: Room, directory: Path, keep: int) -> None:
    digest = asyncio.run(room.upload(CONTENT))
    path = sealed_file(directory)
    path.write_bytes(path.read_bytes()[:keep])
    out, error = asyncio.run(read(room, digest))
    assert error is not None
    assert error.code == "content.unreadable"
    assert len(out) < len(CONTENT)
    assert CONTENT.startswith(out)


def test_the_bytes_of_another_upload_do_not_open_in_its_place(room: Room, directory: Path) -> None:
    async def go() -> None:
        digest = await room.upload(CONTENT)
        await room.upload(CONTENT, OTHER_UPLOAD)
        shutil.copyfile(sealed_file(directory, OTHER_UPLOAD), sealed_file(directory))
        out, error = await read(room, digest)
        assert (out, error is None) == (b"", False)

    asyncio.run(go())


def test_the_whole_folder_of_another_upload_is_another_digest_and_opens_nowhere_else(room: Room, directory: Path) -> None:
    elsewhere = Place(PLACE.workspace_id, "sess_" + "9" * 32)

    async def go() -> None:
        digest = await room.upload(CONTENT)
        other = await room.upload(CONTENT, place=elsewhere)
        source = sealed_file(directory, place=elsewhere).parent
        shutil.copytree(source, sealed_file(directory).parent, dirs_exist_ok=True)
        out, error = await read(room, digest)
        assert error is not None
        assert "is expected" in error.detail
        # Also who is told to expect it gets nothing: it is sealed for another session.
        assert (await read(room, other))[0] == out == b""

    asyncio.run(go())


def test_another_digest_than_the_log_tells_of_is_refused_before_the_first_byte(room: Room) -> None:
    async def go() -> None:
        await room.upload(CONTENT)
        with pytest.raises(ContentUnavailable):
            await room.snapshots.download(PLACE, UPLOAD, digest="sha256:" + "0" * 64)

    asyncio.run(go())


@pytest.mark.parametrize(
    "receipt", [b"", b"{}", b"\xff", b'{"secret_id":"../x","bytes":1,"digest":"d","plaintext_tag":"t","made_at":1}', b"x" * 9000]
)
def test_a_receipt_that_says_nothing_is_told_as_such(room: Room, directory: Path, receipt: bytes) -> None:
    async def go() -> None:
        digest = await room.upload(CONTENT)
        (sealed_file(directory).parent / "receipt").write_bytes(receipt)
        with pytest.raises(ContentUnavailable):
            await room.snapshots.download(PLACE, UPLOAD, digest=digest)
        with pytest.raises(ContentUnavailable):
            await room.upload(CONTENT)

    asyncio.run(go())


def test_bytes_that_are_gone_though_the_receipt_stands_are_told_as_unreadable(room: Room, directory: Path) -> None:
    digest = asyncio.run(room.upload(CONTENT))
    sealed_file(directory).unlink()
    out, error = asyncio.run(read(room, digest))
    assert (out, getattr(error, "code", None)) == (b"", "content.unreadable")


def test_what_was_never_uploaded_is_not_found(room: Room) -> None:
    async def go() -> None:
        with pytest.raises(NotFound):
            await room.snapshots.download(PLACE, UPLOAD, digest="sha256:" + "0" * 64)

    asyncio.run(go())


def test_without_its_secret_a_copy_of_every_byte_opens_for_nobody(room: Room, directory: Path, tmp_path: Path) -> None:
    async def go() -> None:
        digest = await room.upload(CONTENT)
        shutil.copytree(directory, tmp_path / "copy")
        await room.snapshots.discard(PLACE, UPLOAD)
        shutil.copytree(tmp_path / "copy", directory, dirs_exist_ok=True)
        with pytest.raises(ContentUnavailable) as told:
            await room.snapshots.download(PLACE, UPLOAD, digest=digest)
        assert told.value.code == "content.expired"
        with pytest.raises(ContentUnavailable):
            await room.upload(CONTENT)

    asyncio.run(go())


def test_a_download_that_is_left_in_the_middle_holds_nothing_up(room: Room) -> None:
    async def go() -> None:
        digest = await room.upload(CONTENT)
        download = await room.snapshots.download(PLACE, UPLOAD, digest=digest)
        assert download.size == len(CONTENT)
        assert await anext(download.chunks) == CONTENT[:MIB]
        assert await room.download(digest) == CONTENT

    asyncio.run(go())
