"""The keyring of one machine: SQLite, shared by all its processes, under a workspace key each that a provider wraps.

- A row that holds a secret, or the keyed hash of a name, is appended once and never moves: destroying overwrites these bytes
  in place, and the row stays as the tombstone. What moves (a tree ordered by name, an index) can leave a copy in the unused
  part of a page; so the index over hashes holds two bytes of each only, which are shared by many.
- The identity key of a workspace is random and wrapped like a secret, not derived from the workspace key: rotation wraps it
  anew, and derived identifiers stay what they are.
- The keyed hash of an outside name does not depend on whether the name is a subject's or an actor's: erasing the subject
  forgets the person in both roles.
- The key that wrapped a workspace's secrets before a rotation is overwritten, too, once nothing needs it.
- Readers hold no open transaction (autocommit, all rows fetched), so that none of ours delays a destruction.

Writes go through `group_commit.py`. A row names the `generation` of the workspace key that wraps it, so that rotation can
rewrap rows in place, some at a time, and the log never notices.
"""

import contextlib
import os
import sqlite3
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap
from msgspec import Struct

from streams.custody.cache import BoundedCache
from streams.custody.group_commit import GroupCommit, connect
from streams.custody.keyring import (
    DAY_KINDS,
    PSEUDONYM_PREFIXES,
    SECRET_BYTES,
    PseudonymKind,
    SecretRef,
    WorkspaceKeyProvider,
    hashed_name,
    refuse_destroyed,
    require_outside,
)
from streams.custody.local_keys import LocalKeyFile
from streams.custody.sqlite_rotation import Rotation, range_of
from streams.custody.sqlite_schema import prepare
from streams.errors import Invalid, KeyringUnavailable
from streams.session.ids import is_id

LOCAL_KEY_NAME: Final = "workspace.key"
_WRAPPED_BYTES: Final = SECRET_BYTES + 8
_NOTHING: Final = bytes(_WRAPPED_BYTES)
_PSEUDONYM_OF: Final = (
    "SELECT pseudonym FROM pseudonyms WHERE bucket = ? AND forgotten = 0 AND outside_hash = ? AND workspace_id = ? AND kind = ?"
)
_BUCKET_BYTES: Final = 2
_NO_BUCKET: Final = bytes(_BUCKET_BYTES)
_NO_HASH: Final = bytes(32)
_DAY_CHARACTERS: Final = 10
_NAMES_PER_QUERY: Final = 500
_KEYS_CACHED: Final = 1024
_KEY_CACHE_S: Final = 300.0
"""After that the provider is asked again, so that a key withdrawn there stops opening here."""


def open_local_keyring(directory: Path) -> "SqliteKeyring":
    """Database and key file in one directory; `streams.keyrings` opens what the settings of a role name."""
    return SqliteKeyring(directory / "keyring.sqlite", LocalKeyFile(directory / LOCAL_KEY_NAME))


class _Rotated(KeyringUnavailable):
    """The workspace's key is another one than a moment ago."""


class _Row(Struct, frozen=True):
    generation: int
    destroyed: bool
    wrapped: bytes


