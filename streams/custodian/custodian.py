"""Keeps the timers of sessions: events arm and disarm them, time makes them ask.

On the shared loop, so that a timer and its command commit together. It reads `sessions.events` in partitions of the same number
as the commands that it sends (`docs/adr/0017-custodian-by-partition.md`), and writes no event: it asks the authority.

The session's log is what a timer is made of; answers to what was asked only move it (renewals never reach the log). They are
heard in memory and lost with the process, or with a partition that moves: then it asks again, as `asking` says.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import structlog

from streams.custodian import asking
from streams.custodian.armed import Floors, Rows
from streams.custodian.backlog import Backlog
from streams.custodian.destroying import Destroying
from streams.custodian.following import Following, Tells
from streams.custodian.removing import Remover
from streams.custodian.rows import ERASE, INDEXED, Erasing, encode, found, kind_of, local_rows
from streams.custodian.timers import DUE, Timer, due_before, due_from, first_due, lease_key, timer_of, wait_key
from streams.errors import RecordUnreadable
from streams.holders.orders import Orders
from streams.log.partitioner import partition_of
from streams.log.reader import Record, Row
from streams.log.record import decode_event, encode_command
from streams.log.topics import Topics
from streams.loop.handler import Get
from streams.loop.step import Step
from streams.session.commands import Command
from streams.session.events import AttemptAttributes, CapsuleAttributes, CheckpointAttributes, Event, SessionAttributes, WaitAttributes
from streams.session.outcomes import Outcome
from streams.settings import Settings
from streams.store.table import Put, Reads

ROLE: Final = "custodian"
LAYOUT_VERSION: Final = 2
"""Of the rows in its store: another one, and the store is made anew from the changelog."""
_DUE_AT_ONCE: Final = 500
"""Timers of one partition in one transaction; the others come with the next."""
_ASKED_MAX: Final = 20_000
"""Questions whose answers are listened for; an answer to an older one is lost."""
_NEVER: Final = 2**62
_BACK_US: Final = 1_000_000
"""A clock that goes back by less makes nothing late that matters."""
_ATTEMPT_OVER: Final = frozenset({"attempt.failed", "attempt.fenced", "attempt.replaced"})
_RUN_OVER: Final = frozenset({"run.completed", "run.failed", "run.cancelled"})
_WAIT_OVER: Final = frozenset({"wait.answered", "wait.expired"})

_log = structlog.get_logger(__name__)


class Custodian:
    """Handler and timekeeper of the loop for `sessions.events`. `answered` may be called from any thread."""

    role = ROLE
    version = LAYOUT_VERSION
    tick_s = 0.1

    def __init__(
        self, settings: Settings, reply_to: str, *, orders: Orders | None = None, backlog: Backlog | None = None,
        holders: Tells | None = None, remover: Remover | None = None, may_destroy: Callable[[int], bool] = lambda now: True,
    ) -> None:  # fmt: skip
        """`reply_to` names this process among those who wait for outcomes; another one at each start. `orders` to erase, with how far
        the log went when they came, are followed, and `holders` told of it; `remover` removes what is to go; `may_destroy` says whether
        the time (microseconds) may be believed where something is destroyed by it. Without them there is nothing to do of the kind."""
        topics = Topics(settings.topic_prefix)
        self.input, self.changelog = topics.events, topics.timers
        self._commands, self._partitions = topics.commands, settings.partitions
        self._reply_to = reply_to
        self._lock = threading.Lock()
        self._asked: dict[str, bytes] = {}
        """Command id -> the timer that asked, in the order of asking."""
        self._answers: dict[int, dict[bytes, Outcome]] = {}
        """Partition -> what came for its timers, until the next tick."""
        self._floors = Floors()
        orders = orders or Orders()
        self._following = Following(orders, backlog or Backlog(), holders)
        self._destroying = Destroying(
            settings, remover, self._following, self._floors, may_destroy=may_destroy,
            order=lambda number: next(iter(orders.after(number - 1, 1)), None),
        )  # fmt: skip
        self._latest: dict[int, int] = {}
        """Partition -> the latest time that was seen."""
        self._doubts: dict[int, bytes] = {}
        """Partition -> from which row of `~due/` on timers are looked through, since the clock has gone back."""

    def handle(self, step: Step) -> None:
        rows = Rows(step, self._floors)
        self._following.require_orders(rows)
        for record in step.records:
            try:
                event = _event_of(record)
            except RecordUnreadable as error:
                _log.error(
                    "record_unreadable", role=ROLE, topic=record.topic, partition=record.partition, offset=record.offset,
                    reason=error.detail,
                )  # fmt: skip
                continue
            _apply(rows, event)
            self._keep(rows, event)

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        self._watch_clock(partition, store, now)
        # Each of these looks at what is committed, and hands it on.
        follows, destroys = self._following.is_due(partition, store), self._destroying.is_due(partition, store, now)
        if follows or destroys or partition in self._answers or partition in self._doubts:
            return True
        floor = self._floors.due.get(partition, 0)
        if floor <= now:
            first = first_due(store, floor)
            floor = self._floors.due[partition] = _NEVER if first is None else first
        return floor <= now

    def tick(self, step: Step) -> None:
        rows = Rows(step, self._floors)
        self._following.require_orders(rows)
        self._look_through(rows)
        floor = self._floors.due.get(step.partition, 0)
        for key, outcome in self._heard(step.partition).items():
            if kind_of(key) == ERASE:
                self._following.heard(rows, key, outcome)
                continue
            timer = rows.timer(key)
            # What answers an earlier question says nothing of this one.
            if timer is not None and asking.asked_by(timer, timer.asked - 1) == outcome.command_id:
                rows.put_timer(key, asking.having_heard(timer, outcome, step.now))
        self._following.tick(rows)
        self._destroying.tick(rows)
        for row, _ in step.first_few(DUE, _DUE_AT_ONCE, due_from(floor)):
            if due_before(row) > step.now:
                break
            self._ask(rows, timer_of(row))

    def _watch_clock(self, partition: int, store: Reads, now: int) -> None:
        """Of a partition that is new here nobody knows by which clock its timers were set."""
        if now + _BACK_US < self._latest.get(partition, _NEVER):
            self._latest[partition] = now
            beyond = now + asking.PAUSES_S[0] * 1_000_000
            if first_due(store, beyond) is not None:
                self._doubts[partition] = due_from(beyond)
        self._latest[partition] = max(now, self._latest[partition])

    def _look_through(self, rows: Rows) -> None:
        step = rows.step
        start = self._doubts.pop(step.partition, None)
        if start is None:
            return
        found_rows = step.first_few(DUE, _DUE_AT_ONCE, start)
        for row, _ in found_rows:
            key = timer_of(row)
            if kind_of(key) == ERASE:
                erasing = found(step.get, key, Erasing)
                if erasing is not None and erasing.through is None:
                    rows.put(key, encode(asking.doubted(erasing, step.now)))
                continue
            timer = rows.timer(key)
            if timer is not None:
                rows.put_timer(key, asking.doubted(timer, step.now))
        if len(found_rows) == _DUE_AT_ONCE:
            self._doubts[step.partition] = found_rows[-1][0] + b"\0"

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            if kind_of(key) in INDEXED:
                yield from local_rows(get, key, get(key), value)
            yield key, value

    def discard(self) -> None:
        self._floors.forget()
        self._following.discard()
        self._destroying.discard()
        self._latest.clear()
        self._doubts.clear()
        with self._lock:
            self._asked.clear()
            self._answers.clear()

    def answered(self, outcomes: Sequence[Outcome]) -> None:
        """Takes answers, for the next tick of their partitions."""
        with self._lock:
            for outcome in outcomes:
                key = self._asked.pop(outcome.command_id, None)
                if key is not None:
                    partition = partition_of(outcome.session_id.encode(), self._partitions)
                    self._answers.setdefault(partition, {})[key] = outcome

    def _keep(self, rows: Rows, event: Event) -> None:
        """What erasures and expiries need to know of it."""
        attributes = event.attributes
        if event.type == "session.created" and isinstance(attributes, SessionAttributes):
            self._following.begun(rows, event, attributes)
            return
        if event.type == "checkpoint.created" and isinstance(attributes, CheckpointAttributes) and attributes.fork_id is None:
            # A fork brings along what its origin has named already, and the bytes lie with the origin.
            self._destroying.created(rows, event, attributes)
        elif event.type == "capsule.created" and isinstance(attributes, CapsuleAttributes):
            self._destroying.capsule(rows, event, attributes)
        self._following.accepted(rows, event)

    def _ask(self, rows: Rows, key: bytes) -> None:
        """Where it is due."""
        step = rows.step
        if kind_of(key) == ERASE:
            erasing = found(step.get, key, Erasing)
            if erasing is not None and erasing.through is None and erasing.due_at <= step.now:
                self._send(step, key, asking.erasure_of(key, erasing, step.now, self._reply_to))
                rows.put(key, encode(asking.having_asked(erasing, step.now)))
            return
        timer = rows.timer(key)
        if timer is not None and timer.due_at <= step.now:
            self._send(step, key, asking.command_of(key, timer, step.now, self._reply_to))
            rows.put_timer(key, asking.having_asked(timer, step.now))

    def _send(self, step: Step, key: bytes, command: Command) -> None:
        with self._lock:
            while len(self._asked) >= _ASKED_MAX:
                del self._asked[next(iter(self._asked))]
            self._asked[command.command_id] = key
        step.produce(self._commands, step.partition, command.session_id.encode(), encode_command(command))

    def _heard(self, partition: int) -> dict[bytes, Outcome]:
        with self._lock:
            return self._answers.pop(partition, {})


def _event_of(record: Record) -> Event:
    """Raises `RecordUnreadable`."""
    if record.value is None:
        raise RecordUnreadable("value.absent", code="value.absent")
    return decode_event(record.value)


def _apply(rows: Rows, event: Event) -> None:
    """What it means for timers."""
    attributes, session_id, run_id = event.attributes, event.session_id, event.run_id
    if event.type == "attempt.started":
        if isinstance(attributes, AttemptAttributes) and attributes.lease_expires_at is not None and run_id is not None:
            rows.put_timer(
                lease_key(session_id, run_id),
                Timer(
                    workspace_id=event.workspace_id,
                    event_id=event.event_id,
                    generation=event.attempt_generation,
                    due_at=attributes.lease_expires_at + 1,
                ),
            )
    elif event.type in _ATTEMPT_OVER or event.type in _RUN_OVER:
        if run_id is not None:
            key = lease_key(session_id, run_id)
            timer = rows.timer(key)
            if timer is not None and (event.type in _RUN_OVER or event.attempt_generation in (None, timer.generation)):
                rows.put_timer(key, None)
    elif event.type == "wait.opened":
        # One that was over when it came is of an imported session: its importer tells how it came out.
        if isinstance(attributes, WaitAttributes) and attributes.wait_id is not None and (attributes.expires_at or 0) > event.accepted_at:
            timer = Timer(workspace_id=event.workspace_id, event_id=event.event_id, due_at=attributes.expires_at or 0)
            rows.put_timer(wait_key(session_id, attributes.wait_id), timer)
    elif event.type in _WAIT_OVER:
        if isinstance(attributes, WaitAttributes) and attributes.wait_id is not None:
            rows.put_timer(wait_key(session_id, attributes.wait_id), None)
    elif event.type == "session.closed":
        rows.disarm_all(session_id)
