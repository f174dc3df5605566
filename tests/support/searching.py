"""Whether bytes that should be gone still stand somewhere: in files, in what they hold compressed, in rows and records.

A needle is looked for as it is and as programs write such bytes down: base64 at each of its three alignments, hex, UTF-16, escaped in
JSON. Two windows of eight bytes can be compared as fast as two numbers: a file is read as numbers, three times with another beginning,
so that of each pattern's windows at three neighbouring offsets one is among them; what looks like a pattern is then compared whole.

A broker's cleaner renames files while they are searched, so one walk may miss one: `search_twice` walks again a moment later.
"""

import base64
import contextlib
import errno
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple

import zstandard

NEEDLE_BYTES_MIN: Final = 10
"""A shorter one is found by chance."""
_PATTERN_BYTES_MAX: Final = 256
_WINDOW: Final = 8
_BEGINNINGS: Final = (0, 3, 6)
_CHUNK: Final = 1 << 20
_PACKED: Final = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08")
"""How a zstd frame and a gzip file begin."""
_UNPACKED_MAX: Final = 32 << 20
_FRAME_MAX: Final = 8 << 20
_BETWEEN_S: Final = 1.0


class Finding(NamedTuple):
    """`place` is a file or says what was read; `offset` is that of the pattern in it, in bytes; `form` how it was written there."""

    place: str
    offset: int
    label: str
    form: str


@dataclass
class Search:
    """What was found, in how much."""

    findings: list[Finding] = field(default_factory=list)
    places: int = 0
    bytes: int = 0

    def add(self, other: "Search") -> "Search":
        self.findings += other.findings
        self.places += other.places
        self.bytes += other.bytes
        return self

    @property
    def labels(self) -> set[str]:
        return {finding.label for finding in self.findings}

    def told(self) -> str:
        """For a person to read, when a test fails."""
        lines = [f"{place} @{offset}: {label} ({form})" for place, offset, label, form in self.findings[:20]]
        return f"{len(self.findings)} found in {self.places} places, {self.bytes} bytes\n" + "\n".join(lines)


class _Pattern(NamedTuple):
    data: bytes
    label: str
    form: str
    at: int
    """The offset of its most telling windows."""


