"""The session authority: command -> fold -> decide -> events, outcome, state. It never sees plaintext.

For each command, in the partition's order:

1. what cannot be decoded, or lies in a partition that is not its session's, goes to the dead letters;
2. a command that was decided before is answered as then, or refused if its request differs;
3. `decide` accepts or rejects it;
4. accepted drafts become events: the sealed bytes as they came, then sequence, time and hash;
5. the outcome goes to whoever asked, and is remembered.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from streams.authority import repeats
from streams.authority.encoding import Entry
from streams.authority.items import HotSessions, SessionItems, state_key
from streams.custody.sealing import Sealer
from streams.errors import RecordUnreadable
from streams.log.checkpoints import encode_public_checkpoint, public_checkpoint
from streams.log.client import MAX_RECORD_BYTES
from streams.log.outcomes import told
from streams.log.partitioner import partition_of
from streams.log.reader import Record, Row
from streams.log.record import (
    RawDraft,
    decode_command_parts,
    encode_addressed,
    encode_attributes,
    encode_command,
    encode_draft,
    encode_event,
)
from streams.log.topics import Topics
from streams.loop.handler import Get
from streams.loop.setting_aside import NO_SESSION, set_aside
from streams.loop.step import Step
from streams.session import chain
from streams.session.commands import Command
from streams.session.decide import AUTHORITY, Decision, decide
from streams.session.events import Draft
from streams.session.ids import is_id
from streams.session.items import HEADER, SessionState
from streams.session.outcomes import ACCEPTED, REJECTED, Outcome, Rejected
from streams.settings import Settings
from streams.store.table import Put

MAX_COMMAND_BYTES: Final = MAX_RECORD_BYTES - 64 * 1024
"""A larger one could become an event that its topic does not take: the suffix is added, and the hash."""
_AT_ONCE: Final = 32
"""Commands read before the first of them is decided: one look for repeats serves them all, and all are still in the processor's
cache when their turn comes."""
_CHECKPOINT: Final = "checkpoint.created"
_EXPIRED: Final = "request.expired"
"""The one rejection that is not remembered: a repeat of that is decided anew."""


class SessionAuthority:
    """Handler of the loop for `sessions.commands`."""

    role = "authority"
    version = 1

    def __init__(self, settings: Settings, sealer: Sealer) -> None:
        """`sealer` seals dead letters; what commands hold is sealed already and stays so."""
        topics = Topics(settings.topic_prefix)
        self.input, self.changelog = topics.commands, topics.state
        self._events, self._outcomes, self._deadletter = topics.events, topics.outcomes, topics.deadletter
        self._checkpoints = topics.checkpoints
        self._partitions = settings.partitions
        self._sealer = sealer
        self._hot = HotSessions(settings.hot_state_mb << 20)
        self._forgetting = repeats.Forgetting()

    def handle(self, step: Step) -> None:
        batch = _Batch(step, self._hot)
        for start in range(0, len(step.records), _AT_ONCE):
            commands = [read for record in step.records[start : start + _AT_ONCE] if (read := self._read(step, record)) is not None]
            recorded = repeats.lookup(step, [each.command.command_id for each in commands])
            batch.meet([each.command.session_id for each in commands])
            for each, known in zip(commands, recorded, strict=True):
                self._decide(batch, each, known)
        batch.finish(self._outcomes)
        self._forgetting.forget(step)

    def restored(self, get: Get, rows: Iterable[Row]) -> Iterator[Put]:
        for key, value in rows:
            assert key is not None
            if repeats.is_chunk(key):
                yield from repeats.restored_chunk(get, key, value)
            else:
                yield key, value

    def discard(self) -> None:
        self._forgetting = repeats.Forgetting()
        self._hot.clear()

    def _read(self, step: Step, record: Record) -> "_Read | None":
        """None: not a command of this partition, and among the dead letters now."""
        try:
            return self._command(record)
        except RecordUnreadable as error:
            self._set_aside(step, record, error)
            return None

    def _command(self, record: Record) -> "_Read":
        if record.value is None or record.key is None:
            raise RecordUnreadable("command.empty: neither key nor value may be null")
        if len(record.value) > MAX_COMMAND_BYTES:
            raise RecordUnreadable(f"command.too_large: {len(record.value)} bytes, at most {MAX_COMMAND_BYTES}")
        command, parts = decode_command_parts(record.value)
        if command.session_id.encode() != record.key:
            raise RecordUnreadable("command.wrong_key: the key is not the command's session id")
        # A session that is at work here has been found to belong here.
        if not self._hot.holds(command.session_id, record.partition) and partition_of(record.key, self._partitions) != record.partition:
            raise RecordUnreadable("command.wrong_partition: the session belongs to another partition")
        return _Read(record.offset, command, parts)

    def _decide(self, batch: "_Batch", read: "_Read", known: bytes | None) -> None:
        step, command = batch.step, read.command
        known = known or repeats.lookup_in_step(step, command.command_id)
        if known is not None:
            batch.answer(command, _repeat(command, *repeats.recorded(command.command_id, known)), remember=False)
            return
        items = batch.items_of(command.session_id)
        decision = decide(items, command, step.now, read.offset, step.owned_since)
        if isinstance(decision, Rejected):
            batch.answer(command, _rejection(command, decision, items, step.now), remember=decision.code != _EXPIRED)
        else:
            self._append(step, items, read, decision)
            batch.answer(command, _acceptance(command, decision, items), remember=True)

    def _append(self, step: Step, items: SessionItems, read: "_Read", decision: Decision) -> None:
        header = items.get(*HEADER)
        session_id, offset = read.command.session_id, read.offset
        previous = header.last_hash if isinstance(header, SessionState) else chain.genesis(session_id)
        key, sequence, last = session_id.encode(), decision.first_sequence, len(decision.drafts) - 1
        accepted_at = decision.accepted_at
        for index, draft in enumerate(decision.drafts):
            origin = decision.origins[index]
            if origin == AUTHORITY:
                body, attributes = encode_draft(draft), encode_attributes(draft.type, draft.attributes)
            else:
                body, attributes = read.parts[origin]  # as they came
            hash = chain.event_hash(
                draft, attributes, sequence=sequence + index, command_offset=offset, command_last=index == last, accepted_at=accepted_at,
                previous_hash=previous,
            )  # fmt: skip
            value = encode_event(
                body, sequence=sequence + index, command_offset=offset, command_last=index == last, accepted_at=accepted_at,
                previous_hash=previous, hash=hash,
            )  # fmt: skip
            step.produce(self._events, step.partition, key, value)
            if draft.type == _CHECKPOINT:
                self._tell_checkpoint(step, draft, accepted_at)
            previous = hash
        items.put(decision.chained(previous) if decision.drafts else decision.changed)
        for sent in decision.sent:
            other = sent.session_id.encode()
            step.produce(self.input, partition_of(other, self._partitions), other, encode_command(sent))

    def _tell_checkpoint(self, step: Step, draft: Draft, accepted_at: int) -> None:
        """In public, once: a fork that brings it along tells nothing new of it."""
        told = public_checkpoint(draft, accepted_at)
        if told is not None:
            step.produce(self._checkpoints, step.partition, told.checkpoint_id.encode(), encode_public_checkpoint(told))

    def _set_aside(self, step: Step, record: Record, error: RecordUnreadable) -> None:
        # A key that is no session's may be anything, of any size: it stands in the sealed letter only.
        key = record.key if record.key is not None and is_id(record.key.decode("ascii", "replace"), "sess") else NO_SESSION
        set_aside(step, record, error, self._sealer, self._deadletter, key)


class _Read(NamedTuple):
    """A command with its place, and the bytes of its drafts."""

    offset: int
    command: Command
    parts: tuple[RawDraft, ...]


class _Batch:
    """What one step gathers over its commands."""

    def __init__(self, step: Step, hot: HotSessions) -> None:
        self.step = step
        self._hot = hot
        self._items: dict[str, SessionItems] = {}
        self._decided: list[Entry] = []
        self._answers: dict[str, list[bytes]] = {}

    def meet(self, session_ids: list[str]) -> None:
        """Reads the headers of those that are not at work yet, in one call of the store."""
        new = []
        for session_id in session_ids:
            if session_id not in self._items and not self._hot.holds(session_id, self.step.partition):
                self.items_of(session_id)
                new.append(session_id)
        if new:
            for session_id, value in zip(new, self.step.get_many([state_key(session_id, *HEADER) for session_id in new]), strict=True):
                self._items[session_id].read(HEADER, value)

    def items_of(self, session_id: str) -> SessionItems:
        items = self._items.get(session_id)
        if items is None:
            items = self._items[session_id] = self._hot.take(session_id, self.step.partition)
            items.begin(self.step)
        return items

    def answer(self, command: Command, outcome: Outcome, *, remember: bool) -> None:
        written = told(outcome)
        if remember:
            self._decided.append(repeats.remember_at_once(self.step, command, written))
        if command.reply_to:
            self._answers.setdefault(command.reply_to, []).append(written.addressed(outcome))

    def finish(self, outcomes: str) -> None:
        """One record of outcomes for each asker, one chunk that remembers them, one record for each changed item."""
        for reply_to, answers in self._answers.items():
            self.step.produce(outcomes, self.step.partition, reply_to.encode(), encode_addressed(reply_to, answers))
        for items in self._items.values():
            items.flush()
            self._hot.keep(items)
        repeats.remember(self.step, self._decided)


def _repeat(command: Command, request_digest: bytes, recorded: Outcome) -> Outcome:
    if request_digest != command.request_digest or recorded.session_id != command.session_id:
        return Outcome(
            command_id=command.command_id,
            correlation=command.correlation,
            session_id=command.session_id,
            status=REJECTED,
            code="request.idempotency_mismatch",
            detail="this Idempotency-Key was used with another request",
            decided_at=recorded.decided_at,
        )
    return _addressed(recorded, command)


def _addressed(recorded: Outcome, command: Command) -> Outcome:
    return Outcome(
        command_id=recorded.command_id, correlation=command.correlation, session_id=recorded.session_id, status=recorded.status,
        code=recorded.code, detail=recorded.detail, first_sequence=recorded.first_sequence, last_sequence=recorded.last_sequence,
        position_offset=recorded.position_offset, decided_at=recorded.decided_at, repeated=True, grant=recorded.grant,
        actual_run_sequence=recorded.actual_run_sequence, missing=recorded.missing,
    )  # fmt: skip


def _rejection(command: Command, rejected: Rejected, items: SessionItems, now: int) -> Outcome:
    header = items.get(*HEADER)
    known = isinstance(header, SessionState) and header.workspace_id == command.workspace_id
    return Outcome(
        command_id=command.command_id,
        correlation=command.correlation,
        session_id=command.session_id,
        status=REJECTED,
        code=rejected.code,
        detail=rejected.detail,
        # Absent and somebody else's look the same.
        last_sequence=header.sequence if known and isinstance(header, SessionState) else 0,
        position_offset=header.last_command_offset if known and isinstance(header, SessionState) else -1,
        decided_at=now,
        actual_run_sequence=rejected.actual_run_sequence,
        missing=rejected.missing,
    )


def _acceptance(command: Command, decision: Decision, items: SessionItems) -> Outcome:
    header = items.get(*HEADER)
    assert isinstance(header, SessionState)
    return Outcome(
        command_id=command.command_id,
        correlation=command.correlation,
        session_id=command.session_id,
        status=ACCEPTED,
        first_sequence=decision.first_sequence if decision.drafts else 0,
        last_sequence=header.sequence,
        # What appended nothing is readable where the session's last event is.
        position_offset=header.last_command_offset,
        # The time of its events: the one before at this partition may have had a clock ahead of this one.
        decided_at=decision.accepted_at,
        grant=decision.grant,
        actual_run_sequence=decision.run_sequence,
    )
