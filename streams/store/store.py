"""A store of one partition in RocksDB: rows, and the offsets that they stand for.

- Rows and offsets go into one WriteBatch, so a store that lost its tail (power, a corrupt byte in the middle of the
  write-ahead log, which RocksDB drops silently with everything after it) says so by its own offsets, and is healed by
  reading the log again from there. Nothing outside the store says how far it is.
- A store is of one partition of one topic of one cluster, in one version of its layout (`StoreIdentity`). Anything else,
  and anything that does not open, is `StoreUnusable`: it is wiped and rebuilt, never migrated or repaired.
- A store that another process holds is no such case: wiping it would take it from under that process.
- Iterators live inside `with store.scan(...)` only; `close` ends what is still open, since RocksDB keeps its lock
  for as long as one is alive.
"""

import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import msgspec
import structlog
from rocksdict import DbClosedError, Options, Rdict, WriteBatch, WriteOptions

from streams.errors import Misconfigured, NotOwner, StoreUnusable
from streams.store.options import SharedMemory, opened, shared_memory
from streams.store.table import Pair, Put, StoreIdentity, digest_of

__all__ = ["SharedMemory", "Store", "StoreIdentity", "shared_memory"]

_log = structlog.get_logger(__name__)

_BEFORE: Final = b"a"
_DATA: Final = b"d"
_IDENTITY: Final = b"m/identity"
_OFFSET: Final = b"m/offset/"
_BEHIND: Final = b"z"
"""Rows before and behind all others: rocksdict's iterators end at a damaged block as if nothing followed, so a scan
that meets neither another prefix nor these has met damage."""

_NOT_THE_STORES_FAULT: Final = (
    "lock hold by",
    "while lock file",
    "permission denied",
    "no space left",
    "too many open files",
    "read-only file system",
)
"""What RocksDB says where wiping the store would help nobody."""

_DRAIN_S: Final = 1.0


