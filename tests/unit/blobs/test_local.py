"""A directory as a store of blobs."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.blobs import BlobStore, open_blob_store
from streams.blobs.local import LocalBlobs
from streams.errors import BlobStoreUnavailable, Misconfigured, NotFound
from streams.settings import Settings
from tests.contract.blob_contract import MIB, BlobContract, content_of, listed, stream
from tests.support.processes import environment

_ENDLESS = """
import asyncio, sys
from pathlib import Path
from streams.blobs.local import LocalBlobs

async def endless():
    sent = 0
    while True:
        yield bytes(1 << 20)
        sent += 1
        if sent == 20:
            print("under way", flush=True)

asyncio.run(LocalBlobs(Path(sys.argv[1])).put("a/b/c", endless()))
"""


def files_below(directory: Path) -> list[str]:
    return [str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()]


class TestLocalBlobs(BlobContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        self.directory = tmp_path / "blobs"
        return LocalBlobs(self.directory)

    def left_over(self) -> list[str]:
        return [name for name in files_below(self.directory) if "#" in name]


def test_a_file_and_every_folder_above_it_are_on_the_disk_before_a_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))

    monkeypatch.setattr(os, "fsync", fsync)
    blobs = LocalBlobs(tmp_path)
    asyncio.run(blobs.put("a/b/c", stream(b"1")))
    assert synced == ["a/b/c", "a/b", "a", "."]
    synced.clear()
    asyncio.run(blobs.create("a/b/d", b"2"))
    assert synced == ["a/b/d", "a/b", "a", "."]


def test_a_store_whose_disk_fails_says_so_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError("the disk is gone")

    blobs = LocalBlobs(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(BlobStoreUnavailable) as told, capture_logs() as logs:
        asyncio.run(blobs.put("a/b", stream(b"1")))
    assert told.value.detail == "the blob store does not answer as it should"
    assert [(each["event"], each["name"], each["error"]) for each in logs] == [("blob_store_failed", "a/b", "the disk is gone")]
    assert files_below(tmp_path) == []


def test_what_a_killed_process_was_putting_is_listed_under_its_name_and_can_be_deleted(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(tmp_path / "blobs")], stdout=subprocess.PIPE, env={**os.environ, **environment(settings)}
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"under way\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert files_below(tmp_path / "blobs") == ["a/b/c#1"]
    blobs = open_blob_store(settings)

    async def go() -> None:
        with pytest.raises(NotFound):
            await content_of(blobs, "a/b/c")
        (left,) = (await listed(blobs, "")).values()
        assert left.name == "a/b/c"
        assert left.bytes >= 8 * MIB
        await blobs.delete("a/b/c")
        assert await listed(blobs, "") == {}

    asyncio.run(go())
    assert files_below(tmp_path / "blobs") == []


def test_only_its_owner_may_look_into_the_directory(tmp_path: Path) -> None:
    LocalBlobs(tmp_path / "blobs")
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700


def test_the_setting_names_a_folder_or_the_data_folder_has_it(tmp_path: Path) -> None:
    async def put(settings: Settings) -> None:
        await open_blob_store(settings).create("a", b"1")

    asyncio.run(put(Settings(data_dir=tmp_path / "data")))
    asyncio.run(put(Settings(blob_store=f"file://{tmp_path}/else where")))
    assert sorted(files_below(tmp_path)) == ["data/blobs/a", "else where/a"]


@pytest.mark.parametrize("url", ["s3:bucket", "blobs", "gs://bucket/x", "file://"])
def test_what_names_no_store_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(Misconfigured, match="SESSION_STREAMS_BLOB_STORE"):
        open_blob_store(Settings(blob_store=url))


def test_readers_at_their_own_pace_do_not_hold_the_store_open(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)

    async def first_piece(pieces: AsyncIterator[bytes]) -> bytes:
        return await anext(pieces)

    async def go() -> None:
        await blobs.put("a", stream(*[bytes(MIB)] * 9))
        reading = blobs.get("a")
        assert len(await first_piece(reading)) == 4 * MIB
        await blobs.delete("a")
        with pytest.raises(NotFound):
            await first_piece(reading)

    asyncio.run(go())
