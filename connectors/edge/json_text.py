"""JSON text, looked at before it is parsed: its encoding, its depth, surrogates that are no character; then read into records.

What it holds stands in no message: line, field and limit only.
"""

import json
import re
from typing import Final, TypeVar

import msgspec

from connectors.edge.misfits import in_words
from streams.errors import Invalid

T = TypeVar("T")

_BRACKETS: Final = b'"[]{}'
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(sorted(set(range(256)) - set(_BRACKETS)))
_ESCAPE: Final = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


def parse(text: bytes, decoder: "msgspec.json.Decoder[T]", depth_max: int | None, place: str = "") -> T:
    """Decodes JSON of a known shape. `depth_max` is None for text that was checked already.

    Raises `Invalid`: request.malformed where it is no JSON, else request.invalid.
    """
    if depth_max is not None:
        check_text(text, depth_max, place)
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise Invalid(f"{place}{in_words(str(error))}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"{place}{error}", code="request.malformed") from error


def depth_exceeds(text: bytes, limit: int) -> bool:
    """Whether arrays and objects nest deeper than `limit` levels, or some do not match."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Objects and arrays look alike from here on; which closes which is the parser's.
    outside = b"".join(text.translate(_ALIKE, _OTHERS).split(b'"')[::2])
    for _ in range(limit):
        # Takes away the innermost level of every branch at once.
        peeled = outside.replace(b"[]", b"")
        if len(peeled) == len(outside):
            break
        outside = peeled
    return bool(outside)


def check_text(text: bytes, depth_max: int, place: str = "") -> None:
    """That `text` is UTF-8, free of lone surrogates and not too deep; the rest is the parser's.

    Raises `Invalid`: request.malformed, or request.invalid naming the field that holds the surrogate.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{place}not UTF-8 at byte {error.start}", code="request.malformed") from error
    if depth_exceeds(text, depth_max):
        raise Invalid(f"{place}nested deeper than {depth_max} levels, or brackets that do not match", code="request.malformed")
    if (b"\\ud" in text or b"\\uD" in text) and any(match[1] for match in _ESCAPE.finditer(text)):
        raise Invalid(f"{place}{_surrogate_path(text)}: a lone surrogate is no character")


def _surrogate_path(text: bytes) -> str:
    """Where the first lone surrogate stands. Only field names that are plain ASCII words are told."""
    try:
        waiting: list[tuple[str, object]] = [("$", json.loads(text))]
    except (ValueError, RecursionError):
        return "$"
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str) and _is_lone(value):
            return path
        if isinstance(value, dict):
            if any(_is_lone(name) for name in value):
                return f"{path} (a field name)"
            named = [
                (f"{path}.{name}" if re.fullmatch(r"[A-Za-z0-9_]{1,40}", name) else f"{path}[...]", item) for name, item in value.items()
            ]
            waiting.extend(reversed(named))
        elif isinstance(value, list):
            waiting.extend(reversed([(f"{path}[{index}]", item) for index, item in enumerate(value)]))
    return "$"


def _is_lone(text: str) -> bool:
    return any(0xD800 <= ord(character) <= 0xDFFF for character in text)