class Store:
    """Rows of one partition. One thread writes and closes; any thread may read, and meets `NotOwner` after `close`."""

    def __init__(self, path: Path, identity: StoreIdentity, db: Rdict, memory: SharedMemory) -> None:
        self.path = path
        self.identity = identity
        self._db = db
        self._memory = memory
        self._written, self._filling = WriteOptions(), False
        self._unsettled = False
        """Whether a memtable holds rows that cannot be looked up: each `get` would copy and sort it, milliseconds a key."""
        self._scans: dict[_Scan, int] = {}
        self._closing = False
        self._lock = threading.Lock()
        with self._scan(_OFFSET, None, False) as rows:
            self._offsets = {key[len(_OFFSET) :].decode(): int.from_bytes(value, "big") for key, value in rows}

    @classmethod
    def open(cls, path: Path, identity: StoreIdentity, memory: SharedMemory | None = None) -> "Store":
        """Opens the store at `path`, or makes an empty one where there is nothing.

        Raises:
            StoreUnusable: torn, newer, older, or filled from something else; wipe it and rebuild.
            Misconfigured: the directory cannot be used: held by another process, not writable, disk full.
        """
        held = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        fresh = not held
        if held and not (path / "CURRENT").exists():
            # RocksDB would start an empty database here, without a word.
            raise StoreUnusable(f"torn: {path} has files and no CURRENT")
        db: Rdict | None = None
        memory = memory or shared_memory()
        try:
            path.mkdir(parents=True, exist_ok=True)
            db = opened(path, memory.options())
            if fresh:
                beginning = WriteBatch(raw_mode=True)
                beginning.put(_BEFORE, b"")
                beginning.put(_IDENTITY, msgspec.json.encode(identity))
                beginning.put(_BEHIND, b"")
                db.write(beginning)
            _check(db.get(_IDENTITY), identity)
            return cls(path, identity, db, memory)
        except BaseException as error:
            if db is not None:
                db.close()
            _raise(error, path)

    @classmethod
    def open_or_rebuild(cls, path: Path, identity: StoreIdentity, memory: SharedMemory | None = None) -> "Store":
        """Like `open`; an unusable store is wiped, and the log says why. Raises `Misconfigured`."""
        try:
            return cls.open(path, identity, memory)
        except StoreUnusable as error:
            cls.destroy(path)
            _log.warning("store_rebuilt", role=identity.role, partition=identity.partition, topic_id=identity.topic_id, reason=error.detail)
            return cls.open(path, identity, memory)

    @staticmethod
    def destroy(path: Path) -> None:
        """Removes a closed store. CURRENT goes first: what an interrupted removal leaves does not open as a store."""
        (path / "CURRENT").unlink(missing_ok=True)
        if path.is_dir():
            shutil.rmtree(path)

    def get(self, key: bytes) -> bytes | None:
        """Raises `NotOwner` if the store is closed, `StoreUnusable` if the row is damaged."""
        if self._unsettled:
            self._settle()
        try:
            value: bytes | None = self._db.get(_DATA + key)
        except Exception as error:
            _raise(error, self.path)
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Values in the order of the keys. Raises as `get`."""
        if self._unsettled:
            self._settle()
        try:
            values = self._db.get([_DATA + key for key in keys])
        except Exception as error:
            _raise(error, self.path)
        return cast("list[bytes | None]", values)

    @contextmanager
    def scan(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Iterator[Pair]]:
        """The rows whose keys have this prefix, in key order (or reversed), from `start` (a whole key, inclusive) on.

        What is written meanwhile is not seen. Raises as `get`.
        """
        with self._scan(_DATA + prefix, None if start is None else _DATA + start, reverse) as scan:
            # A generator stays ended once it has ended, whatever lies behind.
            yield ((key[1:], value) for key, value in scan)

    def write(self, puts: Iterable[Put], offsets: Mapping[str, int]) -> None:
        """One atomic batch: rows (a value of None deletes) and the offsets that they stand for.

        It survives the death of the process; after a power failure the store may be behind, by its own offsets.
        Raises `NotOwner` if the store is closed, `StoreUnusable` or `Misconfigured` (disk full) if it cannot be written.
        """
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in puts:
            if value is None:
                delete(_DATA + key)
            else:
                put(_DATA + key, value)
        for name, offset in offsets.items():
            put(_OFFSET + name.encode(), offset.to_bytes(8, "big"))
        try:
            self._db.write(batch, self._written)
        except Exception as error:
            _raise(error, self.path)
        self._offsets = {**self._offsets, **offsets}
        self._unsettled = self._filling

    def offsets(self) -> dict[str, int]:
        """By name; empty in a new store."""
        return dict(self._offsets)

    def begin_filling(self) -> None:
        """Until `end_filling`, writes are several times as cheap, the first read after a write is dear, and what was written
        lately is lost with the process: rows together with the offsets that they stand for, so that the log is read again
        from there. For the thread that writes, where no other reads. Raises as `write`.
        """
        self._reopen(self._memory.filling_options())
        # Without the log: a memtable goes to its file whole, and older ones first, so the files are a past state of the store.
        self._filling = True
        self._written.disable_wal = True  # type: ignore[method-assign, assignment]  # its stub calls it a method

    def _settle(self) -> None:
        """What was written while filling goes to its file."""
        try:
            self._db.flush()
        except Exception as error:
            _raise(error, self.path)
        self._unsettled = False

    def end_filling(self) -> None:
        """What was written is durable; nothing to do where nothing was begun. Raises as `write`."""
        if not self._filling:
            return
        # Before any write that is logged: that one would survive a kill, and its offsets tell of rows that did not.
        self._settle()
        self._reopen(self._memory.options())
        self._written, self._filling = WriteOptions(), False

    def _reopen(self, options: Options) -> None:
        with self._lock:
            if self._closing:
                raise NotOwner(f"store {self.path} is closed")
        try:
            self._db.close()
            self._db = opened(self.path, options)
        except Exception as error:
            _raise(error, self.path)

    def digest(self) -> str:
        """`digest_of` all rows; offsets and identity are left out."""
        with self.scan(b"") as rows:
            return digest_of(rows)

    def close(self) -> None:
        """Ends open scans (those of other threads get a moment to finish) and gives up RocksDB's lock. Idempotent."""
        with self._lock:
            self._closing = True
        mine = threading.get_ident()
        deadline = time.monotonic() + _DRAIN_S
        while any(thread != mine for thread in list(self._scans.values())) and time.monotonic() < deadline:
            time.sleep(0.001)
        for scan in list(self._scans):
            scan.end()
        while True:
            try:
                self._db.close()
                return
            except RuntimeError:  # a read of another thread is inside RocksDB at this moment
                time.sleep(0.001)
            except DbClosedError:
                return
            except Exception as error:
                if type(error) is not Exception:
                    raise
                # What a damaged store still says when it goes. Its rows are in its log.
                _log.warning("store_closed_dirty", path=str(self.path), reason=str(error).strip())
                return

    def wipe(self) -> None:
        """Closes the store and removes it; open it again for an empty one."""
        self.close()
        self.destroy(self.path)

    @contextmanager
    def _scan(self, prefix: bytes, start: bytes | None, reverse: bool) -> Iterator["_Scan"]:
        with self._lock:
            if self._closing:
                raise NotOwner(f"store {self.path} is closed")
            try:
                scan = _Scan(self._db, prefix, start, reverse, self.path)
            except Exception as error:
                _raise(error, self.path)
            self._scans[scan] = threading.get_ident()
        try:
            yield scan
        finally:
            scan.end()
            with self._lock:
                self._scans.pop(scan, None)


