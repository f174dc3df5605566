"""Lines become records, broken lines say why, and an unfinished line waits."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sources.records import (
    MAX_RECORD_BYTES,
    Broken,
    Line,
    LineSplitter,
    Record,
    SourceChanged,
    digest_of,
    has_lone_surrogate,
    read_record,
    read_tail,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def lines_of(*pieces: bytes) -> list[Line]:
    splitter = LineSplitter()
    found = [line for piece in pieces for line in splitter.feed(piece)]
    tail = splitter.tail()
    return found + ([tail] if tail else [])


def read(text: bytes) -> Record | Broken:
    (line,) = lines_of(text + b"\n")
    return read_record(line)


def test_an_index_is_that_of_the_physical_line_so_blank_lines_count() -> None:
    assert [(line.index, line.text) for line in lines_of(b'{"a":1}\n\n  \r\n {"b":2} \r\n3')] == [
        (0, b'{"a":1}'),
        (3, b'{"b":2}'),
        (4, b"3"),
    ]


def test_a_byte_order_mark_does_not_belong_to_the_first_record() -> None:
    assert lines_of(b"\xef\xbb\xbf{}\n")[0].text == b"{}"


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(data: bytes, cuts: list[int]) -> None:
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(ends)]
    assert lines_of(*pieces) == lines_of(data)


@given(JSON)
def test_any_json_is_a_record_and_keeps_its_bytes(value: object) -> None:
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    record = read(text)
    assert isinstance(record, Record)
    assert record.text == text
    assert record.digest == digest_of(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":', "malformed_json"),
        (b"{'a': 1}", "malformed_json"),
        (b'{"a": NaN}', "malformed_json"),
        (b'{"a": 1e999, "b": Infinity}', "malformed_json"),
        (b'{"a":1} {"b":2}', "malformed_json"),
        (b"\x00", "malformed_json"),
        (b'"\xff"', "not_utf8"),
        (b'"\xed\xa0\x80"', "not_utf8"),
        (b'{"a": "\\ud800 and more"}', "lone_surrogate"),
        (b'{"a": "\\udc00 and more"}', "lone_surrogate"),
        (b'{"a": 1e999, "b": "\\udc00 and more"}', "lone_surrogate"),
        (b"[" * 99 + b"]" * 99, "too_deep"),
        (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
        (b'"' + b"x" * MAX_RECORD_BYTES + b'"', "too_large"),
    ],
)
def test_a_broken_line_says_why(text: bytes, reason: str) -> None:
    found = read(text)
    assert isinstance(found, Broken)
    assert (found.reason, found.index) == (reason, 0)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": "\\ud83d\\ude00"}',
        b'{"a": "\\\\ud800"}',
        b'{"a": "\\u0000"}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": 0.1000000000000000055511151231257827021181583404541015625}',
        b"[" * 98 + b"]" * 98,
    ],
)
def test_unusual_json_is_a_record_all_the_same(text: bytes) -> None:
    found = read(text)
    assert isinstance(found, Record)
    assert found.text == text


@given(st.text(alphabet=st.characters(codec=None), max_size=20))
def test_a_lone_surrogate_is_told_from_a_pair(text: str) -> None:
    """Judged by what Python's own encoder says of the parsed text."""
    raw = json.dumps(text).encode()
    decoded = json.loads(raw)
    lone = any(0xD800 <= ord(character) < 0xE000 for character in decoded)
    assert has_lone_surrogate(raw) == lone


def test_of_a_line_without_end_only_the_head_is_held() -> None:
    splitter = LineSplitter()
    for _ in range(20):
        assert list(splitter.feed(b"x" * (1 << 20))) == []
    (line,) = splitter.feed(b"\n")
    assert line.byte_count == 20 << 20
    assert len(line.text) == 1 << 20
    assert line.digest == digest_of(b"x" * (20 << 20))
    (after,) = splitter.feed(b"{}\n")
    assert (after.index, after.text) == (1, b"{}")


def test_an_unfinished_line_is_a_record_only_if_it_is_a_whole_object() -> None:
    whole, cut, number = (lines_of(text)[0] for text in (b'{"a":1}', b'{"a":1', b"42"))
    assert isinstance(read_tail(whole), Record)
    assert read_tail(cut) is None
    assert read_tail(number) is None


def test_what_comes_after_a_taken_tail_is_the_next_line() -> None:
    splitter = LineSplitter()
    list(splitter.feed(b'{"a":1}'))
    splitter.take_tail()
    assert splitter.tail() is None
    assert [(line.index, line.text) for line in splitter.feed(b' \r\n{"b":2}\n')] == [(1, b'{"b":2}')]


def test_a_taken_tail_that_goes_on_is_noticed() -> None:
    splitter = LineSplitter()
    list(splitter.feed(b'{"a":1}'))
    splitter.take_tail()
    with pytest.raises(SourceChanged, match="line 1"):
        list(splitter.feed(b"2\n"))
