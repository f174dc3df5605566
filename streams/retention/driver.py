"""The driver: what is asked becomes an erasure, what is over is destroyed, and every holder is told in one order.

A handler of the shared loop for `workspaces.commands`, whose one partition has one owner: two custodians never act twice. What is
destroyed is so before the transaction that tells of it commits, and after the one that accepted it has: wherever a process dies, the next
one destroys once more, which changes nothing, and tells once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import structlog

from streams.clock import boottime_s
from streams.custody.days import day_end_us
from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sealing import Sealer
from streams.errors import RecordUnreadable
from streams.holders.clocks import clocks_agree
from streams.holders.partitions import holder_id
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
    Purged,
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
from streams.retention.bound import compaction_bound_s
from streams.retention.brokers import SeenBrokers, absences
from streams.retention.receipts import CurrentKey, receipt
from streams.session.days import day_of, written
from streams.settings import Settings
from streams.store.table import Put, Reads

ROLE: Final = "retention"
LAYOUT_VERSION: Final = 1
"""Of the rows in its store: another one, and the store is made anew from the changelog."""
HOLDING_ROLES: Final = ("custodian", "agents")
"""Whose partitions every installation has."""
NOBODY: Final = "ws_" + "0" * 32
"""Stands for the workspace of what concerns all of them."""

_AT_ONCE: Final = 200
"""Erasures that are destroyed, or go a step further, in one transaction."""
_DAYS_AT_ONCE: Final = 500
_DAYS_EVERY_S: Final = 5.0
_COMPLETION_EVERY_S: Final = 0.25
_PENDING_MAX: Final = 100_000

_log = structlog.get_logger(__name__)


class Said(Protocol):
    """What holders have said (`streams.holders.confirmed`)."""

    hurried: bool
    known_as_of_s: float

    def caches(self) -> dict[str, int]: ...
    def partitions(self) -> dict[str, int]: ...
    def sinks(self) -> dict[str, int]: ...
    def sinks_left(self) -> set[str]: ...
    def reports(self, order: int) -> dict[str, Purged]: ...


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
        self._settings, self._keyring, self._said, self._key = settings, keyring, said, current_key
        self._sealer = Sealer(keyring, cache_seconds=settings.lease_s)
        self._clock_offset, self._brokers, self._elapsed = clock_offset, brokers, elapsed
        self._expected = [holder_id(role, each) for role in HOLDING_ROLES for each in range(settings.partitions)]
        self._bound_us = int(compaction_bound_s(settings) * 1_000_000)
        self._pending: dict[str, RetentionRow] | None = None
        """Erasures that are not complete; None: to be read from the store."""
        self._since_s: dict[str, float] = {}
        """Erasure -> since when its order is known to be committed."""
        self._due: list[RetentionRow] = []
        self._next_days_s = self._next_completion_s = 0.0
        self._days: list[SecretRef] = []
        self._stored_sinks: set[str] = set()
        self.stopped = False
        """Whether nothing is destroyed because this clock and the broker's disagree."""
        self.destroyed_days = 0

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
        self._due = self._steps_due(now)
        self._look_for_days(now)
        return bool(self._due or self._days or self._sinks_changed(store) or self._brokers_due(store, now))

    def tick(self, step: Step) -> None:
        due, self._due = self._due, []
        days, self._days = self._days, []
        # Records of this step may have changed what was due; a row that is further is due again at the next tick.
        rows = [row for row in due if self._pending is not None and self._pending.get(row.id) == row]
        fresh = [row for row in rows if row.state == ACCEPTED]
        refs = [_secret_of(row) for row in fresh] + days
        if refs:
            self._keyring.destroy(refs)
        for row in fresh:
            self._order_erased(step, row)
        for ref in days:
            self._order_expired(step, ref)
        for row in rows:
            if row.state == DESTROYED:
                awaiting = self._awaited_to_enforce(row)
                confirmed = [holder for holder in self._said.caches() if holder not in awaiting.lapsed]
                after = core.enforced(row, step.now)
                self._put(step, self._receipted(after, ENFORCED, step.now, confirmed, awaiting.lapsed))
            elif row.state == ENFORCED:
                after = core.complete(row, self._confirmed(row), step.now)
                self._put(step, self._receipted(after, COMPLETE, step.now, [*self._expected, *self._said.sinks()]))
        self._note_sinks(step)
        self._note_brokers(step)

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            yield from entries.restored(key, value)

    def discard(self) -> None:
        self._pending, self._due, self._days = None, [], []

    def awaited(self, row: RetentionRow, now: int) -> tuple[str, ...]:
        """Who is waited for until the erasure's next state, or, where it is enforced, until it is complete."""
        if row.state == DESTROYED:
            return self._awaited_to_enforce(row).holders or ("lease",)
        if row.state == ENFORCED:
            return self._awaited_to_complete(row, now).holders
        return ()

    def told(self, row: RetentionRow) -> RetentionRow:
        """With what was removed so far."""
        if row.erasure is None or row.state in (ACCEPTED, COMPLETE):
            return row
        return core.with_reports(row, self._confirmed(row))

    @property
    def pending(self) -> list[RetentionRow]:
        return list((self._pending or {}).values())

    def _steps_due(self, now: int) -> list[RetentionRow]:
        pending, now_s = self._pending or {}, self._elapsed()
        self._said.hurried = any(row.state == DESTROYED for row in pending.values())
        for row in pending.values():
            if row.state == DESTROYED:
                self._since_s.setdefault(row.id, now_s)
        looks = now_s >= self._next_completion_s
        if looks:
            self._next_completion_s = now_s + _COMPLETION_EVERY_S
        due = []
        for row in pending.values():
            if (
                row.state == ACCEPTED
                or (row.state == DESTROYED and self._is_enforced(row))
                or (row.state == ENFORCED and looks and not self._awaited_to_complete(row, now).holders)
            ):
                due.append(row)
                if len(due) == _AT_ONCE:
                    break
        return due

    def _is_enforced(self, row: RetentionRow) -> bool:
        awaiting = self._awaited_to_enforce(row)
        # Whoever registered before the order was committed has to be known.
        known = self._said.known_as_of_s >= self._since_s.get(row.id, float("inf"))
        return not awaiting.holders and (known or self._lease_is_over(row))

    def _awaited_to_enforce(self, row: RetentionRow) -> core.Awaiting:
        confirmed = core.Confirmed(caches=self._said.caches())
        return core.awaited_to_enforce(row, confirmed, a_lease_is_over=self._lease_is_over(row))

    def _lease_is_over(self, row: RetentionRow) -> bool:
        since_s = self._since_s.get(row.id)
        return since_s is not None and self._elapsed() - since_s >= self._settings.lease_s

    def _awaited_to_complete(self, row: RetentionRow, now: int) -> core.Awaiting:
        return core.awaited_to_complete(row, self._confirmed(row), self._expected, now, self._bound_us)

    def _confirmed(self, row: RetentionRow) -> core.Confirmed:
        order = 0 if row.erasure is None else row.erasure.order
        sinks = {**dict.fromkeys(self._stored_sinks, 0), **self._said.sinks()}
        return core.Confirmed(partitions=self._said.partitions(), sinks=sinks, reports={order: self._said.reports(order)})

    # -- what is told -----------------------------------------------------------------------------------------------------

    def _order_erased(self, step: Step, row: RetentionRow) -> None:
        erasure = row.erasure
        assert erasure is not None
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
        step.put(entries.erasure_key(row.id), entries.erasure_entry(row))
        done = row.state == COMPLETE
        step.put_local(entries.pending_key(row.id), None if done else b"")
        assert self._pending is not None
        if done:
            del self._pending[row.id]
            self._since_s.pop(row.id, None)
        else:
            self._pending[row.id] = row
        self._tell(step, row)

    def _tell(self, step: Step, row: RetentionRow) -> None:
        step.produce(self._retention, 0, row.key, encode_retention(row))

    def _next_order(self, step: Step) -> int:
        order = entries.number_in(step.get(entries.ORDERS)) + 1
        step.put(entries.ORDERS, entries.number_entry("orders", order))
        return order

    # -- days, sinks, brokers -----------------------------------------------------------------------------------------------

    def _look_for_days(self, now: int) -> None:
        now_s = self._elapsed()
        if self._days or now_s < self._next_days_s:
            return
        limit = max(1, min(_DAYS_AT_ONCE, int(self._settings.expiries_per_s)))
        found = self._keyring.days_before(written(day_of(now - int(self._settings.destruction_grace_s * 1_000_000))), limit)
        self._next_days_s = now_s + (limit / self._settings.expiries_per_s if len(found) == limit else _DAYS_EVERY_S)
        if found and not self._may_destroy(now, now_s):
            self._next_days_s = now_s + 1.0
            return
        self._days = found

    def _may_destroy(self, now: int, now_s: float) -> bool:
        """Only while this clock agrees with the broker's; where it does not, nothing is destroyed, and that is said."""
        offset = self._clock_offset()
        may = clocks_agree(offset, now_us=now, boottime_s=now_s, drift_s=self._settings.clock_drift_s)
        if offset is not None and not may and not self.stopped:
            _log.error("clock_disagrees", role=ROLE, broker_ahead_us=offset.ahead_us, limit_s=self._settings.clock_drift_s)
        self.stopped = offset is not None and not may
        return may

    def _sinks_changed(self, store: Reads) -> bool:
        return bool(set(self._said.sinks()) - self._stored_sinks or self._said.sinks_left() & self._stored_sinks)

    def _note_sinks(self, step: Step) -> None:
        for sink in set(self._said.sinks()) - self._stored_sinks:
            step.put(entries.sink_key(sink), entries.number_entry("sink", 0))
            self._stored_sinks.add(sink)
        for sink in self._said.sinks_left() & self._stored_sinks:
            step.put(entries.sink_key(sink), None)
            self._stored_sinks.discard(sink)

    def _brokers_due(self, store: Reads, now: int) -> bool:
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
        if self._pending is not None:
            return
        pending: dict[str, RetentionRow] = {}
        for key, _ in _few(store, entries.PENDING, _PENDING_MAX):
            erasure_id = key[len(entries.PENDING) :].decode()
            value = store.get(entries.erasure_key(erasure_id))
            if value is not None:
                pending[erasure_id] = entries.erasure_in(value)
        self._pending = pending
        self._since_s = {erasure_id: since for erasure_id, since in self._since_s.items() if erasure_id in pending}
        self._stored_sinks = {key[len(entries.SINKS) :].decode() for key, _ in _few(store, entries.SINKS, _PENDING_MAX)}


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


def _few(store: Reads | Step, prefix: bytes, count: int) -> list[tuple[bytes, bytes]]:
    if isinstance(store, Step):
        return store.first_few(prefix, count)
    with store.scan(prefix) as rows:
        return [row for row, _ in zip(rows, range(count), strict=False)]
