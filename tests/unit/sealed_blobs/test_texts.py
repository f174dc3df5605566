"""Texts that events claim, in the blob store."""

import asyncio
from collections.abc import AsyncIterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import structs

from streams.custody.claim_checks import ClaimCheck, LargeText
from streams.custody.days import day_end_us
from streams.errors import BlobStoreUnavailable, ContentUnavailable, Invalid
from streams.sealed_blobs import Discarded, LargeTexts, Swept, sweep
from streams.sealed_blobs.names import text_name
from tests.support.sealed_blobs import MIB, PLACE, Room, content_of

DAY = "2031-02-03"


def text(number: int = 0, size: int = 3 * MIB + 5) -> LargeText:
    content = content_of(size, number)
    claim = ClaimCheck(
        workspace_id=PLACE.workspace_id, session_id=PLACE.session_id, event_id=f"evt_{number:032x}", expiry_day=DAY,
        blob_id="ab" * 16, size=len(content), key=bytes(range(32)),
    )  # fmt: skip
    return LargeText(claim, content)


@pytest.fixture
def texts(room: Room) -> LargeTexts:
    return LargeTexts(room.blobs)


@pytest.mark.parametrize("size", [1, MIB, 9 * MIB + 1])
def test_a_text_comes_back_and_stands_nowhere_in_clear(room: Room, texts: LargeTexts, directory: Path, size: int) -> None:
    one = text(size=size)

    async def go() -> None:
        await texts.put([one])
        assert await texts.fetch(one.claim) == one.json_text
        assert await room.names() == [text_name(one.claim)]

    asyncio.run(go())
    assert one.json_text[:64] not in (directory / text_name(one.claim)).read_bytes() or size == 1


def test_a_thread_may_ask_while_the_loop_goes_on(texts: LargeTexts) -> None:
    some = [text(number) for number in range(8)]

    async def go() -> None:
        await texts.put(some)
        loop = asyncio.get_running_loop()
        fetch = texts.fetch_from_threads(loop)
        with ThreadPoolExecutor(8) as pool:
            fetched = await asyncio.gather(*(loop.run_in_executor(pool, fetch, one.claim) for one in some))
        assert fetched == [one.json_text for one in some]

    asyncio.run(go())


def test_what_is_damaged_cut_gone_or_of_another_event_is_unreadable(texts: LargeTexts, directory: Path) -> None:
    one, other = text(0), text(1)

    async def unreadable(claim: ClaimCheck) -> None:
        with pytest.raises(ContentUnavailable) as told:
            await texts.fetch(claim)
        assert told.value.code == "content.unreadable"

    async def go() -> None:
        await texts.put([one, other])
        path = directory / text_name(one.claim)
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:-20], b"", whole[:100] + b"\0" + whole[101:], (directory / text_name(other.claim)).read_bytes()):
            path.write_bytes(damaged)
            await unreadable(one.claim)
        path.write_bytes(whole)
        await unreadable(structs.replace(one.claim, size=one.claim.size - 1))
        await unreadable(structs.replace(one.claim, size=one.claim.size + 1))
        await unreadable(structs.replace(one.claim, key=bytes(32)))
        assert await texts.fetch(one.claim) == one.json_text
        path.unlink()
        await unreadable(one.claim)

    asyncio.run(go())


def test_of_several_texts_all_are_stored_or_none(room: Room, texts: LargeTexts, monkeypatch: pytest.MonkeyPatch) -> None:
    put, some = room.blobs.put, [text(number) for number in range(3)]

    async def failing(name: str, chunks: AsyncIterable[bytes]) -> None:
        if name == text_name(some[2].claim):
            raise BlobStoreUnavailable("away")
        await put(name, chunks)

    monkeypatch.setattr(room.blobs, "put", failing)

    async def go() -> None:
        with pytest.raises(BlobStoreUnavailable):
            await texts.put(some)
        assert await room.names() == []

    asyncio.run(go())


def test_dropped_texts_are_gone_and_dropping_again_is_fine(room: Room, texts: LargeTexts) -> None:
    async def go() -> None:
        await texts.put([text(0), text(1)])
        await texts.drop([text(0)])
        await texts.drop([text(0)])
        assert await room.names() == [text_name(text(1).claim)]

    asyncio.run(go())


def test_where_the_store_is_away_dropping_is_left_to_the_day(room: Room, texts: LargeTexts, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(name: str) -> None:
        raise BlobStoreUnavailable("away")

    monkeypatch.setattr(room.blobs, "delete", away)
    asyncio.run(texts.drop([text()]))


def test_a_text_goes_when_its_day_is_over_and_the_grace_and_the_days_secret_too(room: Room, texts: LargeTexts) -> None:
    gone, asked = set[tuple[str, str]](), list[tuple[str, str]]()

    def day_is_gone(*place: str) -> bool:
        asked.append((place[0], place[1]))
        return place in gone

    async def swept_at(now_us: int) -> Swept:
        return await sweep(room.snapshots, lambda *_: False, day_is_gone, grace_s=3600, now_us=now_us)

    async def go() -> None:
        await texts.put([text(0), text(1)])
        assert await swept_at(day_end_us(DAY) + 3601 * 1_000_000) == Swept()
        # One question a day, however many texts it has.
        assert asked == [(PLACE.workspace_id, DAY)]
        gone.add((PLACE.workspace_id, DAY))
        assert await swept_at(day_end_us(DAY) + 3600 * 1_000_000) == Swept()
        assert await swept_at(day_end_us(DAY) + 3601 * 1_000_000) == Swept(texts=2)
        assert await room.names() == []

    asyncio.run(go())


def test_throwing_away_all_of_a_session_takes_its_texts(room: Room, texts: LargeTexts) -> None:
    async def go() -> None:
        await texts.put([text()])
        assert await room.snapshots.discard_session(PLACE) == Discarded(uploads=0, texts=1)
        assert await room.names() == []

    asyncio.run(go())


@pytest.mark.parametrize("change", [{"event_id": "../x"}, {"expiry_day": ".."}, {"session_id": "sess_1"}, {"blob_id": "x"}])
def test_what_is_no_id_never_becomes_a_path(texts: LargeTexts, change: dict[str, str]) -> None:
    one = LargeText(structs.replace(text().claim, **change), b"1")
    with pytest.raises(Invalid):
        asyncio.run(texts.put([one]))
