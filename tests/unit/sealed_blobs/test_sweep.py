"""What nothing refers to goes, and nothing else does."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.blobs import open_blob_store
from streams.blobs.local import LocalBlobs
from streams.clock import now_us
from streams.errors import BlobStoreUnavailable, ContentUnavailable, NotFound
from streams.sealed_blobs import Place, Swept, sweep
from streams.sealed_blobs.receipt import is_fresh
from streams.settings import Settings
from tests.support.object_server import CREDENTIALS, object_server
from tests.support.processes import environment
from tests.support.sealed_blobs import MIB, PLACE, UPLOAD, Room, content_of

GRACE_S = 3600.0
LATER_US = int(2 * GRACE_S * 1_000_000)
KEPT = "snap_" + "5" * 32


def gone(workspace_id: str, day: str) -> bool:
    """No day counts any more."""
    return True


async def pass_over(room: Room, *referenced: str, later_us: int = LATER_US) -> Swept:
    return await sweep(
        room.snapshots, lambda session_id, upload_id: upload_id in referenced, gone, grace_s=GRACE_S, now_us=now_us() + later_us
    )


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_an_upload_that_nothing_names_goes_with_its_secret_and_one_that_a_checkpoint_names_stays(room: Room, directory: Path) -> None:
    async def go() -> None:
        asked: list[tuple[str, str]] = []

        def is_referenced(session_id: str, upload_id: str) -> bool:
            asked.append((session_id, upload_id))
            return upload_id == KEPT

        await room.upload(b"1")
        kept = await room.upload(b"2", KEPT)
        swept = await sweep(room.snapshots, is_referenced, gone, grace_s=GRACE_S, now_us=now_us() + LATER_US)
        assert swept == Swept(uploads=1)
        assert sorted(asked) == [(PLACE.session_id, UPLOAD), (PLACE.session_id, KEPT)]
        with pytest.raises(NotFound):
            await room.snapshots.find(PLACE, UPLOAD)
        assert len(room.keyring.readable()) == 1
        assert await room.download(kept, KEPT) == b"2"
        assert await pass_over(room, KEPT) == Swept()

    asyncio.run(go())
    assert len(files_below(directory)) == 2


def test_nothing_goes_within_the_grace(room: Room) -> None:
    async def go() -> None:
        digest = await room.upload(b"1")
        assert await pass_over(room, later_us=int(GRACE_S * 900_000)) == Swept()
        assert await room.download(digest) == b"1"

    asyncio.run(go())


def test_what_may_still_be_named_is_younger_than_half_the_grace() -> None:
    assert is_fresh(10, now_us=10 + 29_999_999, grace_s=60)
    assert not is_fresh(10, now_us=10 + 30_000_000, grace_s=60)


def test_an_upload_under_way_is_left_alone(room: Room) -> None:
    content = content_of(2 * MIB)

    async def go() -> None:
        swept: list[Swept] = []

        async def source() -> AsyncIterator[bytes]:
            yield content[:MIB]
            swept.append(await pass_over(room, later_us=0))
            yield content[MIB:]

        digest = (await room.snapshots.upload(PLACE, UPLOAD, source(), bytes_max=2 * MIB)).digest
        assert swept == [Swept()]
        assert await room.download(digest) == content

    asyncio.run(go())


def kill_in_the_middle(settings: Settings, **variables: str) -> None:
    """A process whose upload is well under way."""
    arguments = [sys.executable, "-m", "tests.support.upload_process", "endless", "0", "1000"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env={**os.environ, **environment(settings), **variables})
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"under way\n"
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_process_left_in_a_bucket_opens_for_nobody_though_the_bucket_keeps_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a rule of the bucket's own takes parts of uploads away that nobody ended."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_server() as server:
        bucket = server.new_bucket()
        settings = Settings(data_dir=tmp_path, blob_store=f"s3://{bucket}", blob_store_endpoint=server.url)
        kill_in_the_middle(settings, **CREDENTIALS)
        room = Room(open_blob_store(settings), tmp_path / "keyring")

        async def go() -> None:
            (mark,) = await room.names()
            secret_id = mark.rpartition("/")[2].removesuffix(".begun")
            assert len(room.snapshots._secrets.read(PLACE.workspace_id, secret_id)) == 32
            assert server.unfinished(bucket) == [mark.removesuffix(".begun")]
            assert (await pass_over(room)).attempts == 1
            assert await room.names() == []
            with pytest.raises(ContentUnavailable, match="destroyed"):
                room.snapshots._secrets.read(PLACE.workspace_id, secret_id)

        asyncio.run(go())
        room.keyring.close()


def test_what_a_killed_process_left_of_its_upload_goes_and_its_secret_with_it(tmp_path: Path) -> None:
    kill_in_the_middle(Settings(data_dir=tmp_path))
    room = Room(LocalBlobs(tmp_path / "blobs"), tmp_path / "keyring")
    left = files_below(tmp_path / "blobs")
    assert sorted(path.name.partition("_")[0] + path.suffix for path in left) == ["snap", "snap.begun"]
    (secret_id,) = [path.stem for path in left if path.suffix == ".begun"]
    secrets = room.snapshots._secrets
    assert len(secrets.read(PLACE.workspace_id, secret_id)) == 32

    async def go() -> None:
        assert await pass_over(room, UPLOAD, later_us=0) == Swept()
        with pytest.raises(NotFound):
            await room.snapshots.find(PLACE, UPLOAD)
        assert (await pass_over(room)).attempts == 1
        assert await room.names() == []
        assert await pass_over(room) == Swept()
        # The next upload under the same id is made as if nothing had been.
        assert await room.download(await room.upload(b"again")) == b"again"

    asyncio.run(go())
    with pytest.raises(ContentUnavailable, match="destroyed"):
        secrets.read(PLACE.workspace_id, secret_id)
    room.keyring.close()


def test_of_two_attempts_the_one_that_made_the_upload_stays(room: Room, directory: Path) -> None:
    async def go() -> None:
        digest = await room.upload(b"1")
        folder = directory / PLACE.workspace_id / PLACE.session_id / UPLOAD
        (winner,) = [path.name for path in folder.iterdir() if path.name != "receipt"]
        # One that was killed before it could undo itself, and the winner's own mark.
        loser = "snap_" + "7" * 32
        for name in (loser, f"{loser}.begun", f"{winner}.begun"):
            (folder / name).write_bytes(b"x")
        assert await pass_over(room, UPLOAD) == Swept(attempts=1)
        assert sorted(path.name for path in folder.iterdir()) == sorted(["receipt", winner])
        assert await room.download(digest) == b"1"

    asyncio.run(go())


def test_where_a_receipt_cannot_be_read_nothing_that_is_named_is_thrown_away(room: Room, directory: Path) -> None:
    async def go() -> None:
        await room.upload(b"1")
        folder = directory / PLACE.workspace_id / PLACE.session_id / UPLOAD
        (folder / "receipt").write_bytes(b"{")
        (folder / f"snap_{'7' * 32}.begun").write_bytes(b"x")
        assert await pass_over(room, UPLOAD) == Swept()
        assert len(room.keyring.readable()) == 1
        assert (await pass_over(room)).uploads == 1
        assert room.keyring.readable() == []

    asyncio.run(go())
    assert files_below(directory) == []


@pytest.mark.parametrize("calls", range(4))
def test_a_sweep_that_stops_anywhere_is_taken_up_by_the_next(room: Room, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    left = calls
    delete = room.blobs.delete

    async def failing(name: str) -> None:
        nonlocal left
        if left == 0:
            raise BlobStoreUnavailable("away")
        left -= 1
        await delete(name)

    async def go() -> None:
        for number in range(2):
            await room.upload(b"1", f"snap_{number:032x}")
        with monkeypatch.context() as patched:
            patched.setattr(room.blobs, "delete", failing)
            with pytest.raises(BlobStoreUnavailable):
                await pass_over(room)
        await pass_over(room)
        assert await room.names() == []
        assert room.keyring.readable() == []

    asyncio.run(go())


def test_two_sweeps_at_once_do_no_harm(room: Room) -> None:
    async def go() -> None:
        for number in range(8):
            await room.upload(b"1", f"snap_{number:032x}")
        kept = await room.upload(b"2", KEPT)
        await asyncio.gather(*(pass_over(room, KEPT) for _ in range(3)))
        assert len(await room.names()) == 2
        assert await room.download(kept, KEPT) == b"2"

    asyncio.run(go())


def test_what_is_no_upload_of_ours_is_left_alone(room: Room, directory: Path) -> None:
    async def go() -> None:
        for name in ("readme", f"{PLACE.workspace_id}/{PLACE.session_id}/other/x", f"{PLACE.workspace_id}/notes/receipt"):
            assert await room.blobs.create(name, b"x")
        assert await pass_over(room) == Swept()
        assert len(await room.names()) == 3

    asyncio.run(go())


def test_uploads_of_many_sessions_are_each_asked_about(room: Room) -> None:
    async def go() -> None:
        places = [Place(PLACE.workspace_id, f"sess_{number:032x}") for number in range(5)]
        for place in places:
            await room.upload(b"1", place=place)
        kept = places[3].session_id
        swept = await sweep(room.snapshots, lambda session_id, _: session_id == kept, gone, grace_s=GRACE_S, now_us=now_us() + LATER_US)
        assert swept == Swept(uploads=4)
        assert {name.split("/")[1] for name in await room.names()} == {kept}

    asyncio.run(go())
