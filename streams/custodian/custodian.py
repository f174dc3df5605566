"""Keeps the timers of sessions: events arm and disarm them, time makes them ask.

On the shared loop, so that a timer and its command commit together. It reads `sessions.events` in partitions of the same number
as the commands that it sends (`docs/adr/0017-custodian-by-partition.md`), and writes no event: it asks the authority.

The session's log is what a timer is made of; answers to what was asked only move it (renewals never reach the log). They are
heard in memory and lost with the process, or with a partition that moves: then it asks again, as `asking` says.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import structlog

from streams.custodian import asking
from streams.custodian.timers import (
    DUE,
    Timer,
    decode_timer,
    due_before,
    due_from,
    encode_timer,
    encode_upload,
    first_due,
    is_timer,
    lease_key,
    local_rows,
    timer_of,
    timer_prefixes,
    upload_key,
    wait_key,
)
from streams.errors import RecordUnreadable
from streams.log.partitioner import partition_of
from streams.log.reader import Record, Row
from streams.log.record import decode_event, encode_command
from streams.log.topics import Topics
from streams.loop.handler import Get
from streams.loop.step import Step
from streams.session.events import AttemptAttributes, CheckpointAttributes, Event, WaitAttributes
from streams.session.outcomes import Outcome
from streams.settings import Settings
from streams.store.table import Put, Reads

ROLE: Final = "custodian"
LAYOUT_VERSION: Final = 1
"""Of the rows in its store: another one, and the store is made anew from the changelog."""
_DUE_AT_ONCE: Final = 500
"""Timers of one partition in one transaction; the others come with the next."""
_ASKED_MAX: Final = 20_000
"""Questions whose answers are listened for; an answer to an older one is lost."""
_TIMERS_MAX: Final = 10_000
"""Taken away at once with their session; what is left of more is refused when it is due, and taken away then."""

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

    def __init__(self, settings: Settings, reply_to: str) -> None:
        """`reply_to` names this process among those who wait for outcomes; another one at each start."""
        topics = Topics(settings.topic_prefix)
        self.input, self.changelog = topics.events, topics.timers
        self._commands, self._partitions = topics.commands, settings.partitions
        self._reply_to = reply_to
        self._lock = threading.Lock()
        self._asked: dict[str, bytes] = {}
        """Command id -> the timer that asked, in the order of asking."""
        self._answers: dict[int, dict[bytes, Outcome]] = {}
        """Partition -> what came for its timers, until the next tick."""
        self._floors: dict[int, int] = {}
        """Partition -> no timer is due sooner: RocksDB need not step over all those that were, ten times a second."""
        self._latest: dict[int, int] = {}
        """Partition -> the latest time that was seen."""
        self._doubts: dict[int, bytes] = {}
        """Partition -> from which row of `~due/` on timers are looked through, since the clock has gone back."""

    def handle(self, step: Step) -> None:
        armed = _Armed(step, self._floors)
        for record in step.records:
            try:
                event = _event_of(record)
            except RecordUnreadable as error:
                _log.error(
                    "record_unreadable", role=ROLE, topic=record.topic, partition=record.partition, offset=record.offset,
                    reason=error.detail,
                )  # fmt: skip
                continue
            _apply(step, armed, event)

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        self._watch_clock(partition, store, now)
        if partition in self._answers or partition in self._doubts:
            return True
        floor = self._floors.get(partition, 0)
        if floor <= now:
            first = first_due(store, floor)
            floor = self._floors[partition] = _NEVER if first is None else first
        return floor <= now

    def tick(self, step: Step) -> None:
        armed = _Armed(step, self._floors)
        self._look_through(step, armed)
        floor = self._floors.get(step.partition, 0)
        for key, outcome in self._heard(step.partition).items():
            timer = armed.timer(key)
            # What answers an earlier question says nothing of this one.
            if timer is not None and asking.asked_by(timer, timer.asked - 1) == outcome.command_id:
                armed.put(key, asking.having_heard(timer, outcome, step.now))
        for row, _ in step.first_few(DUE, _DUE_AT_ONCE, due_from(floor)):
            if due_before(row) > step.now:
                break
            key = timer_of(row)
            timer = armed.timer(key)
            if timer is not None and timer.due_at <= step.now:
                self._ask(step, key, timer)
                armed.put(key, asking.having_asked(timer, step.now))

    def _watch_clock(self, partition: int, store: Reads, now: int) -> None:
        """Of a partition that is new here nobody knows by which clock its timers were set."""
        if now + _BACK_US < self._latest.get(partition, _NEVER):
            self._latest[partition] = now
            beyond = now + asking.PAUSES_S[0] * 1_000_000
            if first_due(store, beyond) is not None:
                self._doubts[partition] = due_from(beyond)
        self._latest[partition] = max(now, self._latest[partition])

    def _look_through(self, step: Step, armed: "_Armed") -> None:
        start = self._doubts.pop(step.partition, None)
        if start is None:
            return
        rows = step.first_few(DUE, _DUE_AT_ONCE, start)
        for row, _ in rows:
            key = timer_of(row)
            timer = armed.timer(key)
            if timer is not None:
                armed.put(key, asking.doubted(timer, step.now))
        if len(rows) == _DUE_AT_ONCE:
            self._doubts[step.partition] = rows[-1][0] + b"\0"

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            if is_timer(key):
                yield from local_rows(get, key, get(key), value)
            yield key, value

    def discard(self) -> None:
        self._floors.clear()
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

    def _ask(self, step: Step, key: bytes, timer: Timer) -> None:
        command = asking.command_of(key, timer, step.now, self._reply_to)
        with self._lock:
            while len(self._asked) >= _ASKED_MAX:
                del self._asked[next(iter(self._asked))]
            self._asked[command.command_id] = key
        step.produce(self._commands, step.partition, command.session_id.encode(), encode_command(command))

    def _heard(self, partition: int) -> dict[bytes, Outcome]:
        with self._lock:
            return self._answers.pop(partition, {})


class _Armed:
    """The timers of a partition, as the step has changed them."""

    def __init__(self, step: Step, floors: dict[int, int]) -> None:
        self._step, self._floors = step, floors
        self._touched: dict[bytes, dict[bytes, None]] = {}
        """Session -> keys that were put in this step: a scan does not see them."""

    def timer(self, key: bytes) -> Timer | None:
        value = self._step.get(key)
        return None if value is None else decode_timer(value)

    def put(self, key: bytes, timer: Timer | None) -> None:
        """Arms, or disarms (None), where that changes anything."""
        step, before = self._step, self._step.get(key)
        after = None if timer is None else encode_timer(timer)
        if before == after:
            return
        step.put(key, after)
        if timer is not None and timer.due_at < self._floors.get(step.partition, 0):
            self._floors[step.partition] = timer.due_at
        for local, held in local_rows(step.get, key, before, after):
            step.put_local(local, held)
        self._touched.setdefault(key.partition(b"/")[0], {})[key] = None

    def disarm_all(self, session_id: str) -> None:
        stored = [key for prefix in timer_prefixes(session_id) for key, _ in self._step.first_few(prefix, _TIMERS_MAX)]
        for key in [*stored, *self._touched.get(session_id.encode(), {})]:
            self.put(key, None)


def _event_of(record: Record) -> Event:
    """Raises `RecordUnreadable`."""
    if record.value is None:
        raise RecordUnreadable("value.absent", code="value.absent")
    return decode_event(record.value)


def _apply(step: Step, armed: _Armed, event: Event) -> None:
    attributes, session_id, run_id = event.attributes, event.session_id, event.run_id
    if event.type == "attempt.started":
        if isinstance(attributes, AttemptAttributes) and attributes.lease_expires_at is not None and run_id is not None:
            armed.put(
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
            timer = armed.timer(key)
            if timer is not None and (event.type in _RUN_OVER or event.attempt_generation in (None, timer.generation)):
                armed.put(key, None)
    elif event.type == "wait.opened":
        # One that was over when it came is of an imported session: its importer tells how it came out.
        if isinstance(attributes, WaitAttributes) and attributes.wait_id is not None and (attributes.expires_at or 0) > event.accepted_at:
            timer = Timer(workspace_id=event.workspace_id, event_id=event.event_id, due_at=attributes.expires_at or 0)
            armed.put(wait_key(session_id, attributes.wait_id), timer)
    elif event.type in _WAIT_OVER:
        if isinstance(attributes, WaitAttributes) and attributes.wait_id is not None:
            armed.put(wait_key(session_id, attributes.wait_id), None)
    elif event.type == "session.closed":
        armed.disarm_all(session_id)
    elif event.type == "checkpoint.created" and isinstance(attributes, CheckpointAttributes) and attributes.fork_id is None:
        # A fork brings along what its origin has named already, and the bytes lie with the origin.
        for upload_id in (attributes.snapshot_id, attributes.native_id):
            if upload_id is not None:
                step.put(upload_key(session_id, upload_id), encode_upload(attributes.checkpoint_id or ""))
