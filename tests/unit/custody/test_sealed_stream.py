"""Streams sealed chunk by chunk: what was changed anywhere is found, and nothing unproven is handed out."""

import os
from dataclasses import dataclass

import pytest

from streams.custody.sealed_stream import (
    CHUNK_BYTES,
    HEADER_BYTES,
    TAG_BYTES,
    StreamOpener,
    StreamPlace,
    StreamSealer,
)
from streams.errors import ContentUnavailable

SECRET = bytes(range(32))
PLACE = StreamPlace("ws_" + "1" * 32, "sess_" + "2" * 32, "snap_" + "3" * 32, "upload")
SEALED_CHUNK = CHUNK_BYTES + TAG_BYTES


def sealed(plaintext: bytes, *, place: StreamPlace = PLACE, secret: bytes = SECRET, piece: int = 300_000) -> bytes:
    sealer = StreamSealer(secret, place)
    made = [part for start in range(0, len(plaintext), piece) for part in sealer.update(plaintext[start : start + piece])]
    return b"".join([*made, sealer.finish()])


@dataclass
class Opened:
    plaintext: bytes
    error: ContentUnavailable | None


def opened(stream: bytes, *, place: StreamPlace = PLACE, secret: bytes = SECRET, piece: int = 700_001) -> Opened:
    """What is handed out before an error, if there is one."""
    opener, out = StreamOpener(secret, place), bytearray()
    try:
        for start in range(0, len(stream), piece):
            for part in opener.update(stream[start : start + piece]):
                out += part
        out += opener.finish()
    except ContentUnavailable as error:
        return Opened(bytes(out), error)
    return Opened(bytes(out), None)


def sealed_bytes_of(plaintext_bytes: int) -> int:
    """How long a stream of so many bytes is when it is sealed."""
    return HEADER_BYTES + plaintext_bytes + TAG_BYTES * max(1, -(-plaintext_bytes // CHUNK_BYTES))


def chunks_of(stream: bytes) -> list[bytes]:
    body = stream[HEADER_BYTES:]
    return [body[start : start + SEALED_CHUNK] for start in range(0, len(body), SEALED_CHUNK)]


@pytest.fixture(scope="module")
def plaintext() -> bytes:
    return os.urandom(3 * CHUNK_BYTES + 5)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 9])
@pytest.mark.parametrize("piece", [65_536, CHUNK_BYTES, 5 * CHUNK_BYTES])
def test_what_was_sealed_opens_whatever_its_size_and_its_pieces(size: int, piece: int) -> None:
    plaintext = os.urandom(size)
    stream = sealed(plaintext, piece=piece)
    assert len(stream) == sealed_bytes_of(size)
    assert opened(stream, piece=piece) == Opened(plaintext, None)


def test_single_bytes_are_pieces_too() -> None:
    stream = sealed(b"some text", piece=1)
    assert opened(stream, piece=1) == Opened(b"some text", None)


def test_twice_the_same_plaintext_under_one_secret_gives_nothing_alike() -> None:
    one, other = sealed(bytes(64)), sealed(bytes(64))
    assert one[HEADER_BYTES:] != other[HEADER_BYTES:]


def test_a_flipped_bit_is_found_wherever_it_is_and_only_whole_chunks_before_it_are_handed_out(plaintext: bytes) -> None:
    stream = sealed(plaintext)
    places = [0, 1, 16, 17, 23, 24, HEADER_BYTES + SEALED_CHUNK - 1, HEADER_BYTES + SEALED_CHUNK, len(stream) - 22, len(stream) - 1]
    for at in places:
        damaged = bytearray(stream)
        damaged[at] ^= 1
        found = opened(bytes(damaged))
        assert found.error is not None
        assert found.error.code == "content.unreadable"
        whole = max(0, at - HEADER_BYTES) // SEALED_CHUNK * CHUNK_BYTES
        assert found.plaintext == plaintext[:whole], at


@pytest.mark.parametrize("cut", [1, 5 + TAG_BYTES, 5 + TAG_BYTES + 1, 5 + TAG_BYTES + SEALED_CHUNK, SEALED_CHUNK * 3])
def test_a_stream_that_was_cut_is_found_also_between_two_chunks(plaintext: bytes, cut: int) -> None:
    found = opened(sealed(plaintext)[:-cut])
    assert found.error is not None
    assert plaintext.startswith(found.plaintext)


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + TAG_BYTES - 1])
def test_less_than_the_shortest_stream_is_no_stream(size: int) -> None:
    found = opened(sealed(b"")[:size])
    assert (found.plaintext, found.error is None) == (b"", False)


@pytest.mark.parametrize(
    "order", [(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 1, 2, 3), (0, 2, 3), (3, 0, 1, 2), (0, 1, 2, 3, 3), (0, 1, 2, 2)], ids=str
)
def test_chunks_that_change_places_come_twice_or_are_left_out_are_found(plaintext: bytes, order: tuple[int, ...]) -> None:
    stream = sealed(plaintext)
    chunks = chunks_of(stream)
    found = opened(stream[:HEADER_BYTES] + b"".join(chunks[number] for number in order))
    assert found.error is not None
    # The last chunk is never handed out where something follows it.
    in_place = min(3, next(at for at, number in enumerate((*order, -1)) if at != number))
    assert found.plaintext == plaintext[: in_place * CHUNK_BYTES]


def test_a_chunk_of_another_stream_of_the_same_secret_and_place_is_found(plaintext: bytes) -> None:
    one, other = sealed(plaintext), sealed(plaintext)
    mixed = one[:HEADER_BYTES] + b"".join([chunks_of(one)[0], chunks_of(other)[1], *chunks_of(one)[2:]])
    found = opened(mixed)
    assert found.error is not None
    assert found.plaintext == plaintext[:CHUNK_BYTES]


def test_a_stream_that_goes_on_behind_its_end_is_found(plaintext: bytes) -> None:
    stream = sealed(plaintext)
    for more in (b"\0", bytes(TAG_BYTES), sealed(b"more"), bytes(2 * SEALED_CHUNK)):
        assert opened(stream + more).error is not None


@pytest.mark.parametrize(
    "other",
    [
        StreamPlace("ws_" + "9" * 32, PLACE.session_id, PLACE.item_id, PLACE.part),
        StreamPlace(PLACE.workspace_id, "sess_" + "9" * 32, PLACE.item_id, PLACE.part),
        StreamPlace(PLACE.workspace_id, PLACE.session_id, "snap_" + "9" * 32, PLACE.part),
        StreamPlace(PLACE.workspace_id, PLACE.session_id, PLACE.item_id, "native"),
    ],
    ids=["workspace", "session", "item", "part"],
)
def test_a_stream_opens_only_in_its_place(other: StreamPlace) -> None:
    found = opened(sealed(b"text"), place=other)
    assert (found.plaintext, found.error is None) == (b"", False)


def test_a_stream_opens_with_its_secret_only() -> None:
    assert opened(sealed(b"text"), secret=bytes(32)).error is not None


def test_an_empty_last_chunk_behind_full_ones_is_none_of_ours() -> None:
    sealer = StreamSealer(SECRET, PLACE)
    made = sealer._chunk(bytes(CHUNK_BYTES), last=False) + sealer._chunk(b"", last=True)
    assert opened(made).error is not None
