"""Hands on what has to be removed, and makes rows of what is done: of erased sessions, and of checkpoints and capsules whose time is over.

Only what is committed is handed on, and what is done goes away in one transaction with the record of it in `sessions.retention`. So a
crash anywhere has the same done again, and (item, deadline) is told once.

Design 04: "Ended eligibility and proven physical deletion are two facts with two timestamps." A checkpoint's own `expires_at` ends it,
whoever reads; here its uploads go, after a grace, at a bounded rate, and only while this clock agrees with the broker's. So does the
secret of a capsule, without which neither the capsule nor custody of an import of it has anything left that opens.
"""

from collections.abc import Callable
from typing import Final

import structlog
from msgspec import structs

from streams.custodian.armed import Floors, Rows
from streams.custodian.following import Following
from streams.custodian.jobs import CHECKPOINTS_AT_ONCE, capsule_of, erasure_job, expiry_job
from streams.custodian.removing import Done, Remover
from streams.custodian.rows import (
    ERASE,
    EXPIRE,
    REMOVE,
    Erasing,
    Expiring,
    NamedUpload,
    encode,
    expiry_key,
    found,
    kind_of,
    upload_key,
)
from streams.custodian.timers import due_before, timer_of
from streams.log.retention import CAPSULE, CHECKPOINT, ERASED, EXPIRED, Order, RetentionRow, encode_retention, erasure_id_of
from streams.log.topics import Topics
from streams.session.commands import Kind
from streams.session.events import CapsuleAttributes, CheckpointAttributes, Event
from streams.settings import Settings
from streams.store.table import Reads

_BURST_S, _BURST_MIN = 0.2, 50.0
"""How much of what may go in a second goes at once, and how many may in any case: the disk is others' too."""
_DONE_AT_ONCE: Final = 500
"""Jobs whose end becomes rows in one transaction of a partition."""
_log = structlog.get_logger(__name__)


