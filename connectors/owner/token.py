"""What processes of one installation show each other: 32 random bytes in a file that only its user may read."""

import os
import secrets
from pathlib import Path
from typing import Final

from streams.errors import Misconfigured

HEADER: Final = b"x-internal-token"

_NAME: Final = "internal-token"


def internal_token(data_dir: Path) -> str:
    """The token (64 hex digits); the first of the processes that ask makes it. Raises `Misconfigured`."""
    path = data_dir / _NAME
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _create(path)
        token = path.read_text().strip()
        if path.stat().st_mode & 0o077:
            raise Misconfigured(f"{path}: others may read it; set its mode to 0600")
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from error
    if len(token) != 64 or not all(digit in "0123456789abcdef" for digit in token):
        raise Misconfigured(f"{path}: no token in it; remove it and start again")
    return token


def _create(path: Path) -> None:
    """Whole or not at all, whoever else does the same: written aside, then linked under its name."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_hex(32).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(aside, path)
    except FileExistsError:
        return
    finally:
        os.unlink(aside)
