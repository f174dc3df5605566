"""Files: which of them are sources, of what shape, and which belong together.

Rules upheld here:

- a session is a file, and its identity is the source's kind, the file's base name without extensions and the digest of
  its first record, so that a copy, a packed copy and a grown file are the same session;
- an agent's file is a thread of the session whose transcript it names, where that is among the files at hand;
- gzip is known by its first bytes, not by the name.
"""

import gzip
import hashlib
import io
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from msgspec import Raw, Struct

from connectors.sources import claude_code, tau_bench
from connectors.sources.claude_records import mapping, text
from connectors.sources.records import LineSplitter, Record, read_record, read_tail
from connectors.sources.tau_bench import NotTrajectories, Trajectory

STDIN = "-"
MAX_WHOLE_FILE_BYTES = 256 * 1024 * 1024
"""Of files that are read whole: trajectories, and standard input."""
_HEAD_BYTES = 64 * 1024 * 1024
_SUFFIXES = (".jsonl", ".json")
_GZIP = b"\x1f\x8b"


class SourceUnusable(Exception):
    """A file that cannot be taken, and why; never holds content."""


class UnknownSource(SourceUnusable):
    """A file whose records are of no source that is known here."""


class SourceFile(Struct, frozen=True):
    """A file to read; `named` says whether the caller named it or it was found in a folder. Without a path: `data`."""

    path: Path | None
    named: bool = True
    data: bytes = b""

    @property
    def name(self) -> str:
        """Base name without extensions."""
        name = self.path.name if self.path else "stdin"
        name = name.removesuffix(".gz")
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)
        return name

    def __str__(self) -> str:
        return str(self.path) if self.path else STDIN

    def open(self) -> BinaryIO:
        """Bytes as they were before packing. Raises SourceUnusable."""
        try:
            if self._packed():
                # Given a path it closes what it opens; given a handle it does not.
                return cast(BinaryIO, gzip.open(self.path or io.BytesIO(self.data)))
            return self.path.open("rb") if self.path else io.BytesIO(self.data)
        except OSError as error:
            raise SourceUnusable(f"cannot be opened: {error.strerror}") from error

    def _packed(self) -> bool:
        if self.path is None:
            return self.data.startswith(_GZIP)
        with self.path.open("rb") as handle:
            return handle.read(len(_GZIP)) == _GZIP

    def size(self) -> int:
        """Bytes as they lie there, packed or not; 0 where the file is gone."""
        if self.path is None:
            return len(self.data)
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


class PlannedSession(Struct, frozen=True, kw_only=True):
    """A session to import: a transcript with the files of its agents, or one trajectory."""

    key: str
    file: SourceFile
    metadata: Raw
    subject: str | None
    agents: tuple[tuple[str, SourceFile], ...] = ()
    trajectory: Trajectory | None = None


class _Head(Struct, frozen=True):
    """What the start of a transcript tells."""

    digest: str
    native_session: str | None
    agent_id: str | None