class Destroying:
    """Of all partitions. What it keeps in memory is made of the rows again."""

    def __init__(
        self, settings: Settings, remover: Remover | None, following: Following, floors: Floors, *,
        may_destroy: Callable[[int], bool], order: Callable[[int], Order | None],
    ) -> None:  # fmt: skip
        """`may_destroy` is asked with the time in microseconds: whether it may be believed. `order` tells one by its number."""
        self._retention = Topics(settings.topic_prefix).retention
        self._grace_us = int(settings.destruction_grace_s * 1_000_000)
        self._lease_us = int(settings.lease_s * 1_000_000)
        self._per_s = settings.expiries_per_s
        self._remover, self._following, self._floors = remover, following, floors
        self._may_destroy, self._order = may_destroy, order
        self._given: set[bytes] = set()
        """Keys that are being worked on."""
        self._alarmed = False
        self._allowed, self._allowed_at = 0.0, 0
        """How many checkpoints and capsules may go, and when that was counted (microseconds)."""

    def created(self, rows: Rows, event: Event, attributes: CheckpointAttributes) -> None:
        """A checkpoint of the session's own: its uploads are named, and go when it has expired."""
        session_id, checkpoint_id = event.session_id, attributes.checkpoint_id or ""
        uploads = tuple([each for each in (attributes.snapshot_id, attributes.native_id) if each is not None])
        expires_at = attributes.expires_at
        for upload_id in uploads:
            key = upload_key(session_id, upload_id)
            named = found(rows.step.get, key, NamedUpload)
            if named is None or (named.expires_at or 0) <= (expires_at or 0):
                rows.put(key, encode(NamedUpload(checkpoint_id=checkpoint_id, expires_at=expires_at)))
        if uploads and expires_at is not None:
            expiring = Expiring(
                workspace_id=event.workspace_id, expires_at=expires_at, due_at=expires_at + self._grace_us, sequence=event.sequence,
                uploads=uploads,
            )  # fmt: skip
            rows.put(expiry_key(session_id, checkpoint_id), encode(expiring))

    def capsule(self, rows: Rows, event: Event, attributes: CapsuleAttributes) -> None:
        """One is made: its secret goes once it is over. No import of it ends later, and that of a session which is erased ends with that
        session's own secret."""
        if attributes.capsule_id is not None and attributes.expires_at is not None:
            expiring = Expiring(
                workspace_id=event.workspace_id, expires_at=attributes.expires_at, due_at=attributes.expires_at + self._grace_us,
                sequence=event.sequence, uploads=(),
            )  # fmt: skip
            rows.put(expiry_key(event.session_id, attributes.capsule_id), encode(expiring))

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        """Hands on what is due, and says whether something is done."""
        if self._remover is None:
            return False
        room = self._remover.room(expired=False)
        if room > 0:
            keys = self._next(partition, store, REMOVE, now, room)
            self._remover.submit([erasure_job(partition, store, key) for key in keys])
        room = min(self._remover.room(expired=True), self._allowance(now))
        if room > 0:
            self._expire(partition, store, now, room)
        return self._remover.has_done(partition)

    def tick(self, rows: Rows) -> None:
        if self._remover is None:
            return
        for done in self._remover.taken(rows.step.partition, _DONE_AT_ONCE):
            self._given.discard(done.job.key)
            if kind_of(done.job.key) == ERASE:
                self._erased(rows, done)
            else:
                self._expired(rows, done)

    def discard(self) -> None:
        self._given.clear()
        if self._remover is not None:
            self._remover.forget()

    # -- what is due ------------------------------------------------------------------------------------------------------

    def _expire(self, partition: int, store: Reads, now: int, room: int) -> None:
        assert self._remover is not None
        may = self._may_destroy(now)
        keys = self._next(partition, store, EXPIRE, now, room if may else 1)
        if may:
            self._allowed -= len(keys)
            self._remover.submit([expiry_job(partition, store, key) for key in keys])
            self._alarmed = False
        elif keys:
            self._given.difference_update(keys)
            self._floors.cursors.pop((partition, EXPIRE), None)
            if not self._alarmed:
                _log.error("clock_disagrees", role="custodian", why="nothing that has expired goes until it agrees with the broker's")
            self._alarmed = True

    def _allowance(self, now: int) -> int:
        passed_s = max(0, now - self._allowed_at) / 1_000_000
        burst = max(min(self._per_s, _BURST_MIN), self._per_s * _BURST_S)
        self._allowed, self._allowed_at = min(burst, self._allowed + passed_s * self._per_s), now
        return int(self._allowed)

    def _next(self, partition: int, store: Reads, index: bytes, now: int, count: int) -> list[bytes]:
        """The next keys that are due; they are not given again."""
        cursor = self._floors.cursors.get((partition, index), index)
        keys: list[bytes] = []
        with store.scan(index, start=cursor) as due:
            for row, _ in due:
                cursor = row
                if due_before(row, index) > now or len(keys) == count:
                    break
                cursor += b"\0"
                key = timer_of(row, index)
                if key not in self._given:
                    keys.append(key)
        self._floors.cursors[partition, index] = cursor
        self._given.update(keys)
        return keys

    # -- what is done -----------------------------------------------------------------------------------------------------

    def _erased(self, rows: Rows, done: Done) -> None:
        key = done.job.key
        erasing = found(rows.step.get, key, Erasing)
        if erasing is None:
            return
        order = self._order(int(key.rpartition(b"/")[2]))
        erasure_id = None if order is None else erasure_id_of(order.workspace_id, order.kind, order.id)
        told = [(each, self._ended(rows, each, ERASED, erasing.armed_at, erasure_id)) for each in done.job.checkpoints]
        ended = sum([is_ended for each, is_ended in told if capsule_of(each) is None])
        self._following.counted(rows, key, {"checkpoints": ended, "uploads": done.uploads, "texts": done.texts})
        if erasing.through is None:
            return  # something came that the authority has to be asked for once more
        # Once more when the last gateway that had not heard of it has, or serves no more: what it took in until then goes, too.
        final_from = erasing.armed_at + self._lease_us if erasing.kind == Kind.ERASE else 0
        if not done.job.whole or self._has_more(rows, key, erasing):
            rows.put(key, encode(structs.replace(erasing, due_at=erasing.due_at + 1)))
        elif erasing.due_at < final_from:
            rows.put(key, encode(structs.replace(erasing, due_at=final_from)))
        else:
            self._following.finished(rows, key, erasing)

    def _has_more(self, rows: Rows, key: bytes, erasing: Erasing) -> bool:
        """Whether a checkpoint or a capsule came since it was looked through."""
        step, prefix = rows.step, expiry_key(key.partition(b"/")[0].decode(), "")
        stored = [each for each, _ in step.first_few(prefix, 2 * CHECKPOINTS_AT_ONCE)]
        for each in [*stored, *[put for put in step.changelog if put.startswith(prefix)]]:
            expiring = found(step.get, each, Expiring)
            if expiring is not None and (erasing.kind == Kind.ERASE or expiring.sequence <= (erasing.through or 0)):
                return True
        return False

    def _expired(self, rows: Rows, done: Done) -> None:
        expiring = found(rows.step.get, done.job.key, Expiring)
        if expiring is not None:
            self._ended(rows, done.job.key, EXPIRED, expiring.expires_at, None)

    def _ended(self, rows: Rows, key: bytes, state: str, ended_at: int, erasure_id: str | None) -> bool:
        """Tells of a checkpoint whose uploads are gone, or a capsule whose secret is. False where that is told already."""
        step, (session_id, _, ended_id) = rows.step, key.decode().split("/", 2)
        expiring = found(step.get, key, Expiring)
        if expiring is None:
            return False
        for upload_id in expiring.uploads:
            named = found(step.get, upload_key(session_id, upload_id), NamedUpload)
            if named is not None and (named.expires_at or 0) <= expiring.expires_at:
                # Nothing names it any more: whatever were left of it, the sweep takes for an orphan.
                rows.put(upload_key(session_id, upload_id), None)
        rows.put(key, None)
        row = RetentionRow(
            kind=CHECKPOINT if capsule_of(key) is None else CAPSULE, workspace_id=expiring.workspace_id, id=ended_id, state=state,
            erasure_id=erasure_id, ended_at=ended_at, destroyed_at=step.now,
        )  # fmt: skip
        step.produce(self._retention, 0, row.key, encode_retention(row))
        return True
