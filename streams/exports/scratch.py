"""Where the items of a bundle wait until the events are through: a bounded number of bytes in memory, the others in a file without a name.

- The file lies in a folder of its caller and loses its name at once, so nothing of it stays, however the process ends. It has structure
  only, and a bound: beyond it `sqlite3.Error` is raised, as where the disk is full.
- Every step is short: what is in memory is written as it comes, and read is a piece at a time, in order, by an index.
- A thread may be in a step while another one closes: it is waited for. Whoever goes on behind the end gets `sqlite3.Error`.
"""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from msgspec import Struct

_HELD_BYTES: Final = 8 * 1024 * 1024
_ITEM_BYTES: Final = 512
"""What an item takes in memory beside what events say of it."""
_READ_BYTES: Final = 256 * 1024
_FILE_BYTES_MAX: Final = 4 * 1024**3
_PAGE_BYTES: Final = 4096

# Nobody opens the file a second time, so nothing in it has to survive. Rows lie in the order in which they are read.
_SETUP: Final = (
    f"PRAGMA page_size = {_PAGE_BYTES}",
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA temp_store = MEMORY",
    "CREATE TABLE item (section TEXT, kind TEXT, id TEXT, sequence INTEGER, facts INTEGER, first BLOB, latest BLOB)",
    "CREATE UNIQUE INDEX object ON item (section, kind, id)",
    "CREATE INDEX ordered ON item (section, sequence, kind, id)",
)
_WRITE: Final = (
    "INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (section, kind, id)"
    " DO UPDATE SET facts = facts + excluded.facts, latest = coalesce(excluded.latest, excluded.first)"
)
_READ: Final = (
    "SELECT sequence, kind, id, facts, first, coalesce(latest, first) FROM item INDEXED BY ordered"
    " WHERE section = ? AND (sequence, kind, id) > (?, ?, ?) ORDER BY sequence, kind, id"
)


class Item(NamedTuple):
    """An object, how many events tell of it, and what the first and the last of them say, as JSON."""

    sequence: int
    kind: str
    named: str
    facts: int
    first: bytes
    latest: bytes


class _Held(Struct):
    sequence: int
    first: bytes
    facts: int = 1
    latest: bytes | None = None
    """None: what `first` is."""


class Scratch:
    """`tell` of all events, in order; then ask for `items`. Close it in the end. Raises OSError and `sqlite3.Error`."""

    def __init__(self, folder: Path) -> None:
        self._lock = Lock()
        self._is_closed = False
        self._held: dict[tuple[str, str, str], _Held] = {}
        self._held_bytes = 0
        self._rows = _nameless(folder)

    def tell(self, section: str, kind: str, named: str, sequence: int, fact: bytes) -> None:
        """One event says this of an object."""
        with self._lock:
            self._require_open()
            held = self._held.get((section, kind, named))
            if held is None:
                self._held[section, kind, named] = _Held(sequence, fact)
                self._held_bytes += _ITEM_BYTES + len(named) + len(fact)
            else:
                self._held_bytes += len(fact) - len(held.latest or b"")
                held.facts, held.latest = held.facts + 1, fact
            if self._held_bytes >= _HELD_BYTES:
                self._write()

    def items(self, section: str) -> Iterator[Item]:
        """By the first event of each object; of those that one event brings up first, by kind and id."""
        behind = (0, "", "")
        while read := self._read(section, behind):
            yield from read
            behind = read[-1][:3]

    def close(self) -> None:
        # Said before it waits, so that a thread that goes on and on is waited for once.
        self._is_closed = True
        with self._lock:
            self._rows.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise sqlite3.ProgrammingError("what waits for the end of a bundle is closed")

    def _read(self, section: str, behind: tuple[int, str, str]) -> list[Item]:
        found: list[Item] = []
        size = 0
        with self._lock:
            self._require_open()
            self._write()
            with closing(self._rows.execute(_READ, (section, *behind))) as rows:
                for row in rows:
                    found.append(Item(*row))
                    size += len(found[-1].first) + len(found[-1].latest)
                    if size >= _READ_BYTES:
                        break
        return found

    def _write(self) -> None:
        if self._held:
            rows = ((*key, held.sequence, held.facts, held.first, held.latest) for key, held in self._held.items())
            self._rows.executemany(_WRITE, rows)
            self._held.clear()
            self._held_bytes = 0


def _nameless(folder: Path) -> sqlite3.Connection:
    """A table in a file of that folder that nobody else can open."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="bundle-", dir=folder)
    try:
        os.close(descriptor)
        rows = sqlite3.connect(name, check_same_thread=False)
        try:
            for each in (*_SETUP, f"PRAGMA max_page_count = {_FILE_BYTES_MAX // _PAGE_BYTES}"):
                rows.execute(each)
        except sqlite3.Error:
            rows.close()
            raise
    finally:
        os.unlink(name)
    return rows
