"""Bodies that are cut, doubled, too large, or no base64."""

import json
import tracemalloc
from collections import deque

import pytest

from streams.capsules.checks import Arrived
from streams.capsules.digests import digest_of_bytes
from streams.capsules.splitting import Malformed, Splitter, TooLarge


def split(body: bytes, *, content_max: int = 1000, piece: int | None = None) -> tuple[bytes, Arrived, bytes]:
    splitter = Splitter(content_max=content_max, skeleton_max=300)
    size = piece or len(body)
    content = b"".join([splitter.feed(body[at : at + size]) for at in range(0, len(body), size)])
    return *splitter.finish(), content


def body_of(text: str) -> bytes:
    return b'{"transfer": {"a": [1, {"content_base64": "kept"}], "content_base64": "%b"}}' % text.encode()


@pytest.mark.parametrize("text", ["QR==", "QQ=", "QQ==QQ==", "Q", "QQ==\\n", "Q Q=", "-_-_", "\u0430\u0430\u0430\u0430", "Q=Q="])
@pytest.mark.parametrize("piece", [None, 1, 3])
def test_what_is_no_canonical_base64_is_told_as_such(text: str, piece: int | None) -> None:
    _, arrived, _ = split(body_of(text), piece=piece)

    assert not arrived.decoded


def test_only_the_content_of_the_transfer_itself_is_taken_out() -> None:
    skeleton, arrived, content = split(body_of("QUI="))

    assert json.loads(skeleton) == {"transfer": {"a": [1, {"content_base64": "kept"}], "content_base64": ""}}
    assert (content, arrived) == (b"AB", Arrived(2, digest_of_bytes(b"AB")))


def test_its_name_may_be_written_with_escapes() -> None:
    skeleton, _, content = split(b'{"tr\\u0061nsfer":{"content\\u005fbase64":"QUI="}}')

    assert (json.loads(skeleton), content) == ({"transfer": {"content_base64": ""}}, b"AB")


def test_content_that_is_no_text_is_left_to_the_parser() -> None:
    assert json.loads(split(b'{"transfer":{"content_base64":17}}')[0]) == {"transfer": {"content_base64": 17}}


@pytest.mark.parametrize(
    "body",
    [
        b'{"transfer":{"content_base64":"QUI=","content_base64":"QUM="}}',
        b'{"transfer":{"content_base64":"QUI=","content_b\\u0061se64":1}}',
        b'{"a":1,"transfer":{"x":{"b":1,"b":2}}}',
        b'{"transfer":{},"transfer":{}}',
        b'{"transfer":{"content_base64":"QU',
        b'{"transfer":{"content_base64":"QU\\qI="}}',
        b'{"transfer":{"content_base64":"QUI=\n"}}',
        b'{"transfer":{"con',
        b"}}",
    ],
)
@pytest.mark.parametrize("piece", [None, 1, 5])
def test_doubled_members_and_bodies_that_break_off_are_malformed(body: bytes, piece: int | None) -> None:
    with pytest.raises(Malformed):
        split(body, piece=piece)


@pytest.mark.parametrize("text", ["QUJD" * 400, "!" * 2000])
def test_too_much_content_is_refused_before_it_is_whole(text: str) -> None:
    splitter = Splitter(content_max=1000, skeleton_max=300)

    with pytest.raises(TooLarge):
        splitter.feed(body_of(text)[:1700])


def test_a_structure_that_grows_without_end_is_refused() -> None:
    for body in (b'{"a":"' + b"x" * 400, b"[" * 400, b'{"a":' + b"1" * 400):
        with pytest.raises(TooLarge):
            split(body, piece=50)


def test_content_is_not_held_while_it_comes() -> None:
    splitter = Splitter(content_max=10_000_000, skeleton_max=300)
    splitter.feed(b'{"transfer":{"content_base64":"')

    for _ in range(100):
        assert len(splitter.feed(b"QUJD" * 1000)) == 3000
        assert len(splitter._held) + len(splitter._skeleton) < 100


def test_a_text_of_the_structure_is_not_waited_for_for_ever() -> None:
    for body in (b'{"a":"' + b"x" * 20_000, b'{"a":' + b"1" * 20_000, b'{"a":' + b" " * 20_000):
        pieces = (body[at : at + 1] for at in range(len(body)))
        with pytest.raises(TooLarge):
            deque(map(Splitter(content_max=1000, skeleton_max=1_000_000).feed, pieces), maxlen=0)


@pytest.mark.parametrize("body", [b'{"transfer":{"content_base64":"' + b"QUJD" * 250_000, b'{"a":"' + b"x" * 15_000])
def test_a_text_that_has_no_end_yet_costs_no_more_than_itself(body: bytes) -> None:
    splitter = Splitter(content_max=10_000_000, skeleton_max=1_000_000)
    tracemalloc.start()
    try:
        splitter.feed(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 6 * len(body)
