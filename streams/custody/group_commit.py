"""One writer a process, one transaction for all who wait: how thousands of durable creations a second fit through fsync.

- Writers of all processes stand in line at a blocking `flock`. Free writers would starve each other: SQLite's own lock is
  polled, and who just had it gets it again.
- While one transaction is made durable the next callers gather, and go together into the next one.
- What concerns SQLite or the files becomes `KeyringUnavailable`; so does a wait beyond `timeout_s`, since the holder of the
  lock may be stopped. A caller that gave up is taken out of the line.
- Nothing is written once the path holds another file than was opened: readers would go on with the one before.
- A truncation is told as done only when no byte of the write-ahead log is left and the disk knows it.

Used by `sqlite_keyring.py`.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from streams.errors import KeyringUnavailable, StreamsError

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]
"""A caller's part of a transaction; commit and rollback are not its business."""

_MOST_JOBS: Final = 1024
_TRUNCATE_PAUSE_S: Final = 0.02


def connect(path: Path, *, timeout_s: float) -> sqlite3.Connection:
    """A connection in autocommit, as the keyring needs it: deleted bytes overwritten, every commit on the disk."""
    connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    for pragma in ("secure_delete=ON", "synchronous=FULL", "temp_store=MEMORY", "trusted_schema=OFF"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


@contextlib.contextmanager
def exclusive(lock_path: Path) -> Iterator[None]:
    """Hold the lock among processes; the kernel gives it up when its holder dies. Waits as long as it takes."""
    descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@dataclass(frozen=True, eq=False)
class _Job(Generic[T]):
    work: Work[T]
    truncating: bool
    answer: "Future[T]" = field(default_factory=Future)


class GroupCommit:
    """The writer to a database that is there. Its thread starts with the first job and does not survive a fork."""

    def __init__(self, path: Path, lock_path: Path, *, timeout_s: float, truncate_timeout_s: float) -> None:
        """Raises OSError."""
        self._path = path
        self._opened = _identity(path)
        self._lock_path = lock_path
        self._timeout_s = timeout_s
        self._truncate_timeout_s = truncate_timeout_s
        self._pid = os.getpid()
        self._jobs: list[_Job[Any]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def commit(self, work: Work[T]) -> T:
        """Run `work` in a transaction shared with others; returns when it is durable.

        Raises `KeyringUnavailable` (nothing is known to be written), or what `work` raised of our own errors.
        """
        return self._wait(_Job(work, truncating=False))

    def commit_and_truncate(self, work: Work[T]) -> T:
        """As `commit`, and returns only when the write-ahead log is empty, so that what `work` overwrote stands nowhere.

        Raises `KeyringUnavailable` also where a reader keeps the log in use; `work` is committed then.
        """
        return self._wait(_Job(work, truncating=True))

    def close(self) -> None:
        """Finish what is in line, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(self._timeout_s)

    def _wait(self, job: _Job[T]) -> T:
        if os.getpid() != self._pid:
            raise RuntimeError("a keyring is opened anew after a fork")
        with self._changed:
            if self._closed:
                raise RuntimeError("the keyring is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="keyring-writer", daemon=True)
                self._thread.start()
            self._jobs.append(job)
            self._changed.notify()
        try:
            return job.answer.result(self._timeout_s)
        except FutureTimeout:
            if job.answer.cancel():
                raise KeyringUnavailable(f"keyring {self._path}: no turn to write within {self._timeout_s:g} s") from None
            return self._last_look(job)
        except CancelledError:
            raise KeyringUnavailable(f"keyring {self._path}: closed while waiting") from None

    def _last_look(self, job: _Job[T]) -> T:
        """The job is being written right now: give it the time of a truncation and a commit, no more."""
        try:
            return job.answer.result(self._timeout_s + self._truncate_timeout_s)
        except FutureTimeout:
            raise KeyringUnavailable(f"keyring {self._path}: the disk does not answer") from None

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while jobs := self._next_jobs():
            try:
                with exclusive(self._lock_path):
                    jobs = [job for job in jobs if job.answer.set_running_or_notify_cancel()]
                    self._refuse_another_file()
                    if connection is None:
                        connection = connect(self._path, timeout_s=1.0)
                    self._write(connection, jobs)
            except Exception as error:
                _fail(jobs, self._translated(error))
                if connection is not None:
                    connection.close()
                    connection = None
        if connection is not None:
            connection.close()

    def _next_jobs(self) -> list[_Job[Any]]:
        """Everybody in line; empty when the keyring is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            jobs, self._jobs = self._jobs[:_MOST_JOBS], self._jobs[_MOST_JOBS:]
            return jobs

    def _write(self, connection: sqlite3.Connection, jobs: list[_Job[Any]]) -> None:
        done: list[tuple[_Job[Any], Any]] = []
        refused: list[tuple[_Job[Any], StreamsError]] = []
        with transaction(connection):
            for job in jobs:
                try:
                    done.append((job, job.work(connection)))
                except StreamsError as error:
                    refused.append((job, error))
        for job, refusal in refused:
            job.answer.set_exception(refusal)
        for job, answer in done:
            if not job.truncating:
                job.answer.set_result(answer)
        truncating = [(job, answer) for job, answer in done if job.truncating]
        if truncating:
            self._truncate(connection)
            for job, answer in truncating:
                job.answer.set_result(answer)

    def _truncate(self, connection: sqlite3.Connection) -> None:
        give_up_at = time.monotonic() + self._truncate_timeout_s
        while True:
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                break
            if time.monotonic() >= give_up_at:
                raise KeyringUnavailable(
                    f"keyring {self._path}: a reader keeps the write-ahead log in use; the destruction does not count, repeat it"
                )
            time.sleep(_TRUNCATE_PAUSE_S)
        # SQLite does not sync the truncation itself: after a power cut the old log, secrets included, could stand there again.
        descriptor = os.open(f"{self._path}-wal", os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _refuse_another_file(self) -> None:
        if _identity(self._path) != self._opened:
            raise KeyringUnavailable(f"keyring {self._path}: another file than the one that was opened; start this process anew")

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error | OSError):
            translated = KeyringUnavailable(f"keyring {self._path}: {error}")
            translated.__cause__ = error
            return translated
        return error


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _fail(jobs: list[_Job[Any]], error: Exception) -> None:
    for job in jobs:
        if job.answer.done():
            continue
        if job.answer.running() or job.answer.set_running_or_notify_cancel():
            job.answer.set_exception(error)
