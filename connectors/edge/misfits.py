"""What a value was expected to be, in words: msgspec tells a pattern as a regular expression, which few read."""

import re
from typing import Any, Final, get_args

from msgspec import Meta

from connectors.edge import fields as f
from streams.session.ids import PREFIXES

_TOLD: Final = "matching regex "
_IDENTIFIER: Final = re.compile(r"""['"]\^([a-z]+)_\[0-9a-f\]\{32\}\$['"]""")


def _pattern(kind: Any) -> str:
    return repr(next(each.pattern for each in get_args(kind) if isinstance(each, Meta) and each.pattern is not None))


_WORDS: Final = {
    _pattern(f.Name): "a name: a letter or digit, then letters, digits and any of ._:/@+-, 128 at most",
    _pattern(f.Code): "a code: a small letter, then small letters, digits and any of _.-, 64 at most",
    _pattern(f.Digest): "a digest: 32 to 128 small hex digits, with `algorithm:` in front or without",
    _pattern(f.Hex32): "64 small hex digits",
    _pattern(f.AnyId): f"an identifier: {', '.join(sorted(PREFIXES))}, then _ and 32 small hex digits",
}


def in_words(message: str) -> str:
    """The message of a `msgspec.ValidationError`, with the pattern that it tells, if any, in words where there are some."""
    head, told, rest = message.partition(_TOLD)
    if not told:
        return message
    if named := _IDENTIFIER.match(rest):
        return f"{head.rstrip()}: {named[1]}_ and 32 small hex digits{rest[named.end() :]}"
    for pattern, words in _WORDS.items():
        if rest.startswith(pattern):
            return f"{head.rstrip()}: {words}{rest[len(pattern) :]}"
    return message
