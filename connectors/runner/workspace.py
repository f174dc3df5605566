"""The directory that a Run works in: files written for real, snapshots of all of it, and those restored.

A snapshot is a tar under zstd, the same bytes for the same files: sorted names, no owners, no times. What comes back is files and
directories below the workspace, and nothing else.
"""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from connectors.runner.tools import FileWrite
from streams.custody.compressed_files import compressing, decompressing
from streams.errors import Misconfigured

MARKER: Final = ".session-streams-runner"
"""Lies in a folder that a runner may empty, and in no snapshot."""
_MARKED: Final = b"A runner works here, and removes what lies in this folder when it begins.\n"
BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
_PIECE_BYTES: Final = 1 << 20
_STEPS: Final = "SESSIONSTREAMS.steps"
_RUN: Final = "SESSIONSTREAMS.run"
_MEMBERS: Final = "SESSIONSTREAMS.members"
"""How many entries follow: an archive that was cut between two of them looks whole."""
_MISPLACED: Final = (IsADirectoryError, NotADirectoryError, FileExistsError)
"""What an archive meets whose names contradict each other."""


class Kept(Struct, frozen=True):
    """Of which Run, and after how many of its steps, the files are."""

    run_id: str
    steps: int


class SnapshotUnusable(Exception):
    """Retained bytes that are no snapshot of a workspace."""


def require_usable(path: Path) -> None:
    """Whether a runner may work there: nothing is, or an empty folder, or one of a runner. Raises `Misconfigured`."""
    try:
        usable = not path.exists() or (path / MARKER).is_file() or next(path.iterdir(), None) is None
    except OSError as error:
        raise Misconfigured(f"workspace {path}: {error.strerror}") from error
    if not usable:
        raise Misconfigured(
            f"workspace {path}: holds files that no runner has put there, and beginning would remove them; name an empty folder"
        )


class Workspace:
    """Begins fresh: what a runner left there is removed, since it is nobody's retained state. Raises `Misconfigured` where what lies
    there is somebody else's."""

    def __init__(self, path: Path) -> None:
        require_usable(path)
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        # Before anything else lies there: whoever is killed leaves a folder that the next one may empty.
        (path / MARKER).write_bytes(_MARKED)
        self.clear()

    def clear(self) -> None:
        for each in list(self.path.iterdir()):
            if each.name == MARKER:
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()

    def write(self, write: FileWrite) -> None:
        """Whole or not at all. A name that is taken by a file where a folder is needed gives way."""
        target = self.path
        for part in write.path.split("/")[:-1]:
            target = target / part
            if target.is_file():
                target.unlink()
        target.mkdir(parents=True, exist_ok=True)
        file = self.path / write.path
        if file.is_dir():
            shutil.rmtree(file)
        before = file.read_bytes().decode(errors="surrogateescape") if file.exists() else None
        beside = file.with_name(file.name[:200] + ".new~")
        beside.write_bytes(write.applied_to(before).encode(errors="surrogateescape"))
        beside.replace(file)

    def snapshot(self, into: BinaryIO, kept: Kept) -> None:
        """Streams; holds no file whole. `kept` travels with the bytes, so that neither is taken for what belongs to another."""
        paths = self._paths()
        headers = {_STEPS: str(kept.steps), _RUN: kept.run_id, _MEMBERS: str(len(paths))}
        with (
            compressing(into) as compressed,
            tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive,
        ):
            # Itself first: an archive that holds nothing at all is taken for a broken one.
            archive.addfile(_member(".", tarfile.DIRTYPE))
            for path in paths:
                name = path.relative_to(self.path).as_posix()
                if path.is_dir():
                    archive.addfile(_member(name, tarfile.DIRTYPE))
                else:
                    with path.open("rb") as file:
                        archive.addfile(_member(name, tarfile.REGTYPE, path.stat().st_size), file)

    def restore(self, snapshot: BinaryIO, *, bytes_max: int = BYTES_MAX) -> Kept:
        """Into a fresh workspace. Raises `SnapshotUnusable`; what is half restored is removed."""
        try:
            reader, members = _Reader(decompressing(snapshot, bytes_max)), -1
            with tarfile.open(fileobj=reader, mode="r|") as archive:
                for member in archive:
                    self._restore(archive, member)
                    members += 1
                headers = archive.pax_headers
            while reader.read(_PIECE_BYTES):
                pass  # The checksum is looked at with the last of it.
            if members != int(headers[_MEMBERS]):
                raise SnapshotUnusable(f"{members} entries of {headers[_MEMBERS]}")
            return Kept(headers[_RUN], int(headers[_STEPS]))
        except (tarfile.TarError, KeyError, ValueError, EOFError, SnapshotUnusable, *_MISPLACED) as error:
            self.clear()
            raise SnapshotUnusable(str(error)) from error

    def files(self) -> dict[str, bytes]:
        """Everything that lies there, by its path with slashes."""
        return {path.relative_to(self.path).as_posix(): path.read_bytes() for path in self._paths() if path.is_file()}

    def _paths(self) -> list[Path]:
        marker = self.path / MARKER
        return sorted(path for path in self.path.rglob("*") if path != marker and (path.is_dir() or path.is_file()))

    def _restore(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        found = tarfile.data_filter(member, str(self.path))
        target = self.path / found.name
        if found.isdir():
            target.mkdir(parents=True, exist_ok=True)
        elif found.isreg():
            target.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None, "a regular file has content"
            with target.open("wb") as file:
                shutil.copyfileobj(content, file, _PIECE_BYTES)
        else:
            raise SnapshotUnusable(f"{found.name[:200]} is neither file nor directory")


class _Reader(io.RawIOBase):
    """Pieces, read like a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, wanted = list[bytes](), size
        while wanted > 0:
            if not self._held:
                self._held = next(self._pieces, b"")
                if not self._held:
                    break
            parts.append(self._held[:wanted])
            self._held = self._held[wanted:]
            wanted -= len(parts[-1])
        return b"".join(parts)


def _member(name: str, kind: bytes, size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return member
