"""The agent-checkpoint authority: command -> head -> decide -> head, numbered version, outcome. It never sees a state.

A handler of the shared loop for `agents.commands`, whose changelog `agents.checkpoints` is at the same time what anyone may tap: each
save is a record of it (design 06). No command is remembered: there is no Idempotency-Key here, a request is one command, and the
producer that sends it is idempotent, so that it lies in the log once; the loop decides each record of the log once.

It keeps time as well: versions that were replaced go once they have expired. A head stays, expired or not, until it is deleted.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from streams.agents import rows
from streams.agents.core import LATE, Deleted, Head, Refused, Save, decide
from streams.agents.purging import NoOrders, Purging
from streams.agents.records import (
    DELETED,
    SAVED,
    AgentCommand,
    AgentOutcome,
    decode_command,
    encode_checkpoint,
    encode_outcomes,
)
from streams.custody.sealing import Sealer
from streams.errors import RecordUnreadable
from streams.log.reader import Record, Row
from streams.log.topics import Topics
from streams.loop.handler import Get
from streams.loop.setting_aside import set_aside
from streams.loop.step import Step
from streams.settings import Settings
from streams.store.table import Put, Reads

ROLE: Final = "agents"
LAYOUT_VERSION: Final = 1
"""Of the rows in its store: another one, and the store is made anew from the changelog."""
_OVER_AT_ONCE: Final = 500
"""Versions of one partition that go in one transaction; the others go with the next."""


class AgentAuthority:
    """Handler and timekeeper of the loop for `agents.commands`."""

    role = ROLE
    version = LAYOUT_VERSION
    tick_s = 0.2

    def __init__(self, settings: Settings, sealer: Sealer, purging: Purging | NoOrders | None = None) -> None:
        """`sealer` seals dead letters; what commands hold is sealed already and stays so. `purging` removes rows of erased subjects."""
        topics = Topics(settings.topic_prefix)
        self.input, self.changelog = topics.agent_commands, topics.agent_checkpoints
        self._outcomes, self._deadletter = topics.agent_outcomes, topics.deadletter
        self._partitions, self._sealer = settings.partitions, sealer
        self._purging = purging or NoOrders()
        self._floors: dict[int, int] = {}
        """Partition -> no version expires sooner: RocksDB need not step over all those that did."""

    def handle(self, step: Step) -> None:
        answers: dict[str, list[AgentOutcome]] = {}
        for record in step.records:
            try:
                command = self._read(record)
            except RecordUnreadable as error:
                set_aside(step, record, error, self._sealer, self._deadletter)
                continue
            outcome = self._decide(step, command, record.offset)
            if command.reply_to:
                answers.setdefault(command.reply_to, []).append(outcome)
        for reply_to, outcomes in answers.items():
            step.produce(self._outcomes, step.partition, reply_to.encode(), encode_outcomes(reply_to, outcomes))

    def is_due(self, partition: int, store: Reads, now: int) -> bool:
        return self._purging.is_due(partition, store, now) or self._is_one_over(partition, store, now)

    def _is_one_over(self, partition: int, store: Reads, now: int) -> bool:
        floor = self._floors.get(partition, 0)
        if floor <= now:
            first = rows.first_over(store, floor)
            floor = self._floors[partition] = 2**62 if first is None else first
        return floor <= now

    def tick(self, step: Step) -> None:
        self._purging.tick(step)
        for row, _ in step.first_few(rows.OVER, _OVER_AT_ONCE, rows.over_from(self._floors.get(step.partition, 0))):
            if rows.over_at(row) > step.now:
                break
            if step.get(row) is not None:
                step.put(rows.version_of(row), None)
                step.put_local(row, None)

    def restored(self, get: Get, changes: Iterable[Row]) -> Iterator[Put]:
        return rows.restored(get, changes)

    def discard(self) -> None:
        self._floors.clear()
        self._purging.discard()

    def _read(self, record: Record) -> AgentCommand:
        if record.value is None or record.key is None:
            raise RecordUnreadable("command.empty: neither key nor value may be null")
        command = decode_command(record.value, self._partitions)
        if command.what.scope.key.encode() != record.key:
            raise RecordUnreadable("command.wrong_key: the key is not the command's scope")
        return command

    def _decide(self, step: Step, command: AgentCommand, offset: int) -> AgentOutcome:
        what = command.what
        if isinstance(what, Save) and self._purging.orders.is_erased(what.scope.subject_id):
            # It was under way: who asks again finds out that the subject is erased.
            return _outcome(command, LATE, offset, step.now)
        key = rows.head_key(what.scope.key)
        value = step.get(key)
        decision = decide(None if value is None else rows.stored(value), what, step.now)
        if isinstance(decision, Refused):
            return _outcome(command, decision.code, offset, step.now, state_hash=decision.actual_state_hash)
        scope_key = what.scope.key
        for number in decision.dropped:
            self._change_version(step, rows.version_key(scope_key, number), None, None)
        if isinstance(decision, Deleted):
            self._put(step, key, None)
            _put_local(step, key, decision.head, None)
            return _outcome(command, DELETED, offset, step.now, checkpoint_id=what.checkpoint_id)
        head = decision.head
        if decision.superseded is not None:
            # As it was, byte for byte.
            self._change_version(step, rows.version_key(scope_key, decision.superseded.version), decision.superseded, value)
        step.put(key, encode_checkpoint(head))
        _put_local(step, key, decision.superseded, head)
        return _outcome(
            command, SAVED, offset, step.now, checkpoint_id=head.checkpoint_id, created=decision.superseded is None, version=head.version,
            state_hash=head.state_hash, updated_at=head.updated_at, expires_at=head.expires_at,
        )  # fmt: skip

    def _put(self, step: Step, key: bytes, value: bytes | None) -> None:
        if value is None and (within := step.changelog.get(key)) is not None:
            # It came and went within this transaction, and is told all the same: each save is a record.
            step.produce(self.changelog, step.partition, key, within)
        step.put(key, value)

    def _change_version(self, step: Step, key: bytes, after: Head | None, value: bytes | None) -> None:
        before = step.get(key)
        if before is None and value is None:
            return
        self._put(step, key, value)
        _put_local(step, key, None if before is None else rows.stored(before), after)
        if after is not None and after.expires_at < self._floors.get(step.partition, 0):
            self._floors[step.partition] = after.expires_at


def _put_local(step: Step, key: bytes, before: Head | None, after: Head | None) -> None:
    for row, value in rows.local_rows(key, before, after):
        step.put_local(row, value)


def _outcome(
    command: AgentCommand,
    status: str,
    offset: int,
    now: int,
    *,
    checkpoint_id: str | None = None,
    created: bool = False,
    version: int = 0,
    state_hash: str | None = None,
    updated_at: int = 0,
    expires_at: int = 0,
) -> AgentOutcome:
    return AgentOutcome(
        command_id=command.command_id, correlation=command.correlation, status=status, checkpoint_id=checkpoint_id, created=created,
        version=version, state_hash=state_hash, updated_at=updated_at, expires_at=expires_at, position_offset=offset, decided_at=now,
    )  # fmt: skip