def read_some(handle: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes; empty at the end. Raises SourceUnusable where a packed file is cut or broken."""
    try:
        return handle.read(size)
    except EOFError as error:
        raise SourceUnusable("the gzip file ends early") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise SourceUnusable("the gzip file is broken") from error
    except OSError as error:
        raise SourceUnusable(f"cannot be read: {error.strerror}") from error


def discover(paths: Sequence[str | Path]) -> Iterator[SourceFile]:
    """The files that `paths` name, folders searched, each once, in a fixed order. Raises SourceUnusable."""
    seen: set[Path] = set()
    for path in paths:
        if str(path) == STDIN:
            yield SourceFile(None, data=_whole(sys.stdin.buffer))
            continue
        root = Path(path)
        if not root.exists():
            raise SourceUnusable(f"{root}: no such file or folder")
        found = sorted(_candidates(root)) if root.is_dir() else [root]
        for file in found:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield SourceFile(file, named=not root.is_dir())


def _candidates(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.name.removesuffix(".gz").endswith(_SUFFIXES) and file.is_file():
            yield file


def _whole(handle: BinaryIO) -> bytes:
    data = bytearray()
    while piece := read_some(handle, 1024 * 1024):
        data += piece
        if len(data) > MAX_WHOLE_FILE_BYTES:
            raise SourceUnusable(f"larger than {MAX_WHOLE_FILE_BYTES >> 20} MiB")
    return bytes(data)


class Planner:
    """Files to sessions. Remembers what was planned, so that a folder can be looked at again."""

    def __init__(self, subject: str | None) -> None:
        self._subject = subject
        self.problems: list[tuple[SourceFile, str]] = []
        self.ignored: list[SourceFile] = []

    def plan(self, files: Iterable[SourceFile]) -> list[PlannedSession]:
        """Files that cannot be taken go to `problems`; files of another kind, found in a folder, to `ignored`."""
        mains: list[tuple[SourceFile, _Head]] = []
        agents: list[tuple[SourceFile, _Head]] = []
        sessions: list[PlannedSession] = []
        for file in files:
            try:
                if _holds_array(file):
                    sessions += self._trajectories(file)
                    continue
                head = _head(file)
            except (NotTrajectories, UnknownSource) as error:
                self._set_aside(file, str(error))
            except SourceUnusable as error:
                self.problems.append((file, str(error)))
            else:
                (mains if head.agent_id is None else agents).append((file, head))
        return self._transcripts(mains, agents) + sessions

    def _set_aside(self, file: SourceFile, reason: str) -> None:
        if file.named or _named_lines(file):
            self.problems.append((file, reason))
        else:
            self.ignored.append(file)

    def _transcripts(self, mains: list[tuple[SourceFile, _Head]], agents: list[tuple[SourceFile, _Head]]) -> list[PlannedSession]:
        owner: dict[str, SourceFile] = {}
        for file, head in mains:
            if head.native_session is not None:
                owner.setdefault(head.native_session, file)
        for file, _ in mains:
            owner[file.name] = file
        attached: dict[SourceFile, list[tuple[str, SourceFile]]] = {file: [] for file, _ in mains}
        alone: list[tuple[SourceFile, _Head]] = []
        for file, head in agents:
            main = owner.get(head.native_session or "")
            if main is None:
                alone.append((file, head))
            else:
                attached[main].append((head.agent_id or "", file))
        return [self._transcript(file, head, tuple(attached.get(file, ()))) for file, head in (*mains, *alone)]

    def _transcript(self, file: SourceFile, head: _Head, agents: tuple[tuple[str, SourceFile], ...]) -> PlannedSession:
        kind = claude_code.SOURCE_KIND if head.agent_id is None else claude_code.AGENT_SOURCE_KIND
        own = () if head.agent_id is None else ((head.agent_id, file),)
        return PlannedSession(
            key=_session_key(kind, file.name, head.digest),
            file=file,
            metadata=_metadata(kind, file, {}),
            subject=self._subject,
            agents=(*own, *agents),
        )

    def _trajectories(self, file: SourceFile) -> Iterator[PlannedSession]:
        occurrences: dict[str, int] = {}
        with file.open() as handle:
            data = _whole(handle)
        for found in tau_bench.read_trajectories(data):
            if isinstance(found, NotTrajectories):
                self._set_aside(file, str(found))
                continue
            occurrence = occurrences[found.digest] = occurrences.get(found.digest, -1) + 1
            yield PlannedSession(
                key=_session_key(tau_bench.SOURCE_KIND, file.name, found.digest, str(occurrence)),
                file=file,
                metadata=_metadata(tau_bench.SOURCE_KIND, file, found.metadata),
                subject=found.user_id or self._subject,
                trajectory=found,
            )


def _holds_array(file: SourceFile) -> bool:
    with file.open() as handle:
        start = read_some(handle, 4096)
    return not _named_lines(file) and start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _named_lines(file: SourceFile) -> bool:
    return file.path is not None and ".jsonl" in file.path.suffixes


def _head(file: SourceFile) -> _Head:
    """Raises UnknownSource where records can be read and none of them has a type. A file of broken lines alone is taken for
    what its name says: lines of a transcript become dead letters, and any other file is no transcript."""
    splitter = LineSplitter()
    digest: str | None = None
    readable = known = False
    with file.open() as handle:
        for _ in range(_HEAD_BYTES >> 18):
            piece = read_some(handle, 1 << 18)
            lines = list(splitter.feed(piece))
            records = [read_record(line) for line in lines]
            tail = None if piece or lines else splitter.tail()
            whole = None if tail is None else read_tail(tail)
            for record in [*records, *([whole] if whole else [])]:
                digest = digest or record.digest
                source = mapping(getattr(record, "value", None))
                readable = readable or isinstance(record, Record)
                known = known or text(source.get("type")) is not None
                native = text(source.get("sessionId"))
                if native is not None:
                    agent_id = text(source.get("agentId")) if source.get("isSidechain") is True else None
                    return _Head(digest, native, agent_id)
            if not piece:
                break
    if digest is None:
        raise SourceUnusable("holds no complete record")
    if not known and (readable or not _named_lines(file)):
        raise UnknownSource("holds no record of a transcript")
    return _Head(digest, None, None)


def _session_key(*parts: str) -> str:
    """The Idempotency-Key of a session: a digest, since a base name may tell something."""
    message = b"".join(len(part).to_bytes(4, "big") + part for part in (text.encode("utf-8", "surrogateescape") for text in parts))
    return f"import:{hashlib.sha256(message).hexdigest()}"


def _metadata(kind: str, file: SourceFile, more: dict[str, int | str]) -> Raw:
    name = file.name.encode("utf-8", "replace").decode()
    return Raw(msgspec.json.encode({"source": kind, "file": name, **more}))
