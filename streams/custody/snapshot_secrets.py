"""A secret of its own for everything that is uploaded: destroying it shreds that, and nothing else.

It belongs to one attempt at an upload, not to the name that the upload has: an attempt that fails takes its secret with it,
and the next one under the same name, which may be under way already, has another.
"""

import os
from collections.abc import Collection

from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sealed_bytes import UNREADABLE
from streams.errors import ContentUnavailable
from streams.session.words import CONTENT_EXPIRED


def new_secret_id() -> str:
    """A fresh random one (snap_...)."""
    return f"snap_{os.urandom(16).hex()}"


class SnapshotSecrets:
    """Blocking and thread-safe, as the keyring; every method raises `KeyringUnavailable`."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def create(self, workspace_id: str, secret_id: str) -> bytes:
        """32 bytes, durable. Raises `ContentUnavailable` where it is destroyed."""
        ref = _ref(workspace_id, secret_id)
        return self._keyring.secrets((ref,), create=True)[ref]

    def read(self, workspace_id: str, secret_id: str) -> bytes:
        """Raises `ContentUnavailable`: content.expired where it is destroyed, content.unreadable where it never was here."""
        ref = _ref(workspace_id, secret_id)
        secret = self._keyring.secrets((ref,), create=False).get(ref)
        if secret is None:
            gone = bool(self._keyring.destroyed((ref,)))
            raise ContentUnavailable(
                f"the secret {secret_id} is {'destroyed' if gone else 'not here'}", code=CONTENT_EXPIRED if gone else UNREADABLE
            )
        return secret

    def destroy(self, secrets: Collection[tuple[str, str]]) -> None:
        """Workspaces and ids; for ever, also what never existed."""
        self._keyring.destroy([_ref(workspace_id, secret_id) for workspace_id, secret_id in sorted(secrets)])


def _ref(workspace_id: str, secret_id: str) -> SecretRef:
    return SecretRef("snapshot", workspace_id, secret_id)