class Needles:
    """What to look for: label -> bytes. Labels are what a failing test shows. Raises ValueError for a needle that is too short."""

    def __init__(self, needles: Mapping[str, bytes]) -> None:
        self._patterns: dict[int, list[tuple[_Pattern, int]]] = {}
        self._longest = 0
        for label, needle in needles.items():
            if len(needle) < NEEDLE_BYTES_MIN:
                raise ValueError(f"needle {label!r} has {len(needle)} bytes, at least {NEEDLE_BYTES_MIN} are needed")
            for form, data in _forms(needle).items():
                self._add(label, form, data)

    @property
    def labels(self) -> set[str]:
        return {pattern.label for patterns in self._patterns.values() for pattern, _ in patterns}

    def in_bytes(self, data: bytes, place: str) -> Search:
        """Everything in `data`, and in what it holds compressed."""
        return self._in_chunks([data], place, 0, lambda at: data[at : at + _FRAME_MAX])

    def in_stream(self, stream: IO[bytes], place: str) -> Search:
        """A piece of it in memory at a time; what is compressed in it is left as it is."""
        return self._in_chunks(iter(lambda: stream.read(_CHUNK), b""), place, 0, None)

    def in_file(self, path: Path) -> Search:
        """Its name and its bytes, also those compressed in it; holes, which broker and database leave in files of a fixed size, are
        passed over.

        Raises FileNotFoundError where it went meanwhile.
        """
        found = Search(self._found(str(path).encode(), f"name of {path}", 0, 0))
        with path.open("rb", buffering=0) as file:
            number = file.fileno()
            for start, end in _written(number):
                chunks = (os.pread(number, min(_CHUNK, end - at), at) for at in range(start, end, _CHUNK))
                found.add(self._in_chunks(chunks, str(path), start, lambda at: os.pread(number, _FRAME_MAX, at)))
        found.places = 1
        return found

    def _in_chunks(self, chunks: Iterable[bytes], place: str, offset: int, frame_at: Callable[[int], bytes] | None) -> Search:
        """`offset` is that of the first chunk. `frame_at` gives what may be compressed, from an offset on."""
        search, tail = Search(places=1), b""
        for chunk in chunks:
            data, start = tail + chunk, offset - len(tail)
            search.findings += self._found(data, place, start, len(tail))
            if frame_at is not None:
                for at in _beginnings(data, len(tail)):
                    text = _unpacked(frame_at(start + at))
                    search.findings += self._found(text, f"{place}, unpacked from {start + at}", 0, 0)
            tail = data[-self._longest :]
            offset, search.bytes = offset + len(chunk), search.bytes + len(chunk)
        return search

    def _add(self, label: str, form: str, data: bytes) -> None:
        offsets = range(len(data) - _WINDOW - 1)
        at = max(offsets, key=lambda offset: len(set(data[offset : offset + _WINDOW + 2])))
        pattern = _Pattern(data, label, form, at)
        self._longest = max(self._longest, len(data))
        for offset in range(at, at + 3):
            window = int.from_bytes(data[offset : offset + _WINDOW], sys.byteorder)
            self._patterns.setdefault(window, []).append((pattern, offset))

    def _found(self, data: bytes, place: str, start: int, known: int) -> list[Finding]:
        """`start` is the offset of `data`; a pattern that lies whole within its first `known` bytes was found before."""
        found: dict[Finding, None] = {}
        view, windows = memoryview(data), self._patterns.keys()
        for beginning in _BEGINNINGS:
            numbers = view[beginning : beginning + max(0, len(data) - beginning) // _WINDOW * _WINDOW].cast("Q")
            if windows.isdisjoint(numbers):
                continue
            for index, number in enumerate(numbers):
                for pattern, offset in self._patterns.get(number, ()):
                    at = beginning + index * _WINDOW - offset
                    if at >= 0 and at + len(pattern.data) > known and data.startswith(pattern.data, at):
                        found[Finding(place, start + at, pattern.label, pattern.form)] = None
        return list(found)


def search(folders: Iterable[Path], needles: Needles) -> Search:
    """One walk through every file below `folders`. A file that goes meanwhile is passed over."""
    whole = Search()
    for path in _files(folders):
        with contextlib.suppress(FileNotFoundError):
            whole.add(needles.in_file(path))
    return whole


def search_twice(folders: Iterable[Path], needles: Needles, *, between_s: float = _BETWEEN_S) -> Search:
    """Two walks a moment apart: both have to be clean, since a file may have been renamed under either of them."""
    folders = list(folders)
    first = search(folders, needles)
    time.sleep(between_s)
    return first.add(search(folders, needles))


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_file():
            yield folder
        # Links lead to what is searched where it lies.
        for root, _, names in os.walk(folder):
            yield from (Path(root) / name for name in names if (Path(root) / name).is_file())


def _written(number: int) -> Iterator[tuple[int, int]]:
    """The stretches of an open file that hold data."""
    end, at = os.fstat(number).st_size, 0
    while at < end:
        try:
            start = os.lseek(number, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole follows
                return
            raise
        at = os.lseek(number, start, os.SEEK_HOLE)
        yield start, at


def _forms(needle: bytes) -> dict[str, bytes]:
    forms = {"raw": needle, "hex": needle.hex().encode(), "HEX": needle.hex().upper().encode()}
    for before in range(3):
        text = base64.b64encode(bytes(before) + needle)
        # A sign at either end is made of neighbours' bits as well.
        inner = text[math.ceil(before * 8 / 6) : (before + len(needle)) * 8 // 6]
        forms |= {f"base64 +{before}": inner, f"base64url +{before}": inner.replace(b"+", b"-").replace(b"/", b"_")}
    with contextlib.suppress(UnicodeDecodeError):
        said = needle.decode()
        forms |= {"UTF-16": said.encode("utf-16-le"), "UTF-16BE": said.encode("utf-16-be")}
        forms |= {"JSON": json.dumps(said)[1:-1].encode(), "JSON, Unicode": json.dumps(said, ensure_ascii=False)[1:-1].encode()}
    unique: dict[bytes, str] = {}
    for form, data in forms.items():
        unique.setdefault(data[:_PATTERN_BYTES_MAX], form)
    return {form: data for data, form in unique.items()}


def _beginnings(data: bytes, known: int) -> Iterator[int]:
    """Where something compressed may begin."""
    for beginning in _PACKED:
        at = data.find(beginning, max(0, known - len(beginning) + 1))
        while at >= 0:
            yield at
            at = data.find(beginning, at + 1)


def _unpacked(frame: bytes) -> bytes:
    """As much of it as makes sense: of what only looks like a frame, little or nothing."""
    text = bytearray()
    if frame.startswith(_PACKED[0]):
        with contextlib.suppress(zstandard.ZstdError), zstandard.ZstdDecompressor().stream_reader(frame) as reader:
            while len(text) < _UNPACKED_MAX and (part := reader.read(_CHUNK)):
                text += part
    else:
        with contextlib.suppress(zlib.error):
            text += zlib.decompressobj(31).decompress(frame, _UNPACKED_MAX)
    return bytes(text)
