"""Small files that processes of one installation share: made once, whole, and for their owner's eyes."""

import contextlib
import fcntl
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from streams.errors import Misconfigured


def create_once(path: Path, content: bytes) -> None:
    """A durable file of mode 0600, unless one has the name already: of several who try at once the first one's stays.

    It is written aside and then given its name by a link, which, unlike a rename, replaces nothing. Raises OSError.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def read_private(path: Path, bytes_max: int) -> bytes:
    """The first `bytes_max` bytes of a file that only its owner may read or change.

    Raises `Misconfigured` where others may, and OSError.
    """
    return _read_unless(0o077, "read or change", path, bytes_max)


def read_own(path: Path, bytes_max: int) -> bytes:
    """The same of a file that others may read, but not change."""
    return _read_unless(0o022, "change", path, bytes_max)


def _read_unless(modes: int, what: str, path: Path, bytes_max: int) -> bytes:
    with path.open("rb") as file:
        _require_unless(modes, what, path, os.fstat(file.fileno()))
        return file.read(bytes_max)


def require_own(path: Path) -> None:
    """Nobody else may change the file. Raises `Misconfigured`, and OSError where it is not there."""
    _require_unless(0o022, "change", path, path.stat())


def _require_unless(modes: int, what: str, path: Path, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & modes:
        raise Misconfigured(f"{path} has mode {mode:04o}, others may {what} it: chmod 600 {path}")


def sync_directory(path: Path) -> None:
    """Make names that were given in a directory survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def claim(path: Path) -> BinaryIO:
    """Holds `path` until what is returned is closed, or the process ends however it ends.

    Raises `Misconfigured` where another process (or another holder in this one) has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise Misconfigured(f"{path.parent} is in use: give each process of a role its own SESSION_STREAMS_INSTANCE") from error
    return file
