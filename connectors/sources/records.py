"""Lines of a source file: what is a record, what is broken, and what is not written to its end yet.

Rules upheld here:

- a record's index is the index of its physical line, so that a resume cursor is exact whatever lies between;
- blank lines are counted and otherwise ignored; white space around a record does not belong to it;
- a record's text is kept as it came: it is parsed to be understood, never to be written again;
- what the service could not take later (lone surrogates, bytes that are not UTF-8, too deep, too large) is broken here
  already, with a reason, so that one line never stops a file;
- a last line without a newline is a record only if it is a whole JSON object, since any other text may be the start
  of a longer one.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from decimal import Decimal

import msgspec
from msgspec import Struct

MAX_RECORD_BYTES = 8 * 1024 * 1024 - 64 * 1024
"""One command takes 8 MiB sealed; the rest of it is for the envelope."""
MAX_DEPTH = 98
"""Nesting of arrays and objects in one record: the gateway takes bodies of 100 levels, and an event wraps its content."""
KEPT_OF_BROKEN_BYTES = 1024 * 1024
"""How much of a broken line its dead letter carries."""

_WHITE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


class Line(Struct, frozen=True):
    """A physical line without surrounding white space; `text` is its head only, where `byte_count` is larger."""

    index: int
    text: bytes
    byte_count: int
    digest: str


class Record(Struct, frozen=True):
    """A JSON text of a source. `value` is for reading; numbers that a machine cannot hold come as Decimal."""

    index: int
    text: bytes
    digest: str
    value: object


class Broken(Struct, frozen=True):
    """A line that is no record, with its reason: too_large, not_utf8, lone_surrogate, too_deep, malformed_json, cut."""

    index: int
    reason: str
    text: bytes
    byte_count: int
    digest: str


class SourceChanged(Exception):
    """A source no longer begins with what was read or ingested before."""


def digest_of(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


class LineSplitter:
    """Bytes in, complete lines out; what follows the last newline waits.

    Lines beyond `MAX_RECORD_BYTES` are hashed and counted, and only their head is kept.
    """

    def __init__(self) -> None:
        self._index = 0
        self._pending = bytearray()
        self._dropped = 0
        self._hash = hashlib.sha256()
        self._tail_taken = False

    def feed(self, data: bytes) -> Iterator[Line]:
        """Raises SourceChanged where a last line that was taken as complete is continued."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._collect(data[start:end])
            line = self._take()
            if line is not None:
                yield line
            start = end + 1
        self._collect(data[start:])

    def tail(self) -> Line | None:
        """The unfinished last line as it stands, or None; it stays pending."""
        return None if self._tail_taken else self._line()

    def take_tail(self) -> None:
        """The last line was taken as a record: what comes next must be its newline."""
        self._tail_taken = True

    def _collect(self, piece: bytes) -> None:
        if not piece:
            return
        if self._tail_taken:
            if piece.strip(_WHITE):
                raise SourceChanged(f"line {self._index + 1} goes on after it was complete")
            return
        if self._dropped:
            self._hash.update(piece)
            self._dropped += len(piece)
            return
        self._pending += piece
        if len(self._pending) > MAX_RECORD_BYTES + 4096:
            self._hash = hashlib.sha256(self._pending)
            self._dropped = len(self._pending) - KEPT_OF_BROKEN_BYTES
            del self._pending[KEPT_OF_BROKEN_BYTES:]

    def _take(self) -> Line | None:
        line = None if self._tail_taken else self._line()
        self._index += 1
        self._pending.clear()
        self._dropped = 0
        self._tail_taken = False
        return line

    def _line(self) -> Line | None:
        raw = bytes(self._pending)
        if self._index == 0:
            raw = raw.removeprefix(_BOM)
        if self._dropped:
            return Line(self._index, raw, len(raw) + self._dropped, f"sha256:{self._hash.hexdigest()}")
        text = raw.strip(_WHITE)
        return Line(self._index, text, len(text), digest_of(text)) if text else None


def read_record(line: Line) -> Record | Broken:
    """What a complete line holds."""
    reason, value = _parse(line)
    if reason is not None:
        return broken(line, reason)
    return Record(line.index, line.text, line.digest, value)


def read_tail(line: Line) -> Record | None:
    """An unfinished last line, if it is a whole object all the same."""
    if not line.text.startswith(b"{"):
        return None
    reason, value = _parse(line)
    return Record(line.index, line.text, line.digest, value) if reason is None else None


def broken(line: Line, reason: str) -> Broken:
    return Broken(line.index, reason, line.text[:KEPT_OF_BROKEN_BYTES], line.byte_count, line.digest)


def _parse(line: Line) -> tuple[str | None, object]:
    if line.byte_count > MAX_RECORD_BYTES:
        return "too_large", None
    try:
        line.text.decode()
    except UnicodeDecodeError:
        return "not_utf8", None
    try:
        value = parse_json(line.text)
    except RecursionError:
        return "too_deep", None
    except ValueError:
        return ("lone_surrogate" if has_lone_surrogate(line.text) else "malformed_json"), None
    brackets = line.text.count(b"[") + line.text.count(b"{")
    return ("too_deep", None) if brackets > MAX_DEPTH and _deeper_than(value, MAX_DEPTH) else (None, value)


def parse_json(text: bytes) -> object:
    """JSON as RFC 8259 has it: no NaN, no lone surrogates. Numbers of any size are taken.

    Raises ValueError or RecursionError.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        # A number outside a double's range: valid JSON, which only the slower parser takes.
        if has_lone_surrogate(text):
            raise ValueError("lone surrogate") from None
        value: object = json.loads(text.decode(), parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse_constant)
        return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def has_lone_surrogate(text: bytes) -> bool:
    """Whether an escaped surrogate lacks its other half; `text` is the raw JSON."""
    if b"\\u" not in text:
        return False
    high_ends_at = -1
    for match in _ESCAPE.finditer(text):
        code = int(match[1], 16) if match[1] else 0
        follows_high = high_ends_at == match.start()
        if high_ends_at >= 0 and not (follows_high and 0xDC00 <= code < 0xE000):
            return True
        high_ends_at = -1
        if 0xD800 <= code < 0xDC00:
            high_ends_at = match.end()
        elif 0xDC00 <= code < 0xE000 and not follows_high:
            return True
    return high_ends_at >= 0


def _deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True
