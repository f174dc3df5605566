"""What processes of one installation show each other: 32 random bytes in a file that only its user may read."""

import secrets
from pathlib import Path
from typing import Final

from streams.errors import Misconfigured
from streams.files import create_once

HEADER: Final = b"x-internal-token"

_NAME: Final = "internal-token"


def internal_token(data_dir: Path) -> str:
    """The token (64 hex digits); the first of the processes that ask makes it. Raises `Misconfigured`."""
    path = data_dir / _NAME
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            create_once(path, secrets.token_hex(32).encode())
        token = path.read_text().strip()
        if path.stat().st_mode & 0o077:
            raise Misconfigured(f"{path}: others may read it; set its mode to 0600")
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from error
    if len(token) != 64 or not all(digit in "0123456789abcdef" for digit in token):
        raise Misconfigured(f"{path}: no token in it; remove it and start again")
    return token