class SqliteKeyring:
    """A `Keyring`. `timeout_s` bounds the wait for a turn to write, `truncate_timeout_s` the wait for foreign readers."""

    def __init__(self, path: Path, provider: WorkspaceKeyProvider, *, timeout_s: float = 10.0, truncate_timeout_s: float = 2.0) -> None:
        """Open, or create. Raises `Misconfigured` (newer format; the provider lacks the key), `KeyringUnavailable`."""
        self._path = path
        self._provider = provider
        self._timeout_s = timeout_s
        self._idle: deque[sqlite3.Connection] = deque()
        self._newest: BoundedCache[str, int] = BoundedCache(seconds=_KEY_CACHE_S, max_entries=_KEYS_CACHED)
        self._workspace_keys: BoundedCache[tuple[str, int], bytes] = BoundedCache(seconds=_KEY_CACHE_S, max_entries=_KEYS_CACHED)
        self._identity_keys: BoundedCache[str, bytes] = BoundedCache(seconds=_KEY_CACHE_S, max_entries=_KEYS_CACHED)
        lock_path = path.with_name(path.name + ".lock")
        try:
            prepare(path, lock_path, timeout_s)
            self._writer = GroupCommit(path, lock_path, timeout_s=timeout_s, truncate_timeout_s=truncate_timeout_s)
        except (sqlite3.Error, OSError) as error:
            raise KeyringUnavailable(f"keyring {path}: {error}") from error
        self._rotation = Rotation(self._writer, self._reader, provider, self._workspace_key, self._unwrapped)
        self._check_provider()

    def identity_key(self, workspace_id: str) -> bytes:
        found = self._identity_key(workspace_id)
        return self._create_identity_key(workspace_id) if found is None else found

    def pseudonym(self, workspace_id: str, kind: PseudonymKind, outside_id: str, *, create: bool) -> str | None:
        key = self.identity_key(workspace_id) if create else self._identity_key(workspace_id)
        if key is None:
            return None
        outside_hash = hashed_name(key, outside_id)
        mapping = (outside_hash[:_BUCKET_BYTES], outside_hash, workspace_id, kind)
        with self._reader() as reader:
            found = reader.execute(_PSEUDONYM_OF, mapping).fetchall()
        if found or not create:
            return str(found[0][0]) if found else None
        require_outside(outside_id)
        minted = f"{PSEUDONYM_PREFIXES[kind]}_{os.urandom(16).hex()}"

        def work(connection: sqlite3.Connection) -> str:
            connection.execute(
                "INSERT INTO pseudonyms (bucket, outside_hash, workspace_id, kind, pseudonym, forgotten)"
                f" SELECT ?, ?, ?, ?, ?, 0 WHERE NOT EXISTS ({_PSEUDONYM_OF})",
                (*mapping, minted, *mapping),
            )
            return str(connection.execute(_PSEUDONYM_OF, mapping).fetchall()[0][0])

        return self._writer.commit(work)

    def is_named(self, workspace_id: str, pseudonym: str) -> bool:
        query = "SELECT 1 FROM pseudonyms WHERE pseudonym = ? AND workspace_id = ? AND forgotten = 0"
        with self._reader() as reader:
            return bool(reader.execute(query, (pseudonym, workspace_id)).fetchall())

    def secrets(self, refs: Collection[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
        named = {ref.name: ref for ref in refs}
        try:
            return self._secrets(named, create)
        except _Rotated:
            # Between the row and its key a rotation came to its end: the row is another one now.
            return self._secrets(named, create)

    def _secrets(self, named: dict[str, SecretRef], create: bool) -> dict[SecretRef, bytes]:
        rows = self._rows(named)
        if create:
            _refuse_destroyed(named, rows)
            absent: dict[str, list[str]] = {}
            for name, ref in named.items():
                if name not in rows:
                    absent.setdefault(ref.workspace_id, []).append(name)
            for workspace_id, names in absent.items():
                rows |= self._create(workspace_id, names)
            _refuse_destroyed(named, rows)
        return {
            named[name]: self._unwrapped(named[name].workspace_id, name, row.generation, row.wrapped)
            for name, row in rows.items()
            if not row.destroyed
        }

    def destroyed(self, refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        named = {ref.name: ref for ref in refs}
        return frozenset(named[name] for name, row in self._rows(named).items() if row.destroyed)

    def days_before(self, day: str, limit: int) -> list[SecretRef]:
        with self._reader() as reader:
            rows = reader.execute("SELECT name FROM days WHERE day < ? ORDER BY day, name LIMIT ?", (day, limit)).fetchall()
        return [SecretRef.named(name) for (name,) in rows]

    def destroy(self, refs: Collection[SecretRef]) -> None:
        tombstones = [(ref.name, _NOTHING) for ref in refs]
        days = [(ref.name,) for ref in refs if ref.kind in DAY_KINDS]
        people = [(_NO_BUCKET, _NO_HASH, ref.workspace_id, ref.id) for ref in refs if ref.kind == "subject"]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO secrets (name, generation, destroyed, wrapped) VALUES (?, 0, 1, ?)"
                " ON CONFLICT (name) DO UPDATE SET destroyed = 1, wrapped = excluded.wrapped",
                tombstones,
            )
            connection.executemany(
                "UPDATE pseudonyms SET forgotten = 1, bucket = ?, outside_hash = ? WHERE id IN (SELECT role.id"
                " FROM pseudonyms AS subject JOIN pseudonyms AS role ON role.bucket = subject.bucket AND role.forgotten = 0"
                " AND role.outside_hash = subject.outside_hash AND role.workspace_id = subject.workspace_id"
                " WHERE subject.workspace_id = ? AND subject.pseudonym = ? AND subject.forgotten = 0)",
                people,
            )
            connection.executemany("DELETE FROM days WHERE name = ?", days)

        if tombstones:
            self._writer.commit_and_truncate(work)

    def workspaces(self) -> list[str]:
        with self._reader() as reader:
            rows = reader.execute("SELECT DISTINCT workspace_id FROM workspace_keys ORDER BY workspace_id").fetchall()
        return [workspace_id for (workspace_id,) in rows]

    def rotate(self, workspace_id: str) -> int:
        known, newest = self._newest_generation(workspace_id), self._rotation.begun(workspace_id)
        if newest != known:
            self._newest.forget((workspace_id,))
        return self._rotation.finished(workspace_id, newest)

    def counts(self, workspace_id: str) -> dict[str, int]:
        with self._reader() as reader:
            rows = reader.execute("SELECT name, destroyed FROM secrets WHERE name >= ? AND name < ?", range_of(workspace_id)).fetchall()
            ((newest,),) = reader.execute("SELECT max(generation) FROM workspace_keys WHERE workspace_id = ?", (workspace_id,)).fetchall()
        counts = Counter("destroyed" if destroyed else name.split("/")[1] for name, destroyed in rows)
        return {**dict(sorted(counts.items())), "generation": newest or 0}

    def close(self) -> None:
        self._writer.close()
        for cache in (self._newest, self._workspace_keys, self._identity_keys):
            cache.clear()
        while self._idle:
            self._idle.pop().close()

    def _identity_key(self, workspace_id: str) -> bytes | None:
        def load(_: list[str]) -> dict[str, bytes]:
            name = _identity_name(workspace_id)
            row = self._rows([name]).get(name)
            return {} if row is None else {workspace_id: self._unwrapped(workspace_id, name, row.generation, row.wrapped)}

        return self._identity_keys.get_many((workspace_id,), load).get(workspace_id)

    def _create_identity_key(self, workspace_id: str) -> bytes:
        name = _identity_name(workspace_id)
        row = self._create(workspace_id, [name])[name]
        return self._unwrapped(workspace_id, name, row.generation, row.wrapped)

    def _create(self, workspace_id: str, names: list[str]) -> dict[str, _Row]:
        """Create what is absent and answer what is there, whoever made it. Secrets are wrapped before the turn to write comes."""
        generation = self._newest_generation(workspace_id)
        key = self._workspace_key(workspace_id, generation)
        still = (workspace_id, generation)
        days = [(name, name[-_DAY_CHARACTERS:], name) for name in names if name.split("/")[1] in DAY_KINDS]
        candidates = [(name, generation, aes_key_wrap(key, os.urandom(SECRET_BYTES)), *still) for name in names]

        def work(connection: sqlite3.Connection) -> dict[str, _Row]:
            # The condition keeps a slow process from wrapping with a workspace key that was rotated away meanwhile.
            connection.executemany(
                "INSERT INTO secrets (name, generation, destroyed, wrapped) SELECT ?, ?, 0, ?"
                " WHERE (SELECT max(generation) FROM workspace_keys WHERE workspace_id = ?) = ? ON CONFLICT (name) DO NOTHING",
                candidates,
            )
            connection.executemany(
                "INSERT INTO days (name, day) SELECT ?, ? FROM secrets WHERE name = ? AND destroyed = 0 ON CONFLICT (name) DO NOTHING",
                days,
            )
            return _select(connection, names)

        rows = self._writer.commit(work)
        if len(rows) < len(names):
            self._newest.forget((workspace_id,))
            raise _Rotated(f"keyring {self._path}: the key of {workspace_id} was replaced just now")
        return rows

    def _rows(self, names: Iterable[str]) -> dict[str, _Row]:
        with self._reader() as reader:
            return _select(reader, list(names))

    def _unwrapped(self, workspace_id: str, name: str, generation: int, wrapped: bytes) -> bytes:
        try:
            return aes_key_unwrap(self._workspace_key(workspace_id, generation), wrapped)
        except (InvalidUnwrap, ValueError) as error:
            raise KeyringUnavailable(f"keyring {self._path}: {name} is not wrapped by the key of its workspace") from error

    def _workspace_key(self, workspace_id: str, generation: int) -> bytes:
        def load(_: list[tuple[str, int]]) -> dict[tuple[str, int], bytes]:
            query = "SELECT provider_key_id, wrapped FROM workspace_keys WHERE workspace_id = ? AND generation = ?"
            with self._reader() as reader:
                found = reader.execute(query, (workspace_id, generation)).fetchall()
            if not found:
                return {}
            key_id, wrapped = found[0]
            return {(workspace_id, generation): self._provider.unwrap(workspace_id, key_id, wrapped)}

        keys = self._workspace_keys.get_many(((workspace_id, generation),), load)
        if not keys:
            raise _Rotated(f"keyring {self._path}: key {generation} of {workspace_id} is not there")
        return keys[workspace_id, generation]

    def _newest_generation(self, workspace_id: str) -> int:
        """Of a workspace's key, which is created where there is none."""
        if not is_id(workspace_id, "ws"):
            raise Invalid("workspace: its id does not fit the pattern")
        return self._newest.get_many((workspace_id,), self._load_newest)[workspace_id]

    def _load_newest(self, absent: list[str]) -> dict[str, int]:
        (workspace_id,) = absent
        query = "SELECT max(generation) FROM workspace_keys WHERE workspace_id = ?"
        with self._reader() as reader:
            ((newest,),) = reader.execute(query, (workspace_id,)).fetchall()
        if newest is None:
            candidate = (workspace_id, self._provider.key_id, self._provider.wrap(workspace_id, os.urandom(SECRET_BYTES)))

            def work(connection: sqlite3.Connection) -> int:
                insert = "INSERT INTO workspace_keys (workspace_id, generation, provider_key_id, wrapped) VALUES (?, 1, ?, ?)"
                connection.execute(f"{insert} ON CONFLICT (workspace_id, generation) DO NOTHING", candidate)
                return int(connection.execute(query, (workspace_id,)).fetchall()[0][0])

            newest = self._writer.commit(work)
        return {workspace_id: newest}

    def _check_provider(self) -> None:
        """Find out at the start, not at the first read, that the key file is another one than before."""
        with self._reader() as reader:
            found = reader.execute("SELECT workspace_id, generation FROM workspace_keys ORDER BY id DESC LIMIT 1").fetchall()
        for workspace_id, generation in found:
            self._workspace_key(workspace_id, generation)

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that nobody else uses meanwhile; there are as many as callers at once."""
        connection: sqlite3.Connection | None = None
        try:
            connection = self._borrowed()
            yield connection
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise KeyringUnavailable(f"keyring {self._path}: {error}") from error
        self._idle.append(connection)

    def _borrowed(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return connect(self._path, timeout_s=self._timeout_s)


def _identity_name(workspace_id: str) -> str:
    return f"{workspace_id}/identity/-"


def _select(connection: sqlite3.Connection, names: list[str]) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for start in range(0, len(names), _NAMES_PER_QUERY):
        some = names[start : start + _NAMES_PER_QUERY]
        marks = ",".join("?" * len(some))
        found = connection.execute(f"SELECT name, generation, destroyed, wrapped FROM secrets WHERE name IN ({marks})", some).fetchall()
        rows.update((name, _Row(generation, bool(destroyed), wrapped)) for name, generation, destroyed, wrapped in found)
    return rows


def _refuse_destroyed(named: dict[str, SecretRef], rows: dict[str, _Row]) -> None:
    refuse_destroyed(named[name] for name, row in rows.items() if row.destroyed)
