"""Patterns are told in words."""

from typing import Any

import msgspec
import pytest

from connectors.edge import fields as f
from connectors.edge.misfits import in_words


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (f.RunId, '"run_' + "Z" * 32 + '"', "Expected `str`: run_ and 32 small hex digits"),
        (f.Name, '"a b"', "Expected `str`: a name: a letter or digit, then letters, digits and any of ._:/@+-, 128 at most"),
        (f.Code, '"Late"', "Expected `str`: a code: a small letter, then small letters, digits and any of _.-, 64 at most"),
        (f.Hex32, '"' + "G" * 64 + '"', "Expected `str`: 64 small hex digits"),
        (f.Digest, '"md5"', "Expected `str`: a digest: 32 to 128 small hex digits, with `algorithm:` in front or without"),
        (f.RunId, "7", "Expected `str`, got `int`"),
    ],
)
def test_a_pattern_is_told_in_words(kind: Any, value: str, told: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(value, type=kind)
    assert in_words(str(refused.value)) == told


def test_the_place_stays() -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode('{"run_id": "run_' + "Z" * 32 + '"}', type=dict[str, f.RunId])
    assert in_words(str(refused.value)) == "Expected `str`: run_ and 32 small hex digits - at `$[...]`"
