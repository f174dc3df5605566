"""The tables of a keyring in SQLite, and how its file comes to be, or to have the format of now. Used by `sqlite_keyring.py`."""

import contextlib
import os
from pathlib import Path
from typing import Final

from streams.custody.group_commit import connect, exclusive, transaction
from streams.errors import Misconfigured
from streams.files import sync_directory

_FORMAT: Final = 2
_DAYS: Final = """
CREATE TABLE days (name TEXT PRIMARY KEY, day TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX days_by_day ON days (day);
"""
"""Names only, so they may move."""
_DAYS_OF_BEFORE: Final = """
INSERT INTO days (name, day) SELECT name, substr(name, -10) FROM secrets
    WHERE destroyed = 0 AND (name LIKE '%/day/%' OR name LIKE '%/dead_letters/%');
"""
_SCHEMA: Final = """
CREATE TABLE workspace_keys (
    id INTEGER PRIMARY KEY, workspace_id TEXT NOT NULL, generation INTEGER NOT NULL,
    provider_key_id TEXT NOT NULL, wrapped BLOB NOT NULL, UNIQUE (workspace_id, generation));
CREATE TABLE secrets (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, generation INTEGER NOT NULL,
    destroyed INTEGER NOT NULL, wrapped BLOB NOT NULL);
CREATE TABLE pseudonyms (
    id INTEGER PRIMARY KEY, workspace_id TEXT NOT NULL, kind TEXT NOT NULL, pseudonym TEXT NOT NULL UNIQUE,
    forgotten INTEGER NOT NULL, bucket BLOB NOT NULL, outside_hash BLOB NOT NULL);
CREATE INDEX pseudonyms_by_bucket ON pseudonyms (bucket) WHERE forgotten = 0;
"""


def prepare(path: Path, lock_path: Path, timeout_s: float) -> None:
    """Create the database, readable by its owner only, once among all processes. Raises `Misconfigured` for a newer format, and what SQLite
    and the file system raise."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive(lock_path):
        # Never open an existing database beside SQLite: closing the descriptor would give up SQLite's own locks on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(connect(path, timeout_s=timeout_s)) as connection:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found > _FORMAT:
                raise Misconfigured(f"keyring {path}: format {found}, this program knows {_FORMAT}")
            if found < _FORMAT:
                script = _SCHEMA + _DAYS if found == 0 else _DAYS + _DAYS_OF_BEFORE
                with transaction(connection):
                    for statement in filter(str.strip, script.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version={_FORMAT}")
        sync_directory(path.parent)
