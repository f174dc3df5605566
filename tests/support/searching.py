"""Whether bytes that should be gone still stand somewhere: in files, in what they hold compressed, in rows and records.

A needle is looked for as it is and as programs write such bytes down: base64 at each of its three alignments, hex, UTF-16, escaped in
JSON. Two windows of eight bytes can be compared as fast as two numbers: a file is read as numbers, three times with another beginning,
so that of each pattern's windows at three neighbouring offsets one is among them; what looks like a pattern is then compared whole.

A broker's cleaner renames files while they are searched, so one walk may miss one: `search_twice` walks again a moment later.
"""

import base64
import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
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
                self._add(label, form, data[:_PATTERN_BYTES_MAX])

    def __len__(self) -> int:
        return len({pattern.label for patterns in self._patterns.values() for pattern, _ in patterns})

    def in_bytes(self, data: bytes, place: str) -> Search:
        """Everything in `data`, and in what it holds compressed."""
        return Search([*self._found(data, place, 0), *self._unpacked(data, place, 0)], 1, len(data))

    def in_stream(self, stream: IO[bytes], place: str, *, offset: int = 0, length: int | None = None) -> Search:
        """As `in_bytes`, a piece of it in memory at a time. `offset` is that of its beginning."""
        search, tail, left = Search(places=1), b"", length
        while chunk := stream.read(_CHUNK if left is None else min(_CHUNK, left)):
            data, start = tail + chunk, offset - len(tail)
            # What lies whole within the tail was found with the chunk before.
            search.findings += [each for each in self._found(data, place, start) if each not in search.findings[-50:]]
            search.findings += self._unpacked(data, place, start, again_from=len(tail))
            tail = data[-(self._longest + _WINDOW) :]
            offset, search.bytes = offset + len(chunk), search.bytes + len(chunk)
            if left is not None:
                left -= len(chunk)
        return search

    def in_file(self, path: Path) -> Search:
        """Its name and its bytes; holes, which broker and database leave in files of a fixed size, are passed over.

        Raises FileNotFoundError where it went meanwhile.
        """
        search = Search(self._found(str(path).encode(), f"name of {path}", 0))
        with path.open("rb", buffering=0) as file:
            for start, end in _written(file):
                file.seek(start)
                search.add(self.in_stream(file, str(path), offset=start, length=end - start))
        search.places = 1
        return search

    def _add(self, label: str, form: str, data: bytes) -> None:
        offsets = range(len(data) - _WINDOW - 1)
        at = max(offsets, key=lambda offset: len(set(data[offset : offset + _WINDOW + 2])))
        pattern = _Pattern(data, label, form, at)
        self._longest = max(self._longest, len(data))
        for offset in range(at, at + 3):
            window = int.from_bytes(data[offset : offset + _WINDOW], _order())
            self._patterns.setdefault(window, []).append((pattern, offset))

    def _found(self, data: bytes, place: str, start: int) -> list[Finding]:
        found: dict[Finding, None] = {}
        view, windows = memoryview(data), self._patterns.keys()
        for beginning in _BEGINNINGS:
            numbers = view[beginning : beginning + (len(data) - beginning) // _WINDOW * _WINDOW].cast("Q")
            if windows.isdisjoint(numbers):
                continue
            for index, number in enumerate(numbers):
                for pattern, offset in self._patterns.get(number, ()):
                    at = beginning + index * _WINDOW - offset
                    if at >= 0 and data.startswith(pattern.data, at):
                        found[Finding(place, start + at, pattern.label, pattern.form)] = None
        return list(found)

    def _unpacked(self, data: bytes, place: str, start: int, *, again_from: int = 0) -> list[Finding]:
        """In zstd frames and gzip files, wherever they begin; what only looks like one ends where it makes no sense."""
        found = []
        for beginning in _PACKED:
            at = data.find(beginning, max(0, again_from - len(beginning) + 1))
            while at >= 0:
                text = _unpacked(data[at : at + _FRAME_MAX])
                found += [each._replace(form=f"{each.form}, packed") for each in self._found(text, f"{place}, packed", start + at)]
                at = data.find(beginning, at + 1)
        return found


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


def _written(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    """The stretches that hold data."""
    end, at = os.fstat(file.fileno()).st_size, 0
    while at < end:
        try:
            start = os.lseek(file.fileno(), at, os.SEEK_DATA)
        except OSError:  # nothing but a hole follows
            return
        at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        yield start, at


def _forms(needle: bytes) -> dict[str, bytes]:
    forms = {"raw": needle, "hex": needle.hex().encode(), "HEX": needle.hex().upper().encode()}
    for before in range(3):
        text = base64.b64encode(bytes(before) + needle)
        # Signs at either end also depend on the neighbours.
        inner = text[(0, 2, 3)[before] : len(text) - (0, 4, 3)[(before + len(needle)) % 3 and 3 - (before + len(needle)) % 3]]
        forms[f"base64 +{before}"] = inner
        forms[f"base64url +{before}"] = inner.replace(b"+", b"-").replace(b"/", b"_")
    with contextlib.suppress(UnicodeDecodeError):
        text = needle.decode()
        forms |= {"UTF-16": text.encode("utf-16-le"), "UTF-16BE": text.encode("utf-16-be")}
        forms |= {"JSON": json.dumps(text)[1:-1].encode(), "JSON, Unicode": json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    unique: dict[bytes, str] = {}
    for form, data in forms.items():
        if len(data) >= NEEDLE_BYTES_MIN:
            unique.setdefault(data, form)
    return {form: data for data, form in unique.items()}


def _unpacked(frame: bytes) -> bytes:
    """As much of it as makes sense."""
    text = bytearray()
    if frame.startswith(_PACKED[0]):
        with contextlib.suppress(zstandard.ZstdError), zstandard.ZstdDecompressor().stream_reader(frame) as reader:
            while len(text) < _UNPACKED_MAX and (part := reader.read(_CHUNK)):
                text += part
    else:
        with contextlib.suppress(zlib.error):
            text += zlib.decompressobj(31).decompress(frame, _UNPACKED_MAX)
    return bytes(text)


def _order() -> "Final[str]":  # type: ignore[valid-type]
    import sys

    return sys.byteorder
