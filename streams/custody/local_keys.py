"""The key file of one machine: wraps workspace keys, is readable by its owner only, and is made once.

Of processes that start together the first creates it, whole and durable, and the others load that one. A file that others
may read is refused: what it wraps would be no secret.
"""

import hashlib
import re
import secrets
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from streams.errors import KeyringUnavailable, Misconfigured
from streams.files import create_once, read_private

_LABEL: Final = "session-streams/workspace-keys/v1"
OLD_SUFFIX: Final = ".old"
_FORMAT: Final = re.compile(rf"{_LABEL} ([0-9a-f]{{64}})\n")


class LocalKeyFile:
    """A `WorkspaceKeyProvider`: one line, a label and 64 hex digits, mode 0600.

    To change the file's key: move the file to the same name with `.old` behind, start anew (another one is made), and rotate every
    workspace (`session-streams keyring rotate`); then the old file is of no use, and goes.

    A workspace key is wrapped (AES key wrap, RFC 3394) by HKDF-SHA-256 of the file's key with the workspace in its info,
    so that what was wrapped for one workspace opens for no other.
    """

    def __init__(self, path: Path) -> None:
        """Load the file, or create it. Raises `Misconfigured` (mode, contents), `KeyringUnavailable` (cannot be read or made)."""
        self._path = path
        try:
            if not path.exists():
                _create(path)
            self._key = _load(path)
            older = path.with_name(path.name + OLD_SUFFIX)
            self._keys = {_id_of(key): key for key in (*([_load(older)] if older.exists() else []), self._key)}
        except OSError as error:
            raise KeyringUnavailable(f"key file {path}: {error.strerror}") from error
        self._key_id = _id_of(self._key)

    @property
    def key_id(self) -> str:
        return self._key_id

    def wrap(self, workspace_id: str, key: bytes) -> bytes:
        return aes_key_wrap(_wrapping_key(self._key, workspace_id), key)

    def unwrap(self, workspace_id: str, key_id: str, wrapped: bytes) -> bytes:
        key = self._keys.get(key_id)
        if key is None:
            raise Misconfigured(
                f"key file {self._path} ({self._key_id}) did not wrap the key of {workspace_id} ({key_id} did): restore that file"
            )
        try:
            return aes_key_unwrap(_wrapping_key(key, workspace_id), wrapped)
        except (InvalidUnwrap, ValueError) as error:
            raise Misconfigured(f"the wrapped key of {workspace_id} is damaged, or belongs to another workspace") from error


def _id_of(key: bytes) -> str:
    return "local:" + hashlib.sha256(_LABEL.encode() + key).hexdigest()[:32]


def _wrapping_key(key: bytes, workspace_id: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"{_LABEL}/{workspace_id}".encode()).derive(key)


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    create_once(path, f"{_LABEL} {secrets.token_hex(32)}\n".encode())


def _load(path: Path) -> bytes:
    text = read_private(path, 1024).decode("ascii", "replace")
    match = _FORMAT.fullmatch(text)
    if match is None:
        raise Misconfigured(f"key file {path}: expected one line, {_LABEL!r} and 64 hex digits")
    return bytes.fromhex(match[1])
