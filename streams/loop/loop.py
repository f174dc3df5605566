"""The transaction that every writer shares.

Rules it upholds:

* outputs, changelog and consumed offsets commit together or not at all;
* the store is written only after the commit, data and offsets in one batch, so it is never ahead of the log;
* offsets are sent only for partitions owned at that moment, with the group's metadata of that moment: the broker checks
  the generation, but not whether the member owns what it commits;
* nothing pending outlives a rebalance: callbacks run inside `GroupConsumer.read`, and no batch is open there;
* a transaction that time alone has caused is fenced like any other: it sends the position of each of its partitions, below
  which everything is in the store.

Abortable error: abort, forget, rewind. A damaged store: abort, wipe that partition's store, restore it. Anything else: leave
the process; the log says at the next start what happened.
"""

import functools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import groupby

import structlog

from streams.clock import now_us
from streams.errors import BrokerUnavailable, Fatal, Retriable, StoreUnusable, StreamsError, TransactionAborted
from streams.files import claim
from streams.log.log import Log
from streams.log.reader import Place, Record
from streams.loop.crash import Crash, CrashPoint, NoCrash
from streams.loop.handler import Handler, Timekeeper
from streams.loop.observer import NoObserver, Observer
from streams.loop.restore import CHANGELOG, INPUT, WRITTEN_AT_MS, Restore
from streams.loop.step import Step
from streams.settings import Settings
from streams.store.store import Store, StoreIdentity

_log = structlog.get_logger(__name__)

_MAX_BATCH = 8000
"""Records in one transaction: it takes what has come, and under full load the more there are, the less of the time is waiting
for commits. What lies in the client's queue is bounded in bytes."""
_RESTORE_PIECE_S = 0.2
_ABORT_PAUSE_S = 0.05


class _StoreDamaged(Exception):
    """A partition's store was found unusable while it was decided from."""

    def __init__(self, partition: int, cause: StoreUnusable) -> None:
        super().__init__(cause.detail)
        self.partition, self.cause = partition, cause


