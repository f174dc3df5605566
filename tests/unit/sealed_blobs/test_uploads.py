"""Uploads, from their first byte to their answer, and all the ways in which they do not get there."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path

import pytest

from streams.blobs import open_blob_store
from streams.clock import now_us
from streams.custody.keyring import SecretRef
from streams.errors import BlobStoreUnavailable, ContentUnavailable, Invalid, KeyringUnavailable, NotFound, StreamsError
from streams.sealed_blobs import Place, Uploaded
from streams.settings import Settings
from tests.support.object_server import CREDENTIALS, object_server
from tests.support.sealed_blobs import MIB, PLACE, UPLOAD, Room, content_of, pieces

OTHER_UPLOAD = "snap_" + "4" * 32


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def sealed_file(directory: Path) -> Path:
    (found,) = [path for path in files_below(directory) if path.name.startswith("snap_")]
    return found


@pytest.mark.parametrize("size", [0, 1, MIB, 3 * MIB, 5 * MIB + 17])
def test_what_was_uploaded_comes_back_and_its_digest_is_that_of_the_sealed_bytes(room: Room, directory: Path, size: int) -> None:
    content = content_of(size)

    async def go() -> None:
        uploaded = await room.snapshots.upload(
            PLACE, UPLOAD, pieces(content), sha256=hashlib.sha256(content).digest(), bytes_max=max(1, size)
        )
        sealed = hashlib.sha256(sealed_file(directory).read_bytes()).hexdigest()
        assert uploaded == Uploaded(UPLOAD, size, f"sha256:{sealed}")
        assert await room.snapshots.find(PLACE, UPLOAD) == uploaded
        assert await room.download(uploaded.digest) == content

    asyncio.run(go())


def test_nothing_of_an_upload_stands_in_clear_in_the_store(room: Room, directory: Path) -> None:
    content = b"a secret that must not be found" * 100_000
    asyncio.run(room.upload(content))
    stored = b"".join(path.read_bytes() for path in files_below(directory))
    assert b"a secret that must" not in stored
    assert hashlib.sha256(content).hexdigest().encode() not in stored
    assert len(files_below(directory)) == 2


def test_the_secret_is_durable_before_the_first_byte_and_its_mark_before_the_secret(
    room: Room, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    create, secrets = room.blobs.create, room.keyring.secrets

    async def noting_create(name: str, content: bytes) -> bool:
        seen.append(name.rpartition(".")[2][:5] if name.endswith(".begun") else "receipt")
        return await create(name, content)

    def noting_secrets(refs: Collection[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
        seen.append("secret")
        return secrets(refs, create=create)

    async def noting_pieces() -> AsyncIterator[bytes]:
        seen.append("first byte")
        yield b"1"

    monkeypatch.setattr(room.blobs, "create", noting_create)
    monkeypatch.setattr(room.keyring, "secrets", noting_secrets)
    asyncio.run(room.snapshots.upload(PLACE, UPLOAD, noting_pieces(), bytes_max=1))
    assert seen == ["begun", "secret", "first byte", "receipt"]


def test_the_same_upload_again_gets_the_same_answer_and_stores_nothing(room: Room, directory: Path) -> None:
    content = content_of(2 * MIB)

    async def go() -> None:
        first = await room.upload(content)
        before = {path: path.stat().st_mtime_ns for path in files_below(directory)}
        assert await room.upload(content) == first
        assert {path: path.stat().st_mtime_ns for path in files_below(directory)} == before
        assert len(room.keyring.made) == 1

    asyncio.run(go())


def test_other_bytes_under_the_same_id_are_refused_and_the_first_ones_stay(room: Room) -> None:
    async def go() -> None:
        digest = await room.upload(b"first")
        for other in (b"", b"firs", b"first ", content_of(2 * MIB)):
            with pytest.raises(Invalid) as refused:
                await room.upload(other)
            assert refused.value.code == "request.idempotency_mismatch"
        assert await room.download(digest) == b"first"

    asyncio.run(go())


def test_of_the_same_uploads_at_once_one_stands_and_all_get_its_answer(room: Room) -> None:
    content = content_of(3 * MIB)

    async def go() -> None:
        digests = await asyncio.gather(*(room.upload(content) for _ in range(5)))
        assert len(set(digests)) == 1
        assert len(await room.names()) == 2
        assert len(room.keyring.readable()) == 1
        assert await room.download(digests[0]) == content

    asyncio.run(go())


def test_of_other_uploads_at_once_under_one_id_one_stands_and_the_others_are_refused(room: Room) -> None:
    contents = [content_of(2 * MIB, seed) for seed in range(4)]

    async def go() -> None:
        answers = await asyncio.gather(*(room.upload(content) for content in contents), return_exceptions=True)
        ((winner, digest),) = [(at, answer) for at, answer in enumerate(answers) if isinstance(answer, str)]
        assert {getattr(answer, "code", None) for answer in answers if not isinstance(answer, str)} == {"request.idempotency_mismatch"}
        assert await room.download(digest) == contents[winner]
        assert len(await room.names()) == 2
        assert len(room.keyring.readable()) == 1

    asyncio.run(go())


def test_an_old_connection_that_breaks_takes_nothing_from_the_upload_that_was_repeated_meanwhile(room: Room) -> None:
    content = content_of(MIB)

    async def go() -> None:
        breaks = asyncio.Event()

        async def half_dead() -> AsyncIterator[bytes]:
            yield content[:1000]
            await breaks.wait()
            raise ConnectionResetError

        old = asyncio.create_task(room.snapshots.upload(PLACE, UPLOAD, half_dead(), bytes_max=MIB))
        await asyncio.sleep(0.05)
        digest = await room.upload(content)
        breaks.set()
        with pytest.raises(ConnectionResetError):
            await old
        assert await room.download(digest) == content
        assert len(await room.names()) == 2

    asyncio.run(go())


class Gone(Exception):
    """The client went away."""


_CONTENT = content_of(2 * MIB + 5)


@pytest.mark.parametrize(
    ("source", "sha256", "bytes_max", "error"),
    [
        (lambda: pieces(_CONTENT, then=Gone()), None, 10 * MIB, Gone),
        (lambda: pieces(b"", then=Gone()), None, 10 * MIB, Gone),
        (lambda: pieces(_CONTENT), bytes(32), 10 * MIB, Invalid),
        (lambda: pieces(_CONTENT), None, len(_CONTENT) - 1, Invalid),
        (lambda: pieces(_CONTENT), None, 1, Invalid),
        (lambda: pieces(b""), bytes(32), 0, Invalid),
    ],
    ids=["broke off", "broke off at once", "another digest", "a byte too large", "much too large", "another digest of nothing"],
)
def test_a_broken_upload_leaves_nothing_behind_and_can_be_made_again(
    room: Room,
    directory: Path,
    source: Callable[[], AsyncIterator[bytes]],
    sha256: bytes | None,
    bytes_max: int,
    error: type[Exception],
) -> None:
    async def go() -> None:
        with pytest.raises(error):
            await room.snapshots.upload(PLACE, UPLOAD, source(), sha256=sha256, bytes_max=bytes_max)
        assert files_below(directory) == []
        assert len(room.keyring.made) == 1
        assert room.keyring.readable() == []
        with pytest.raises(NotFound):
            await room.snapshots.find(PLACE, UPLOAD)
        assert await room.download(await room.upload(_CONTENT)) == _CONTENT

    asyncio.run(go())


def test_a_refusal_says_which_limit_or_what_did_not_fit(room: Room) -> None:
    async def refused(sha256: bytes | None, bytes_max: int) -> StreamsError:
        with pytest.raises(Invalid) as told:
            await room.snapshots.upload(PLACE, UPLOAD, pieces(b"12345"), sha256=sha256, bytes_max=bytes_max)
        return told.value

    async def go() -> None:
        too_large = await refused(None, 4)
        assert (too_large.code, too_large.detail) == ("request.too_large", "upload: at most 4 bytes")
        assert (await refused(bytes(32), 5)).code == "request.invalid"

    asyncio.run(go())


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_an_upload_that_is_cancelled_anywhere_is_there_whole_or_leaves_nothing(room: Room, directory: Path, steps: int) -> None:
    async def go() -> None:
        uploading = asyncio.create_task(room.upload(_CONTENT))
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        uploading.cancel()
        try:
            digest = await uploading
        except asyncio.CancelledError:
            names = await room.names()
            if names:
                digest = (await room.snapshots.find(PLACE, UPLOAD)).digest
            else:
                assert room.keyring.readable() == []
                assert files_below(directory) == []
                digest = await room.upload(_CONTENT)
        assert len(await room.names()) == 2
        assert await room.download(digest) == _CONTENT

    asyncio.run(go())


def test_without_a_keyring_nothing_is_stored(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(refs: Collection[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
        raise KeyringUnavailable("away")

    monkeypatch.setattr(room.keyring, "secrets", away)

    async def go() -> None:
        with pytest.raises(KeyringUnavailable):
            await room.upload(b"1")
        assert await room.names() == []

    asyncio.run(go())


@pytest.mark.parametrize("it_is_there", [True, False])
def test_where_the_store_is_away_at_the_last_step_reading_tells_what_came_of_it(
    room: Room, monkeypatch: pytest.MonkeyPatch, it_is_there: bool
) -> None:
    create = room.blobs.create

    async def silent(name: str, content: bytes) -> bool:
        if not name.endswith("receipt"):
            return await create(name, content)
        if it_is_there:
            await create(name, content)
        raise BlobStoreUnavailable("no answer")

    async def go() -> None:
        monkeypatch.setattr(room.blobs, "create", silent)
        if it_is_there:
            assert await room.download(await room.upload(b"1")) == b"1"
            return
        with pytest.raises(BlobStoreUnavailable):
            await room.upload(b"1")
        assert await room.names() == []
        assert room.keyring.readable() == []

    asyncio.run(go())


@pytest.mark.parametrize(
    ("place", "upload_id"),
    [
        (PLACE, "snap_../../../../etc"),
        (PLACE, "ckpt_" + "0" * 32),
        (Place(PLACE.workspace_id, ".."), UPLOAD),
        (Place("", PLACE.session_id), UPLOAD),
    ],
)
def test_what_is_no_id_never_becomes_a_path(room: Room, place: Place, upload_id: str) -> None:
    async def go() -> None:
        for call in (
            lambda: room.upload(b"1", upload_id, place=place),
            lambda: room.download("sha256:0", upload_id, place=place),
            lambda: room.snapshots.discard(place, upload_id),
        ):
            with pytest.raises(Invalid):
                await call()  # type: ignore[no-untyped-call]

    asyncio.run(go())


def test_throwing_an_upload_away_takes_its_secret_and_its_bytes_and_no_other_upload(room: Room, directory: Path) -> None:
    other_session = Place(PLACE.workspace_id, "sess_" + "9" * 32)

    async def go() -> None:
        await room.upload(b"1")
        kept = await room.upload(b"2", OTHER_UPLOAD)
        elsewhere = await room.upload(b"3", place=other_session)
        await room.snapshots.discard(PLACE, UPLOAD)
        await room.snapshots.discard(PLACE, UPLOAD)
        with pytest.raises(NotFound):
            await room.snapshots.find(PLACE, UPLOAD)
        assert len(room.keyring.readable()) == 2
        assert await room.download(kept, OTHER_UPLOAD) == b"2"
        await room.snapshots.discard_session(PLACE)
        assert await room.download(elsewhere, place=other_session) == b"3"
        assert len(room.keyring.readable()) == 1
        assert len(files_below(directory)) == 2

    asyncio.run(go())


def test_uploads_live_in_an_s3_bucket_as_they_do_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_server() as server:
        bucket = server.new_bucket()
        blobs = open_blob_store(Settings(blob_store=f"s3://{bucket}/x", blob_store_endpoint=server.url))
        room = Room(blobs, tmp_path / "keyring")
        content = content_of(20 * MIB + 1)

        async def go() -> None:
            with pytest.raises(Gone):
                await room.snapshots.upload(PLACE, UPLOAD, pieces(content, then=Gone()), bytes_max=len(content))
            assert await room.names() == []
            assert server.unfinished(bucket) == []
            digests = await asyncio.gather(room.upload(content), room.upload(content))
            assert len(set(digests)) == 1
            assert await room.download(digests[0]) == content
            assert len(await room.names()) == 2
            await room.snapshots.discard(PLACE, UPLOAD)
            assert await room.names() == []
            assert room.keyring.readable() == []

        asyncio.run(go())
        room.keyring.close()


def test_an_upload_that_the_sweeper_may_come_for_is_neither_named_nor_repeated(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(room.upload(b"same"))
    half_us = 86_400_000_000 // 2
    monkeypatch.setattr("streams.sealed_blobs.snapshots.now_us", lambda: now_us() + half_us - 60_000_000)
    assert asyncio.run(room.snapshots.find(PLACE, UPLOAD)).bytes == 4
    digest = asyncio.run(room.upload(b"same"))
    monkeypatch.setattr("streams.sealed_blobs.snapshots.now_us", lambda: now_us() + half_us)
    for asked in (room.snapshots.find(PLACE, UPLOAD), room.upload(b"same")):
        with pytest.raises(ContentUnavailable) as refused:
            asyncio.run(asked)
        assert refused.value.code == "content.expired"
    assert asyncio.run(room.download(digest)) == b"same"
