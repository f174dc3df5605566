"""A new key for a workspace whose secrets lie in SQLite, as rows: begun, secrets wrapped anew some at a time, ended. Used by
`sqlite_keyring.py`; others create, read and destroy meanwhile."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from cryptography.hazmat.primitives.keywrap import aes_key_wrap

from streams.custody.group_commit import GroupCommit
from streams.custody.keyring import SECRET_BYTES, WorkspaceKeyProvider
from streams.errors import KeyringUnavailable

_OLDER: Final = (
    "SELECT id, name, generation, wrapped FROM secrets WHERE name >= ? AND name < ? AND generation < ? AND destroyed = 0 AND id > ?"
    " ORDER BY id LIMIT ?"
)
_ROWS_AT_ONCE: Final = 500


class Rotation:
    """`workspace_key` gives a workspace's key of a generation, `unwrapped` a secret of a workspace, name, generation and wrapped bytes."""

    def __init__(
        self,
        writer: GroupCommit,
        reader: Callable[[], AbstractContextManager[sqlite3.Connection]],
        provider: WorkspaceKeyProvider,
        workspace_key: Callable[[str, int], bytes],
        unwrapped: Callable[[str, str, int, bytes], bytes],
    ) -> None:
        self._writer, self._reader, self._provider = writer, reader, provider
        self._workspace_key, self._unwrapped = workspace_key, unwrapped

    def begun(self, workspace_id: str) -> int:
        """The generation that everything is to be wrapped by, which the provider's key of now wraps: of a rotation that was broken off, or
        a new one. The workspace has a key."""
        fresh = self._provider.wrap(workspace_id, os.urandom(SECRET_BYTES))

        def work(connection: sqlite3.Connection) -> int:
            keys = connection.execute(
                "SELECT generation, provider_key_id FROM workspace_keys WHERE workspace_id = ? ORDER BY generation", (workspace_id,)
            ).fetchall()
            newest, wrapped_by = int(keys[-1][0]), keys[-1][1]
            if len(keys) > 1 and wrapped_by == self._provider.key_id:
                return newest
            connection.execute(
                "INSERT INTO workspace_keys (workspace_id, generation, provider_key_id, wrapped) VALUES (?, ?, ?, ?)",
                (workspace_id, newest + 1, self._provider.key_id, fresh),
            )
            return newest + 1

        return self._writer.commit(work)

    def finished(self, workspace_id: str, newest: int) -> int:
        """How many were wrapped anew; the keys before are gone then. Raises `KeyringUnavailable`: the same again finishes it."""
        rewrapped, last_id = 0, 0
        while True:
            with self._reader() as reader:
                rows = reader.execute(_OLDER, (*range_of(workspace_id), newest, last_id, _ROWS_AT_ONCE)).fetchall()
            if not rows:
                if last_id == 0:
                    break
                last_id = 0  # who began before has created more meanwhile
                continue
            last_id = rows[-1][0]
            rewrapped += self._rewrap(workspace_id, newest, rows)
        self._end(workspace_id, newest)
        return rewrapped

    def _rewrap(self, workspace_id: str, newest: int, rows: list[tuple[int, str, int, bytes]]) -> int:
        key = self._workspace_key(workspace_id, newest)
        changes = [
            (aes_key_wrap(key, self._unwrapped(workspace_id, name, generation, wrapped)), newest, row_id, generation)
            for row_id, name, generation, wrapped in rows
        ]

        def work(connection: sqlite3.Connection) -> int:
            # What was destroyed meanwhile stays so.
            return connection.executemany(
                "UPDATE secrets SET wrapped = ?, generation = ? WHERE id = ? AND generation = ? AND destroyed = 0", changes
            ).rowcount

        return self._writer.commit(work)

    def _end(self, workspace_id: str, newest: int) -> None:
        """The keys before go for good, in the step that sees that nothing needs them."""

        def work(connection: sqlite3.Connection) -> bool:
            if connection.execute(_OLDER, (*range_of(workspace_id), newest, 0, 1)).fetchall():
                return False
            connection.execute(
                "UPDATE workspace_keys SET wrapped = zeroblob(length(wrapped)) WHERE workspace_id = ? AND generation < ?",
                (workspace_id, newest),
            )
            connection.execute("DELETE FROM workspace_keys WHERE workspace_id = ? AND generation < ?", (workspace_id, newest))
            return True

        if not self._writer.commit_and_truncate(work):
            raise KeyringUnavailable(f"keyring: secrets of {workspace_id} were created meanwhile; rotate again to finish")


def range_of(workspace_id: str) -> tuple[str, str]:
    """Between which the names of a workspace's secrets lie."""
    return f"{workspace_id}/", f"{workspace_id}0"
