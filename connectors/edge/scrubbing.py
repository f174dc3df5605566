"""Looks for credentials in what is to leave in a capsule: the detectors of detect-secrets, and the forms of our own tokens.

Detectors of mere randomness are left out: a harness's own ids are random, and are what a capsule is for. They take about a second for
300 KB, so there is a bound, and nothing above it is vouched for. What is found is told as a kind, never as text.
"""

import re
from functools import cache
from importlib.metadata import version
from typing import Final

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin

SCANNED_BYTES_MAX: Final = 256 * 1024
TOO_LARGE: Final = "too_large"
_NOT_ASKED: Final = frozenset({"Base64 High Entropy String", "Hex High Entropy String", "Public IP (ipv4)"})
_OWN: Final = {
    "session_streams_key": re.compile(r"\b(?:sks|titen_sk)_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    "anthropic_key": re.compile(r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    "bearer": re.compile(r"\bbearer\s+[A-Za-z0-9._~+/-]{20,}", re.IGNORECASE),
}  # fmt: skip
_FILE: Final = "continuation.json"
"""Detectors of words such as `password` go by a file's ending."""


@cache
def scrubber_version() -> str:
    """What stands in a scrub receipt: another version may find something else."""
    return f"session-streams-scrub/1+detect-secrets/{version('detect-secrets')}"


def found_in(content: bytes) -> str | None:
    """The kind of the first credential in `content`, or that it is too large to be looked at; None: there is none."""
    if len(content) > SCANNED_BYTES_MAX:
        return TOO_LARGE
    # Escapes of JSON may hide a line break, and what stands behind it at the start of a line.
    text = content.decode("utf-8", "replace")
    for kind, pattern in _OWN.items():
        if pattern.search(text) is not None:
            return kind
    for number, line in enumerate(_lines(text), start=1):
        for detector in _detectors():
            if detector.analyze_line(_FILE, line, number):
                return detector.secret_type.lower().replace(" ", "_")
    return None


def _lines(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in re.split(r"\\[nr]", line)]


@cache
def _detectors() -> tuple[BasePlugin, ...]:
    kinds: list[tuple[str, type[BasePlugin]]] = sorted(get_mapping_from_secret_type_to_class().items())
    return tuple([kind() for name, kind in kinds if name not in _NOT_ASKED])
