"""What structural fields may hold: every field of text has a rule."""

import types
from typing import get_args, get_type_hints

import pytest

from streams.session import vocabulary
from streams.session.events import FAMILIES, TYPES, family_of


def test_every_attribute_of_text_says_what_it_may_hold() -> None:
    for family in FAMILIES.values():
        texts = {
            name
            for name, hint in get_type_hints(family).items()
            if hint is str or (isinstance(hint, types.UnionType) and str in get_args(hint))
        }
        assert {name for name, _ in vocabulary.ATTRIBUTES[family]} == texts, family.__name__


def test_every_type_belongs_to_a_family() -> None:
    assert {family_of(event_type) for event_type in TYPES} == set(FAMILIES)


@pytest.mark.parametrize("text", ["rate_limited", "a", "lease_lapsed", "provider.timeout", "exit-1"])
def test_a_code_is_a_word_for_machines(text: str) -> None:
    assert vocabulary.CODE(text)


@pytest.mark.parametrize("text", ["", "Mia", "two words", "x" * 65, "1st", "ünicode", "a\n"])
def test_a_sentence_is_no_code(text: str) -> None:
    assert not vocabulary.CODE(text)


@pytest.mark.parametrize(
    "text", ["claude-opus-4-5-20251101", "mcp__linear-server__create_issue", "text/plain", "image@sha256:ab", "1.0.3+b", "x" * 128]
)
def test_a_name_is_what_software_calls_itself(text: str) -> None:
    assert vocabulary.NAME(text)


@pytest.mark.parametrize(
    "text", ["", "a\nb", "a\n", "a\x00b", "x" * 129, "\ud800", "Mia Li", "<synthetic>", "-x", "mía", "call mia.li 555"]
)
def test_a_sentence_or_a_name_as_people_write_it_is_no_name_of_software(text: str) -> None:
    assert not vocabulary.NAME(text)


@pytest.mark.parametrize("text", ["sha256:" + "0" * 64, "a" * 32, "blake2b-512:" + "f" * 128])
def test_a_digest_is_hex_with_its_algorithm_in_front(text: str) -> None:
    assert vocabulary.DIGEST(text)


@pytest.mark.parametrize("text", ["", "abc", "A" * 64, "0" * 129, "sha256:", "mia_li_3668"])
def test_other_text_is_no_digest(text: str) -> None:
    assert not vocabulary.DIGEST(text)


@pytest.mark.parametrize(("text", "is_day"), [("2027-01-02", True), ("2027-13-02", False), ("2027-1-2", False), ("2027-01-32", False)])
def test_a_day_is_written_in_full(text: str, is_day: bool) -> None:
    assert bool(vocabulary.DAY(text)) is is_day
