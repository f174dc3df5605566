"""The driver: what is asked becomes an erasure, what is over is destroyed, and every holder is told in one order.

A handler of the shared loop for `workspaces.commands`, whose one partition has one owner: two custodians never act twice. What is
destroyed is so before the transaction that tells of it commits, and after the one that accepted it has: wherever a process dies, the next
one destroys once more, which changes nothing, and tells once.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from streams.clock import boottime_s
from streams.custody.days import day_end_us
from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sealing import Sealer
from streams.errors import KeyringUnavailable, RecordUnreadable
from streams.log.confirmations import ClockOffset
from streams.log.position import Position
from streams.log.reader import Record, Row
from streams.log.retention import (
    ACCEPTED,
    COMPLETE,
    DESTROYED,
    ENFORCED,
    ERASED,
    EXPIRED,
    KNOWN,
    LATE,
    REISSUE,
    REQUESTED,
    SUBJECT,
    RetentionRow,
    WorkspaceCommand,
    WorkspaceOutcome,
    decode_workspace_command,
    encode_retention,
    encode_workspace_outcomes,
    erasure_id_of,
)
from streams.log.topics import Topics
from streams.loop.handler import Get
from streams.loop.setting_aside import set_aside
from streams.loop.step import Step
from streams.retention import core, entries
from streams.retention.believed import BelievedClock
from streams.retention.brokers import SeenBrokers, absences
from streams.retention.days import OverDays
from streams.retention.entries import UnderWay
from streams.retention.progress import Progress, Said
from streams.retention.receipts import CurrentKey, receipt
from streams.settings import Settings
from streams.store.table import Put, Reads

ROLE: Final = "retention"
LAYOUT_VERSION: Final = 2
"""Of the rows in its store: another one, and the store is made anew from the changelog."""
NOBODY: Final = "ws_" + "0" * 32
"""Stands for the workspace of what concerns all of them."""

_AT_ONCE: Final = 200
"""Erasures that are destroyed, or go a step further, in one transaction."""
_KEYRING_PAUSE_S: Final = 1.0
"""After it could not destroy: what is asked meanwhile is accepted."""

_log = structlog.get_logger(__name__)


class Driver:
    """Handler and timekeeper of the loop for `workspaces.commands`. `elapsed` is the clock of leases, in seconds."""

    role = ROLE
    version = LAYOUT_VERSION
    tick_s = 0.02

    def __init__(
        self,
        settings: Settings,
        keyring: Keyring,
        said: Said,
        current_key: CurrentKey,
        clock_offset: Callable[[], ClockOffset | None],
        *,
        brokers: SeenBrokers | None = None,
        elapsed: Callable[[], float] = boottime_s,
    ) -> None:
        """`clock_offset`: how far the broker's clock is ahead, as measured last; what asks for it has it measured anew."""
        topics = Topics(settings.topic_prefix)
        self.input, self.changelog = topics.workspace_commands, topics.custody
        self._outcomes, self._retention, self._deadletter = topics.workspace_outcomes, topics.retention, topics.deadletter
        self._settings, self._keyring, self._key = settings, keyring, current_key
        self._sealer = Sealer(keyring, cache_seconds=settings.lease_s)
        self._brokers, self._elapsed = brokers, elapsed
        self.clock = BelievedClock(settings, clock_offset, elapsed)
        self.days = OverDays(settings, keyring, self.clock, elapsed)
        self.progress = Progress(settings, said, self.clock, elapsed)
        self._loaded = False
        self._due: list[UnderWay] = []
        self._destroys_from_s = 0.0
        self.destroyed_days = self.destroyed_scopes = 0

    # -- what is asked ----------------------------------------------------------------------------------------------------

    def handle(self, step: Step) -> None:
        self._load(step)
        answers: dict[str, list[WorkspaceOutcome]] = {}
        for record in step.records:
            try:
                command, scope = _read(record)
            except RecordUnreadable as error:
                set_aside(step, record, error, self._sealer, self._deadletter)
                continue
            outcome = self._decide(step, command, scope, record.offset)
            if command.reply_to:
                answers.setdefault(command.reply_to, []).append(outcome)
        for reply_to, outcomes in answers.items():
            step.produce(self._outcomes, step.partition, reply_to.encode(), encode_workspace_outcomes(reply_to, outcomes))

    def _decide(self, step: Step, command: WorkspaceCommand, scope: str, offset: int) -> WorkspaceOutcome:
        erasure_id = erasure_id_of(command.workspace_id, scope, command.target_id)
        if step.get(entries.erasure_key(erasure_id)) is not None:
            status = KNOWN
        elif step.now >= command.not_after:
            status = LATE
        else:
            status = ACCEPTED
            row = core.accepted(command, scope, step.now, str(Position(self.input, step.partition, offset)))
            self._put(step, self._receipted(row, ACCEPTED, step.now))
        return WorkspaceOutcome(
            command_id=command.command_id,
            correlation=command.correlation,
            status=status,
            erasure_id=None if status == LATE else erasure_id,
            position_offset=offset,
            decided_at=step.now,
        )

    # -- what is due ------------------------------------------------------------------------------------------------------

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        self._load(store)
        destroys = self._elapsed() >= self._destroys_from_s
        self._due = self.progress.due(now, _AT_ONCE, destroys=destroys)
        days = destroys and self.days.look(now)
        return bool(self._due or days or self.progress.new_sinks() or self.progress.sinks_left() or self._brokers_due(now))

    def tick(self, step: Step) -> None:
        rows = self._rows_due(step)
        fresh = [row for row in rows if row.state == ACCEPTED]
        days, found = self.days.taken()
        self._destroy([*map(_secret_of, fresh), *days])
        for row in fresh:
            self._order_erased(step, row)
        for ref in days:
            self._order_expired(step, ref)
        for ref in found:
            step.put(entries.day_key(ref), entries.number_entry("day", 0, step.now))
        for row in rows:
            if row.state == DESTROYED:
                awaiting = self.progress.to_enforce(row)
                after = core.enforced(row, step.now)
                self._put(step, self._receipted(after, ENFORCED, step.now, awaiting.confirmed, awaiting.lapsed))
            elif row.state == ENFORCED:
                after = core.complete(row, self.progress.confirmed(core.number_of(row)), step.now)
                self._put(step, self._receipted(after, COMPLETE, step.now, self.progress.purgers()))
        self._note_sinks(step)
        self._note_brokers(step)

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            yield from entries.restored(key, value)

    def discard(self) -> None:
        self._loaded, self._due = False, []

    def awaited(self, row: RetentionRow, now: int) -> tuple[str, ...]:
        """Who is waited for until the erasure's next state. From any thread, as `told`."""
        if row.state == ACCEPTED:
            return (core.KEYRING,) if self._elapsed() < self._destroys_from_s else ()
        return self.progress.awaited(row, now)

    def told(self, row: RetentionRow) -> RetentionRow:
        """With what was removed so far."""
        if row.erasure is None or row.state in (ACCEPTED, COMPLETE):
            return row
        return core.with_reports(row, self.progress.confirmed(core.number_of(row)))

    def under_way(self, state: str) -> list[UnderWay]:
        """None where another process has the partition."""
        return self.progress.of_state(state) if self._loaded else []

    def _rows_due(self, step: Step) -> list[RetentionRow]:
        """Records of this step may have changed what was due; what is further is due again at the next tick."""
        due, self._due = self._due, []
        values = step.get_many([entries.erasure_key(each.id) for each in due])
        rows = [(entries.erasure_in(value), each) for value, each in zip(values, due, strict=True) if value is not None]
        return [row for row, each in rows if row.state == each.state]

    def _destroy(self, refs: list[SecretRef]) -> None:
        try:
            if refs:
                self._keyring.destroy(refs)
        except KeyringUnavailable:
            self._destroys_from_s = self._elapsed() + _KEYRING_PAUSE_S
            raise

    # -- what is told -----------------------------------------------------------------------------------------------------

    def _order_erased(self, step: Step, row: RetentionRow) -> None:
        erasure = row.erasure
        assert erasure is not None
        self.destroyed_scopes += 1
        order = self._next_order(step)
        self._put(step, core.destroyed(row, order, step.now))
        self._tell(
            step,
            RetentionRow(
                kind=erasure.scope, workspace_id=row.workspace_id, id=erasure.scope_id, state=ERASED, order=order, erasure_id=row.id,
                ended_at=row.ended_at, destroyed_at=step.now, position=row.position,
            ),
        )  # fmt: skip

    def _order_expired(self, step: Step, ref: SecretRef) -> None:
        self.destroyed_days += 1
        step.put(entries.day_key(ref), None)
        self._tell(
            step,
            RetentionRow(
                kind=ref.kind, workspace_id=ref.workspace_id, id=ref.id, state=EXPIRED, order=self._next_order(step),
                ended_at=day_end_us(ref.id), destroyed_at=step.now,
            ),
        )  # fmt: skip

    def _receipted(self, row: RetentionRow, name: str, now: int, holders: Iterable[str] = (), lapsed: Iterable[str] = ()) -> RetentionRow:
        return core.with_receipt(row, receipt(row, name, self._key(), now, holders=tuple(holders), lapsed=tuple(lapsed)))

    def _put(self, step: Step, row: RetentionRow) -> None:
        each = entries.under_way(row)
        step.put(entries.erasure_key(row.id), entries.erasure_entry(row))
        step.put_local(*entries.pending_put(each))
        self.progress.put(each)
        self._tell(step, row)

    def _tell(self, step: Step, row: RetentionRow) -> None:
        step.produce(self._retention, 0, row.key, encode_retention(row))

    def _next_order(self, step: Step) -> int:
        order = entries.number_in(step.get(entries.ORDERS)) + 1
        step.put(entries.ORDERS, entries.number_entry("orders", order))
        return order

    # -- sinks, brokers -----------------------------------------------------------------------------------------------------

    def _note_sinks(self, step: Step) -> None:
        new, left = self.progress.new_sinks(), self.progress.sinks_left()
        for sink in new:
            step.put(entries.sink_key(sink), entries.number_entry("sink", 0))
        for sink in left:
            step.put(entries.sink_key(sink), None)
        self.progress.stored(sinks=new, left=left)

    def _brokers_due(self, now: int) -> bool:
        return self._brokers is not None and self._brokers.is_due(now)

    def _note_brokers(self, step: Step) -> None:
        """A broker that was away for long may bring back what compaction has removed elsewhere: it is removed once more."""
        if self._brokers is None or not self._brokers.is_due(step.now):
            return
        for broker_id in self._brokers.seen(step.now):
            key = entries.broker_key(broker_id)
            before = step.get(key)
            last = None if before is None else entries.at_in(before)
            step.put(key, entries.number_entry("broker", broker_id, step.now))
            if last is not None and absences(last, step.now, self._settings):
                _log.warning("broker_returned", broker=broker_id, away_s=(step.now - last) / 1e6)
                row = RetentionRow(
                    kind=REISSUE, workspace_id=NOBODY, id=f"broker-{broker_id}-{step.now}", state=REQUESTED, order=self._next_order(step),
                    ended_at=step.now,
                )  # fmt: skip
                self._tell(step, row)

    def _load(self, store: Reads | Step) -> None:
        if self._loaded:
            return
        pending = [entries.pending_in(value) for _, value in _all(store, entries.PENDING)]
        self.progress.load(pending, (key[len(entries.SINKS) :].decode() for key, _ in _all(store, entries.SINKS)))
        self.days.load(entries.day_of_key(key) for key, _ in _all(store, entries.DAYS))
        self._loaded = True


def _read(record: Record) -> tuple[WorkspaceCommand, str]:
    if record.value is None or record.key is None:
        raise RecordUnreadable("command.empty: neither key nor value may be null")
    command = decode_workspace_command(record.value)
    if command.workspace_id.encode() != record.key:
        raise RecordUnreadable("command.wrong_key: the key is not the command's workspace")
    scope = core.scope_of(command)
    if scope is None or not core.is_target(command, scope):
        raise RecordUnreadable("field.misplaced: action or target_id", code="field.misplaced")
    return command, scope


def _secret_of(row: RetentionRow) -> SecretRef:
    erasure = row.erasure
    assert erasure is not None
    return SecretRef("subject" if erasure.scope == SUBJECT else "session", row.workspace_id, erasure.scope_id)


def _all(store: Reads | Step, prefix: bytes) -> list[tuple[bytes, bytes]]:
    if isinstance(store, Step):
        return store.first_few(prefix, sys.maxsize)
    with store.scan(prefix) as rows:
        return list(rows)
