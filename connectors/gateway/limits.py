"""Limits that are looked at before anything is done: rate of a key, depth and text of a JSON body."""

import json
import re
import time
from collections.abc import Callable
from typing import Final

from streams.errors import Invalid, Overloaded, Retriable

_BRACKETS: Final = b'"[]{}'
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(sorted(set(range(256)) - set(_BRACKETS)))
_ESCAPE: Final = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


class RateLimit:
    """A token bucket for each key. `take` raises `Retriable` (request.rate_limited) with the time to wait."""

    def __init__(self, per_s: float, burst: int, *, clock: Callable[[], float] = time.monotonic, keys_max: int = 10_000) -> None:
        self._per_s, self._burst, self._clock, self._keys_max = per_s, float(burst), clock, keys_max
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> None:
        now = self._clock()
        tokens, since = self._buckets.get(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._per_s)
        if tokens < 1:
            raise Retriable("more requests than this key may make", code="request.rate_limited", retry_after_s=(1 - tokens) / self._per_s)
        if len(self._buckets) >= self._keys_max and key not in self._buckets:
            # A bucket that has had time to fill is as good as none.
            full_s = self._burst / self._per_s
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if now - bucket[1] < full_s}
        self._buckets[key] = (tokens - 1, now)


class Budget:
    """A bound on something that is under way at once. `take` raises `Overloaded`; whoever took gives back."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit, self.what, self.taken = limit, what, 0

    def take(self, amount: int = 1) -> None:
        if self.taken + amount > self.limit:
            raise Overloaded(f"too many {self.what} are under way")
        self.taken += amount

    def give_back(self, amount: int = 1) -> None:
        self.taken -= amount


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
