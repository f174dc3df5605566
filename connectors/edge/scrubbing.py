"""Looks for credentials in what is to leave in a capsule: the detectors of detect-secrets, and the forms of our own tokens.

- Looked at are the bytes as they are and every text that their JSON holds, names of members included, as whoever reads it gets it:
  an escape hides nothing. A text that itself holds escapes (JSON within a text) is read once more for each layer of them.
- Detectors of mere randomness are left out: a harness's own ids are random, and are what a capsule is for. So is that of IP addresses,
  which are no credentials.
- All of it takes some seconds for 256 KiB, so there is a bound, and nothing above it is vouched for; nor is what is escaped more
  often than `LAYERS_MAX` times.
- What is found is told as a kind, never as text.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin

SCANNED_BYTES_MAX: Final = 256 * 1024
LAYERS_MAX: Final = 4
TOO_LARGE: Final = "too_large"
TOO_DEEP: Final = "escaped_too_often"
_NOT_ASKED: Final = frozenset({"Base64 High Entropy String", "Hex High Entropy String", "Public IP (ipv4)"})
# Not `\b`: a letter of another script, or what an escape leaves, is no part of a token.
_OWN: Final = {
    "session_streams_key": re.compile(r"(?<![A-Za-z0-9])(?:sks|titen_sk)_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    "anthropic_key": re.compile(r"(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_-]{20,}"),
    "bearer": re.compile(r"(?<![A-Za-z0-9])bearer\s+[A-Za-z0-9._~+/-]{20,}", re.IGNORECASE),
}  # fmt: skip
_RAW_FILE, _TEXT_FILE = "continuation.json", "continuation.yaml"
"""Detectors of words such as `password` go by a file's ending: in JSON a value stands in quotes, in a text it may not."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@cache
def scrubber_version() -> str:
    """What stands in a scrub receipt: another version may find something else."""
    return f"session-streams-scrub/2+detect-secrets/{version('detect-secrets')}"


def found_in(content: bytes) -> str | None:
    """The kind of the first credential in `content`, or why it cannot be vouched for; None: there is none."""
    if len(content) > SCANNED_BYTES_MAX:
        return TOO_LARGE
    raw = content.decode("utf-8", "replace")
    kind = _found(raw, _RAW_FILE)
    if kind is not None:
        return kind
    for text in dict.fromkeys(_texts(raw)):
        for layer in range(LAYERS_MAX + 1):
            kind = _found(text, _TEXT_FILE)
            if kind is not None:
                return kind
            plain = _unescaped(text)
            if plain == text:
                break
            if layer == LAYERS_MAX:
                return TOO_DEEP
            text = plain
    return None


def _texts(raw: str) -> list[str]:
    """Every text of the JSON, also of members that stand twice; all of it where it is no JSON."""
    found: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> None:
        for name, value in pairs:
            found.append(name)
            found.extend(_strings(value))

    try:
        whole = json.loads(raw, object_pairs_hook=members, strict=False)
    except (ValueError, RecursionError):
        return [raw]
    return [*found, *_strings(whole)]


def _strings(value: Any) -> Iterator[str]:
    """The texts of a value that is no object: those of an object are told of when it is read."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            left.extend(each)


def _unescaped(text: str) -> str:
    """One layer of escapes taken away."""

    def plain(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 16)) if escape[1] is not None else _ESCAPED.get(escape[2], escape[2])

    return _ESCAPE.sub(plain, text)


def _found(text: str, file: str) -> str | None:
    # A half of a surrogate pair is no text that a detector could take a digest of.
    text = text.encode("utf-8", "replace").decode()
    for kind, pattern in _OWN.items():
        if pattern.search(text) is not None:
            return kind
    for number, line in enumerate(text.splitlines(), start=1):
        for detector in _detectors():
            if detector.analyze_line(file, line, number):
                return detector.secret_type.lower().replace(" ", "_")
    return None


@cache
def _detectors() -> tuple[BasePlugin, ...]:
    kinds: list[tuple[str, type[BasePlugin]]] = sorted(get_mapping_from_secret_type_to_class().items())
    return tuple([kind() for name, kind in kinds if name not in _NOT_ASKED])
