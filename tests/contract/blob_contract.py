"""What every store of blobs promises, whatever it is made of. A test class inherits it and says how to open one."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

import pytest

from streams.blobs import Blob, BlobStore
from streams.clock import now_us
from streams.errors import NotFound

MIB = 1024 * 1024


class Broke(Exception):
    """The source of a stream went away."""


async def stream(*chunks: bytes, then: BaseException | None = None) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if then is not None:
        raise then


async def content_of(blobs: BlobStore, name: str) -> bytes:
    return b"".join([piece async for piece in blobs.get(name)])


async def listed(blobs: BlobStore, prefix: str) -> dict[str, Blob]:
    return {blob.name: blob async for blob in blobs.walk(prefix)}


class BlobContract(ABC):
    @abstractmethod
    @pytest.fixture
    def blobs(self) -> BlobStore:
        """An empty store."""

    @abstractmethod
    def left_over(self) -> list[str]:
        """What the store holds beside its blobs: parts of uploads, files that are not whole."""

    @pytest.mark.parametrize("size", [0, 1, 4 * MIB, 4 * MIB + 1, 21 * MIB + 7])
    def test_what_was_put_comes_back_whatever_its_size(self, blobs: BlobStore, size: int) -> None:
        content = os.urandom(size)

        async def go() -> None:
            await blobs.put("a/b/c", stream(*(content[start : start + MIB] for start in range(0, size, MIB))))
            assert await content_of(blobs, "a/b/c") == content
            assert {name: blob.bytes for name, blob in (await listed(blobs, "")).items()} == {"a/b/c": size}

        asyncio.run(go())
        assert self.left_over() == []

    def test_what_is_not_there_is_not_found(self, blobs: BlobStore) -> None:
        async def go() -> None:
            with pytest.raises(NotFound):
                await content_of(blobs, "a/none")

        asyncio.run(go())

    def test_of_several_who_create_a_name_one_is_told_so_and_its_content_stays(self, blobs: BlobStore) -> None:
        async def go() -> None:
            contents = [str(number).encode() for number in range(5)]
            told = await asyncio.gather(*(blobs.create("a/name", content) for content in contents))
            assert sorted(told) == [False] * 4 + [True]
            assert await content_of(blobs, "a/name") == contents[told.index(True)]
            assert not await blobs.create("a/name", b"later")

        asyncio.run(go())
        assert self.left_over() == []

    def test_deleting_is_the_end_of_it_and_may_be_repeated(self, blobs: BlobStore) -> None:
        async def go() -> None:
            await blobs.create("a/one", b"1")
            await blobs.create("a/two", b"2")
            await blobs.delete("a/one")
            await blobs.delete("a/one")
            await blobs.delete("never/was")
            assert set(await listed(blobs, "")) == {"a/two"}
            assert await blobs.create("a/one", b"again")

        asyncio.run(go())

    def test_a_listing_goes_by_whole_parts_of_a_name_and_says_how_old_each_is(self, blobs: BlobStore) -> None:
        async def go() -> None:
            for name in ("a/b/c", "a/b/d", "a/bc", "x"):
                await blobs.create(name, name.encode())
            found = await listed(blobs, "a/b")
            assert {name: blob.bytes for name, blob in found.items()} == {"a/b/c": 5, "a/b/d": 5}
            # An object store may tell whole seconds only.
            assert all(abs(now_us() - blob.stored_at) < 60_000_000 for blob in found.values())
            assert len(await listed(blobs, "")) == 4
            assert await listed(blobs, "nothing") == {}

        asyncio.run(go())

    def test_more_names_than_a_page_of_a_listing(self, blobs: BlobStore) -> None:
        async def go() -> None:
            names = {f"many/{number:04}" for number in range(1100)}
            for name in names:
                await blobs.create(name, b"")
            assert set(await listed(blobs, "many")) == names

        asyncio.run(go())

    @pytest.mark.parametrize("chunks", [0, 1, 20])
    def test_a_stream_whose_source_breaks_leaves_nothing_and_its_error_goes_on(self, blobs: BlobStore, chunks: int) -> None:
        async def go() -> None:
            with pytest.raises(Broke):
                await blobs.put("a/b", stream(*[bytes(MIB)] * chunks, then=Broke()))
            assert await listed(blobs, "") == {}

        asyncio.run(go())
        assert self.left_over() == []

    def test_an_error_of_the_source_keeps_its_name_though_the_store_has_such_errors_too(self, blobs: BlobStore) -> None:
        async def go() -> None:
            with pytest.raises(ConnectionResetError):
                await blobs.put("a/b", stream(bytes(MIB), then=ConnectionResetError()))

        asyncio.run(go())

    @pytest.mark.parametrize("chunks", [0, 3, 30])
    def test_a_cancelled_put_leaves_nothing(self, blobs: BlobStore, chunks: int) -> None:
        async def go() -> None:
            waits = asyncio.Event()

            async def source() -> AsyncIterator[bytes]:
                for _ in range(chunks):
                    yield bytes(MIB)
                waits.set()
                await asyncio.Event().wait()

            putting = asyncio.create_task(blobs.put("a/b", source()))
            await waits.wait()
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            assert await listed(blobs, "") == {}

        asyncio.run(go())
        assert self.left_over() == []

    def test_streams_that_are_put_at_once_do_not_mix(self, blobs: BlobStore) -> None:
        async def go() -> None:
            contents = {f"at/once/{number}": os.urandom(MIB) * 3 for number in range(6)}
            await asyncio.gather(*(blobs.put(name, stream(content, content)) for name, content in contents.items()))
            for name, content in contents.items():
                assert await content_of(blobs, name) == content * 2

        asyncio.run(go())

    def test_nothing_is_seen_of_a_stream_before_it_is_whole(self, blobs: BlobStore) -> None:
        async def go() -> None:
            seen: list[str] = []

            async def source() -> AsyncIterator[bytes]:
                for _ in range(20):
                    yield bytes(MIB)
                with pytest.raises(NotFound):
                    await content_of(blobs, "a/b")
                seen.append("looked")
                yield b"end"

            await blobs.put("a/b", source())
            assert seen == ["looked"]
            assert len(await content_of(blobs, "a/b")) == 20 * MIB + 3

        asyncio.run(go())