class Loop:
    """Runs one handler in the calling thread until `stop` is set."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        handler: Handler,
        stop: threading.Event,
        *,
        crash: Crash | None = None,
        observer: Observer | None = None,
        client_id: str | None = None,
        pace_s: float = 0.0,
        timekeeper: Timekeeper | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Fences the predecessor of this instance. Raises StreamsError where the cluster is not there, `Misconfigured`
        where a process of this instance still runs on this data folder.

        `client_id` is what the group shows of this member (`streams.log.owners`), for those who read its stores.
        `pace_s`: the least time from one transaction to the next, for a handler whose readers can wait so long: what arrives
        meanwhile shares one, and the broker has more of itself left for others.
        `timekeeper`: the handler once more, where it has work without records. `clock`: what time it is, in microseconds.
        """
        self._settings, self._log, self._handler, self._stop = settings, log, handler, stop
        self._crash = crash or NoCrash()
        self._observer = observer or NoObserver()
        # Before the fence: a second process of one name must not stop the first, which is well.
        self._claim = claim(settings.store_path(handler.role, 0).parent / ".instance")
        self._cluster = log.cluster_id()
        self._changelog_id = log.topic_id(handler.changelog)
        self._producer = log.transactions(handler.role)
        self._producer.initialise()
        self._pace_s, self._not_before = pace_s, 0.0
        self._timekeeper, self._next_tick, self._now_us = timekeeper, 0.0, clock
        self._stores: dict[int, Store] = {}
        self._restores: dict[int, Restore] = {}
        self._waiting: set[int] = set()
        self._owned_since: dict[int, int] = {}
        self._resume_at: dict[int, int] = {}
        """Where a partition goes on whose store was damaged while it was read: a resume alone goes on behind what was taken."""
        member = client_id or f"{handler.role}.{settings.instance}"
        self._consumer = log.member(handler.role, handler.input, member, self._assigned, self._given_up)

    def run(self) -> None:
        """Returns once `stop` is set. Raises `Fatal` and what else ends a process."""
        _log.info("loop_started", role=self._handler.role, instance=self._settings.instance)
        try:
            while not self._stop.is_set():
                self.step()
        finally:
            self.close()

    def step(self, wait_s: float = 0.1) -> int:
        """One piece of restore, or one transaction of what arrives within `wait_s` and of what is due; returns how many records it
        decided."""
        self._advance_restores()
        if self._not_before:
            if self._stop.wait(max(0.0, self._not_before - time.monotonic())):
                return 0
            self._not_before = 0.0
        records = self._consumer.read(_MAX_BATCH, 0 if self._waiting or self._restores else wait_s)
        now = self._now_us()
        ticking = self._ticking(now) if self._timekeeper is not None else {}
        decided = self._transact(records, now, ticking) if records or ticking else 0
        if (decided or ticking) and self._pace_s:
            self._not_before = time.monotonic() + self._pace_s
        self._tell_positions()
        return decided

    def close(self) -> None:
        """Leaves the group and closes the stores. An open transaction stays open until the next of this instance comes."""
        with ExitStack() as closing:  # last in, first out, and every one, whatever another raises
            closing.callback(self._claim.close)
            closing.callback(self._producer.close)
            for store in self._stores.values():
                closing.callback(store.close)
            for restore in self._restores.values():
                closing.callback(restore.close)
            closing.callback(self._consumer.close)
        _log.info("loop_stopped", role=self._handler.role, instance=self._settings.instance)

    def _ticking(self, now: int) -> dict[int, int]:
        """Partitions that have something due, and where the next record of each begins."""
        assert self._timekeeper is not None
        if time.monotonic() < self._next_tick:
            return {}
        self._next_tick = time.monotonic() + self._timekeeper.tick_s
        found: dict[int, int] = {}
        for partition in self._restored():
            position = self._consumer.position(self._handler.input, partition)
            # Without a position there is nothing to be fenced by: the first look at the topic, empty or not, gives one.
            if position is not None and self._is_due(partition, now):
                found[partition] = position
        return found

    def _is_due(self, partition: int, now: int) -> bool:
        assert self._timekeeper is not None
        try:
            return self._timekeeper.is_due(partition, self._stores[partition], now)
        except StoreUnusable:
            return True  # whoever decides from it meets the damage, and there it is healed

    def _transact(self, records: list[Record], now: int, ticking: Mapping[int, int]) -> int:
        self._crash.reached(CrashPoint.AFTER_CONSUME)
        records.sort(key=lambda record: record.partition)  # stable: offsets of a partition stay in order
        batches = {partition: list(of) for partition, of in groupby(records, lambda record: record.partition)}
        for partition in ticking:
            batches.setdefault(partition, [])
        steps = [
            Step(partition, self._stores[partition], batch, now, self._owned_since[partition], self._send)
            for partition, batch in batches.items()
        ]
        offsets: dict[int, int] = {}
        try:
            # 1. Decide, on overlays, and produce: what has been decided is on its way while the next is.
            self._producer.begin()
            self._crash.reached(CrashPoint.AFTER_BEGIN)
            for step in steps:
                self._handle(step, step.partition in ticking)
                self._crash.reached(CrashPoint.AFTER_DECIDE)
                self._produce(step, offsets)
            self._crash.reached(CrashPoint.AFTER_PRODUCE)
            # 2. Attach the input's offsets, of what is owned now.
            consumed = {
                (self._handler.input, step.partition): step.records[-1].offset + 1 if step.records else ticking[step.partition]
                for step in steps
            }
            if not self._consumer.owned.issuperset(consumed):
                raise Fatal("a batch outlived its assignment")
            self._producer.send_offsets(consumed, self._consumer.metadata())
            self._crash.reached(CrashPoint.AFTER_SEND_OFFSETS)
            # 3. Commit.
            self._observer.committing(steps)
            self._producer.commit()
            self._crash.reached(CrashPoint.AFTER_COMMIT)
        except TransactionAborted as aborted:
            self._rewind(steps, aborted)
            return 0
        except Retriable as unavailable:
            # Something that the handler needs is not there now (the keyring): the batch waits.
            self._producer.abort()
            self._rewind(steps, unavailable)
            return 0
        except _StoreDamaged as damaged:
            self._producer.abort()
            self._rewind(steps, damaged.cause)
            batch = batches[damaged.partition]
            first = batch[0].offset if batch else ticking[damaged.partition]
            self._start_over(damaged.partition, damaged.cause, resume_at=first)
            return 0
        # 4. Only now the stores: data and offsets in one batch each.
        for step in steps:
            next_input = consumed[(self._handler.input, step.partition)]
            try:
                self._write(step, next_input, offsets.get(step.partition))
            except StoreUnusable as unusable:
                self._start_over(step.partition, unusable, resume_at=next_input)
            else:
                self._observer.written(step)
        self._crash.reached(CrashPoint.AFTER_STORE_WRITE)
        return len(records)

    def _handle(self, step: Step, ticks: bool) -> None:
        try:
            if step.records:
                self._handler.handle(step)
            if ticks and self._timekeeper is not None:
                self._timekeeper.tick(step)
        except StoreUnusable as unusable:
            raise _StoreDamaged(step.partition, unusable) from unusable

    def _produce(self, step: Step, offsets: dict[int, int]) -> None:
        self._send(step)
        changes = list(step.changelog.items())
        if changes:
            self._producer.produce_many(self._handler.changelog, step.partition, changes[:-1])
            key, value = changes[-1]
            # Offsets of a partition grow, so the last one's tells how far the changelog has come.
            noted = functools.partial(_note, offsets, step.partition)
            self._producer.produce(self._handler.changelog, step.partition, key, value, noted)

    def _send(self, step: Step) -> None:
        for (topic, partition), records in step.taken_outputs().items():
            self._producer.produce_many(topic, partition, records)

    def _write(self, step: Step, next_input: int, next_changelog: int | None) -> None:
        offsets = {INPUT: next_input, WRITTEN_AT_MS: step.now // 1000}
        if next_changelog is not None:
            offsets[CHANGELOG] = next_changelog
        elif step.changelog:
            raise Fatal(f"no delivery report for the changelog of partition {step.partition}")
        self._stores[step.partition].write([*step.changelog.items(), *step.local.items()], offsets)

    def _rewind(self, steps: list[Step], cause: StreamsError) -> None:
        self._handler.discard()
        _log.warning("batch_rewound", role=self._handler.role, partitions=[step.partition for step in steps], reason=cause.detail)
        starts: dict[Place, int] = {(self._handler.input, step.partition): step.records[0].offset for step in steps if step.records}
        self._consumer.seek(starts)
        self._stop.wait(_ABORT_PAUSE_S)

    def _tell_positions(self) -> None:
        # Between two reads everything that was handed out is decided and written, or rewound to be handed out again.
        for partition in self._restored():
            position = self._consumer.position(self._handler.input, partition)
            if position is not None:
                self._observer.reached(partition, position)

    def _restored(self) -> list[int]:
        return [partition for partition in self._stores if partition not in self._restores and partition not in self._waiting]

    def _assigned(self, places: list[Place]) -> dict[Place, int | None]:
        # Restores begin outside the callback, which has to be quick; every place comes paused.
        self._waiting = {partition for _, partition in places}
        _log.info("partitions_assigned", role=self._handler.role, partitions=sorted(self._waiting))
        self._observer.assigned(self._waiting)
        return dict.fromkeys(places)

    def _given_up(self, places: list[Place]) -> None:
        _log.info("partitions_given_up", role=self._handler.role, partitions=sorted(partition for _, partition in places))
        self._observer.given_up([partition for _, partition in places])
        for _, partition in places:
            self._waiting.discard(partition)
            self._resume_at.pop(partition, None)
            for held in (self._restores.pop(partition, None), self._stores.pop(partition, None)):
                if held is not None:
                    held.close()
        self._handler.discard()

    def _start_over(self, partition: int, cause: StoreUnusable, resume_at: int | None = None) -> None:
        """Wipes the partition's store and restores it, its input paused meanwhile."""
        _log.warning("store_rebuilt", role=self._handler.role, partition=partition, reason=cause.detail)
        if resume_at is not None:
            self._consumer.pause([(self._handler.input, partition)])
            self._resume_at[partition] = resume_at
        self._observer.given_up([partition])
        restore = self._restores.pop(partition, None)
        if restore is not None:
            restore.close()
        self._stores.pop(partition).wipe()
        self._handler.discard()
        self._waiting.add(partition)

    def _advance_restores(self) -> None:
        for partition in sorted(self._waiting):
            try:
                self._begin_restore(partition)
            except StoreUnusable as unusable:
                self._start_over(partition, unusable)
                return
            except BrokerUnavailable as error:
                _log.warning("restore_waits", role=self._handler.role, partition=partition, reason=error.detail)
                self._stop.wait(_RESTORE_PIECE_S)
                return
            self._waiting.discard(partition)
        # A share for each, then poll again: one that waits for a hung transaction holds up nobody else.
        for partition, restore in sorted(self._restores.items()):
            try:
                restored = restore.step(_RESTORE_PIECE_S / len(self._restores))
            except StoreUnusable as unusable:
                self._start_over(partition, unusable)
                return
            if restored:
                self._finish_restore(partition)

    def _finish_restore(self, partition: int) -> None:
        self._restores.pop(partition).close()
        self._owned_since[partition] = self._now_us()
        self._observer.restored(partition, self._stores[partition])
        place = (self._handler.input, partition)
        self._consumer.resume([place])
        if partition in self._resume_at:
            self._consumer.seek({place: self._resume_at.pop(partition)})

    def _begin_restore(self, partition: int) -> None:
        # The committed offset waits out a transaction of the predecessor that is about to move it, and is read before
        # the changelog's end: whatever made this offset true lies below that end.
        self._consumer.committed([(self._handler.input, partition)])
        store = self._stores.get(partition)
        if store is None:
            path = self._settings.store_path(self._handler.role, partition)
            identity = StoreIdentity(self._handler.role, self._handler.version, self._cluster, self._changelog_id, partition)
            store = self._stores[partition] = Store.open_or_rebuild(path, identity)
        self._restores[partition] = Restore(
            self._log, self._handler, partition, store, self._crash, horizon_s=self._settings.tombstone_horizon_s
        )


def _note(offsets: dict[int, int], partition: int, offset: int) -> None:
    offsets[partition] = offset + 1
