"""JSON that every reader takes for the same: RFC 8785 has a form for it, and every number in it is a whole one."""

import json
from collections import Counter
from typing import Any, Final

import rfc8785

_DEPTH_MAX: Final = 64
"""Of brackets in each other. What a reader can take is another number for each; nothing in a bundle has ten."""


class Unreadable(ValueError):
    """A text that says nothing. `twice`: it is JSON, and a member is given twice."""

    def __init__(self, detail: str, *, twice: bool = False) -> None:
        super().__init__(detail)
        self.detail, self.twice = detail, twice


def parsed(text: bytes) -> tuple[Any, bytes]:
    """What a text says, and the one spelling of that. Raises `Unreadable`."""
    twice: list[str] = []
    fractions: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice.append(Counter(name for name, _ in pairs).most_common(1)[0][0])
        return made

    try:
        told = json.loads(text.decode(), object_pairs_hook=members, parse_float=fractions.append, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Unreadable("no JSON in UTF-8") from None
    if twice:
        raise Unreadable(f"{twice[0][:40]!a} is given twice", twice=True)
    if fractions or not _is_flat(told, _DEPTH_MAX):
        raise Unreadable("a number with a fraction or an exponent, or brackets nested too deep")
    try:
        return told, rfc8785.dumps(told)
    except ValueError:
        # A whole number beyond 2^53 - 1, or half of a character.
        raise Unreadable("RFC 8785 has no form for it") from None


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _is_flat(value: object, left: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    return left > 0 and all(_is_flat(each, left - 1) for each in (value.values() if isinstance(value, dict) else value))
