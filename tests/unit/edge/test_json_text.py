"""JSON text before it is parsed: how deep it nests, and surrogates that are no character. The parser is the reference."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.edge.json_text import check_text, depth_exceeds
from streams.errors import Invalid

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(JSON, st.integers(0, 6), st.booleans())
def test_depth_is_that_of_the_parsed_value(value: object, limit: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert depth_exceeds(text, limit) == (depth_of(value) > limit)


@given(st.text(alphabet='[]{}"\\ab', max_size=40), st.integers(0, 3))
def test_brackets_within_strings_do_not_count(text: str, limit: int) -> None:
    assert not depth_exceeds(json.dumps(text).encode(), limit)


@given(st.text(alphabet=st.sampled_from("a\\u\ud800\udc00\U0001f600"), max_size=8))
def test_lone_surrogates_are_found_and_pairs_and_backslashes_are_not(text: str) -> None:
    """The reference is what a strict decoder makes of the same text."""
    encoded = json.dumps(text).encode()
    decoded = json.loads(encoded)
    lone = any(0xD800 <= ord(character) <= 0xDFFF for character in decoded)
    if lone:
        with pytest.raises(Invalid):
            check_text(encoded, 10)
    else:
        check_text(encoded, 10)


def test_a_surrogate_in_a_field_name_is_told_by_its_object() -> None:
    with pytest.raises(Invalid, match=r"\$\.a \(a field name\)"):
        check_text(b'{"a":{"\\udfff":1}}', 10)


def test_the_path_of_a_surrogate_tells_no_field_name_that_is_not_a_plain_word() -> None:
    with pytest.raises(Invalid) as refused:
        check_text(b'{"Mia Li":"\\ud800"}', 10)
    assert "Mia" not in refused.value.detail