class _Scan:
    """One RocksDB iterator, let go of by `end`, at which RocksDB frees it."""

    def __init__(self, db: Rdict, prefix: bytes, start: bytes | None, reverse: bool, path: Path) -> None:
        self._prefix = prefix
        self._path = path
        above = _after(prefix)
        if reverse:
            # Seeks the last key at or below: `above` itself has another prefix and is stepped over.
            last = above if start is None else min(start, above)
            self._rows: Iterator[tuple[Any, Any]] | None = db.items(backwards=True, from_key=last)
            self._above: bytes | None = above
        else:
            # No iterate_upper_bound: rocksdict 0.3.29 frees the bound while the iterator still compares with it.
            self._rows = db.items(from_key=prefix if start is None else max(start, prefix))
            self._above = None

    def __iter__(self) -> "_Scan":
        return self

    def __next__(self) -> Pair:
        if self._rows is None:
            raise NotOwner(f"store {self._path} was closed under a scan")
        try:
            # No local name: what an error's frames hold would keep RocksDB's lock.
            key, value = next(self._rows)
            if key == self._above:
                key, value = next(self._rows)
        except StopIteration:
            raise StoreUnusable("torn: a scan ended at a damaged block") from None
        except Exception as error:
            _raise(error, self._path)
        if not key.startswith(self._prefix):
            raise StopIteration
        return key, value

    def end(self) -> None:
        self._rows = None


def _after(prefix: bytes) -> bytes:
    """The least key above all keys with this prefix. Prefixes here start with a letter, so there is one."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])


def _check(recorded: bytes | None, identity: StoreIdentity) -> None:
    if recorded is None:
        raise StoreUnusable("torn: no identity was recorded")
    try:
        found = msgspec.json.decode(recorded, type=StoreIdentity)
    except msgspec.MsgspecError as error:
        raise StoreUnusable("newer or torn: the recorded identity cannot be read") from error
    if found.role != identity.role:
        raise StoreUnusable(f"foreign: of role {found.role}, not {identity.role}")
    if found.version != identity.version:
        relation = "newer" if found.version > identity.version else "older"
        raise StoreUnusable(f"{relation}: layout {found.version}, this code writes {identity.version}")
    for name in ("cluster_id", "topic_id", "partition"):
        if getattr(found, name) != getattr(identity, name):
            raise StoreUnusable(f"foreign: {name} {getattr(found, name)}, not {getattr(identity, name)}")


def _raise(error: BaseException, path: Path) -> NoReturn:
    """rocksdict raises plain `Exception` with RocksDB's text; what it means is in the text."""
    if isinstance(error, DbClosedError) or (isinstance(error, RuntimeError) and "borrowed" in str(error)):
        raise NotOwner(f"store {path} is closed") from error
    if isinstance(error, OSError):
        raise Misconfigured(f"store {path}: {error}") from error
    if type(error) is not Exception:
        raise error
    text = str(error).strip()
    if not text.startswith("Corruption") and any(cause in text.lower() for cause in _NOT_THE_STORES_FAULT):
        raise Misconfigured(f"store {path} cannot be used (held by another process, or no room or right to write): {text}") from error
    raise StoreUnusable(f"torn: {text}") from error
