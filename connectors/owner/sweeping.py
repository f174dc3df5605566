"""Throws away uploads that no checkpoint names, now and then, in a thread of the custodian's process.

It judges uploads of sessions in partitions whose tables are known to be up to date, and of those only: another custodian, or
the next pass, does the others.
"""

import asyncio
import threading
from contextlib import closing
from typing import Final

import structlog

from streams.blobs import open_blob_store
from streams.clock import now_us
from streams.custodian.rows import upload_key
from streams.custody.keyring import SecretRef
from streams.errors import Retriable, StreamsError
from streams.keyrings import open_keyring
from streams.log.partitioner import partition_of
from streams.projections.tables import Tables
from streams.sealed_blobs import Snapshots, Swept, sweep
from streams.settings import Settings

_FIRST_S: Final = 60.0
"""Before the first pass: a process that comes back has to catch up first."""
_LOOK_S: Final = 0.2

_log = structlog.get_logger(__name__)


class NamedUploads:
    """Which uploads are no orphans, as the custodian's tables say."""

    def __init__(self, tables: Tables, partitions: int) -> None:
        self._tables, self._partitions = tables, partitions

    def is_referenced(self, session_id: str, upload_id: str) -> bool:
        """Also where it cannot be told now. The table holds what was committed less than a lease ago; an upload that comes to be
        named is so long before its grace is over."""
        try:
            with self._tables.reading(partition_of(session_id.encode(), self._partitions)) as table:
                return table.store.get(upload_key(session_id, upload_id)) is not None
        except Retriable:
            return True


class Sweeping:
    """From `start` until `close`."""

    def __init__(self, settings: Settings, uploads: NamedUploads) -> None:
        self._settings, self._uploads = settings, uploads
        self.passes = 0
        """Begun and ended, whole or not."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = min(_FIRST_S, self._settings.sweep_every_s)
        while not self._closing.wait(pause_s):
            pause_s = self._settings.sweep_every_s
            try:
                swept = asyncio.run(self._pass())
            except StreamsError as error:
                _log.warning("sweep_interrupted", code=error.code, reason=error.detail)
            else:
                if swept is not None:
                    _log.info("swept", uploads=swept.uploads, attempts=swept.attempts, texts=swept.texts)
            self.passes += 1

    async def _pass(self) -> Swept | None:
        """None where the process stops before the end; the next pass goes on. Raises `StreamsError`."""
        with closing(open_keyring(self._settings)) as keyring:
            grace_s = self._settings.orphan_grace_s
            snapshots = Snapshots(open_blob_store(self._settings), keyring, grace_s=grace_s)

            def day_is_gone(workspace_id: str, day: str) -> bool:
                return not keyring.secrets([SecretRef("day", workspace_id, day)], create=False)

            whole = sweep(snapshots, self._uploads.is_referenced, day_is_gone, grace_s=grace_s, now_us=now_us())
            task = asyncio.ensure_future(whole)
            while not self._closing.is_set():
                if (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                    return await task
            task.cancel()
            await asyncio.wait({task})
            return None
