"""Removes uploads, texts and secrets of capsules in a thread of its own, so that no transaction waits for a disk or a bucket.

What it is given is committed, and what it has done is told in a later transaction: a crash in between has it done again, which harms
nobody. An order to erase goes before what merely expired; of that, many go with one call of the keyring.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog
from msgspec import Struct

from streams.blobs import BlobStore
from streams.custody.keyring import Keyring, SecretRef
from streams.errors import Retriable, StreamsError
from streams.sealed_blobs import Discard, Snapshots

ERASURES_MAX: Final = 64
EXPIRIES_MAX: Final = 1_000
"""Jobs that wait here at most; the others wait in their stores."""
_ERASURES_AT_ONCE: Final = 16
_EXPIRIES_AT_ONCE: Final = 100
_PAUSE_S: Final = 2.0
_log = structlog.get_logger(__name__)


class Job(Struct, frozen=True):
    """`key` is the row that it is done for; `expired`: since time has passed. `checkpoints` are the keys of those whose uploads, or
    secrets, go; `secrets` are those of capsules."""

    partition: int
    key: bytes
    expired: bool
    discards: tuple[Discard, ...]
    checkpoints: tuple[bytes, ...] = ()
    secrets: tuple[SecretRef, ...] = ()
    whole: bool = True
    """Whether these were all that the row stands for, when it was made."""


class Done(Struct, frozen=True):
    """How many there were."""

    job: Job
    uploads: int
    texts: int


class Remover(Protocol):
    """Called from the loop's thread."""

    def room(self, *, expired: bool) -> int:
        """How many more jobs it takes now."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """To be done some time, at least once, unless `forget` comes first."""

    def has_done(self, partition: int) -> bool:
        """Whether `taken` gives something."""

    def taken(self, partition: int, limit: int) -> list[Done]:
        """What is done; it is told once."""

    def forget(self) -> None:
        """What was given and what is done: the stores tell again."""


class Removing:
    """From `start` until `close`. One thread works; `submit` and what is asked of it are called from another."""

    def __init__(self, open_blobs: Callable[[], BlobStore], open_keyring: Callable[[], Keyring]) -> None:
        """Both are opened in its thread: the store belongs to its event loop. The keyring is closed in the end."""
        self._open_blobs, self._open_keyring = open_blobs, open_keyring
        self._changed = threading.Condition()
        self._waiting: dict[bool, deque[Job]] = {False: deque(), True: deque()}
        self._done: dict[int, list[Done]] = {}
        self._epoch, self._closing = 0, False
        self._thread = threading.Thread(target=self._run, name="removing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def room(self, *, expired: bool) -> int:
        return (EXPIRIES_MAX if expired else ERASURES_MAX) - len(self._waiting[expired])

    def submit(self, jobs: Sequence[Job]) -> None:
        with self._changed:
            for job in jobs:
                self._waiting[job.expired].append(job)
            self._changed.notify_all()

    def has_done(self, partition: int) -> bool:
        return partition in self._done

    def taken(self, partition: int, limit: int) -> list[Done]:
        with self._changed:
            done = self._done.pop(partition, [])
            if len(done) > limit:
                self._done[partition] = done[limit:]
            return done[:limit]

    def forget(self) -> None:
        with self._changed:
            self._epoch += 1
            for waiting in self._waiting.values():
                waiting.clear()
            self._done.clear()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            keyring: Keyring | None = None
            snapshots: Snapshots | None = None
            while (given := self._next()) is not None:
                epoch, jobs = given
                try:
                    if keyring is None or snapshots is None:
                        keyring = self._open_keyring()
                        # Nobody asks here how old an upload is.
                        snapshots = Snapshots(self._open_blobs(), keyring, grace_s=0)
                    done = runner.run(removed(snapshots, keyring, jobs))
                except Retriable as error:
                    _log.warning("removal_interrupted", code=error.code, reason=error.detail, jobs=len(jobs))
                    self._again(epoch, jobs)
                except StreamsError as error:
                    # Nothing is done for these rows until a person has looked: an erasure stays open, and says so.
                    _log.error("removal_failed", code=error.code, reason=error.detail, jobs=len(jobs))
                    self._again(epoch, jobs)
                else:
                    self._tell(epoch, done)
            if keyring is not None:
                keyring.close()

    def _next(self) -> tuple[int, list[Job]] | None:
        with self._changed:
            while not self._closing:
                for expired, at_once in ((False, _ERASURES_AT_ONCE), (True, _EXPIRIES_AT_ONCE)):
                    waiting = self._waiting[expired]
                    if waiting:
                        return self._epoch, [waiting.popleft() for _ in range(min(at_once, len(waiting)))]
                self._changed.wait()
            return None

    def _again(self, epoch: int, jobs: Sequence[Job]) -> None:
        with self._changed:
            if epoch == self._epoch:
                for job in jobs:
                    self._waiting[job.expired].append(job)
            self._changed.wait_for(lambda: self._closing, _PAUSE_S)

    def _tell(self, epoch: int, done: Sequence[Done]) -> None:
        with self._changed:
            if epoch == self._epoch:
                for each in done:
                    self._done.setdefault(each.job.partition, []).append(each)


async def removed(snapshots: Snapshots, keyring: Keyring, jobs: Sequence[Job]) -> list[Done]:
    """Raises what the store and the keyring raise; nothing counts as done then. Nothing else has to run meanwhile, so the keyring may
    block."""
    secrets = {secret for job in jobs for secret in job.secrets}
    if secrets:
        keyring.destroy(secrets)
    found = iter(await snapshots.discard_all([discard for job in jobs for discard in job.discards]))
    done = []
    for job in jobs:
        parts = [next(found) for _ in job.discards]
        done.append(Done(job, sum(part.uploads for part in parts), sum(part.texts for part in parts)))
    return done
