"""Commands as they lie in Kafka, made quickly: one is encoded, and its identifiers are exchanged for each further one.

Content is random bytes in the place of ciphertext: an authority never opens content, so its size is all that counts.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from streams.custody.sealing import content_expiry_day
from streams.log import record
from streams.log.client import producer
from streams.log.partitioner import partition_of
from streams.session.commands import Command, Kind
from streams.session.events import NO_CONTENT, Attributes, Content, Draft, KeyReference, MessageAttributes, SessionAttributes
from streams.session.ids import event_ids
from streams.session.vocabulary import SHORTEST_CIPHERTEXT
from streams.settings import Settings

WORKSPACE: Final = "ws_" + "b" * 32
_PRINCIPAL: Final = "key_" + "c" * 32
_REPLY_TO: Final = "bench/0123456789abcdef"
_WINDOW_DAYS: Final = 365
_HOUR_US: Final = 3600 * 1_000_000
_HASH: Final = bytes(32)
_SESSION, _COMMAND, _DIGEST = -3, -2, -1
"""What stands in a place of a command; from 0 on, the id of that event."""
_DRAWN: Final = 1000
"""Commands whose random bytes are drawn at once."""
_BATCH_RECORDS: Final = 2000
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of one partition, handed to the client in one call."""


Keyed = tuple[bytes, bytes]
"""Key and value of a record to be."""


def new_sessions(count: int) -> list[str]:
    return [f"sess_{secrets.token_hex(16)}" for _ in range(count)]


class CommandForm:
    """Makes commands that differ in their identifiers only. `make` takes about 2 µs for one event, 10 µs for ten."""

    def __init__(self, sample: Command) -> None:
        """`sample` names its session, its command and its events as `event_ids` does."""
        value = record.encode_command(sample)
        identity = event_ids(sample.command_id)
        known: dict[str, int] = {sample.session_id: _SESSION, sample.command_id: _COMMAND}
        known.update({identity(index): index for index in range(len(sample.drafts))})
        places: list[tuple[int, int, int]] = []
        for text, what in known.items():
            places += [(at, len(text), what) for at in _occurrences(value, text.encode())]
        places.append((value.index(sample.request_digest), len(sample.request_digest), _DIGEST))
        self._pieces: list[bytes] = []
        at_piece: dict[int, list[int]] = {}
        end = 0
        for at, length, what in sorted(places):
            at_piece.setdefault(what, []).append(len(self._pieces) + 1)
            self._pieces += (value[end:at], b"")
            end = at + length
        self._pieces.append(value[end:])
        self._session, self._command, (self._digest,) = at_piece[_SESSION], at_piece[_COMMAND], at_piece[_DIGEST]
        # What `event_ids` hashes behind the command's id.
        self._events = [(_field(b"%d" % index), at_piece[index]) for index in range(len(sample.drafts))]

    def make(self, session_id: bytes, command_id: bytes, digest: bytes) -> bytes:
        """`digest`: 32 bytes, of the request that the command is said to come from."""
        pieces = self._pieces.copy()
        for at in self._session:
            pieces[at] = session_id
        for at in self._command:
            pieces[at] = command_id
        pieces[self._digest] = digest
        shared = _EVENT + _field(command_id)
        for index, places in self._events:
            event_id = b"evt_" + hashlib.sha256(shared + index).hexdigest()[:32].encode()
            for at in places:
                pieces[at] = event_id
        return b"".join(pieces)


def creating(workspace_id: str = WORKSPACE) -> CommandForm:
    attributes = SessionAttributes(origin="live", policy_mode="standard", content_window_days=_WINDOW_DAYS)
    return CommandForm(_sample(workspace_id, 1, "session.created", attributes, 0))


def appending(events: int, event_bytes: int, workspace_id: str = WORKSPACE) -> CommandForm:
    """Commands of `events` messages, each `event_bytes` long as it will stand in the log of events."""
    return CommandForm(_sample(workspace_id, events, "message.appended", MessageAttributes(role="user"), content_bytes_of(event_bytes)))


def content_bytes_of(event_bytes: int) -> int:
    """How much sealed content an event of this size holds. Raises `ValueError` where its other fields take more."""

    def size(content_bytes: int) -> int:
        sample = _sample(WORKSPACE, 1, "message.appended", MessageAttributes(role="user"), content_bytes)
        body, now = record.encode_draft(sample.drafts[0]), time.time_ns() // 1000
        return len(
            record.encode_event(
                body, sequence=100, command_offset=100_000, command_last=True, accepted_at=now, previous_hash=_HASH, hash=_HASH
            )
        )

    # Lengths are written in as many bytes as they need: two rounds find the fitting one.
    least = size(SHORTEST_CIPHERTEXT)
    if event_bytes < least:
        raise ValueError(f"an event with content has at least {least} bytes")
    content = SHORTEST_CIPHERTEXT + event_bytes - least
    return content - (size(content) - event_bytes)


def sessions_of(sessions: Sequence[str], form: CommandForm) -> Iterator[Keyed]:
    """One command for each session."""
    for session_id, (command_id, digest) in zip(sessions, _identities(), strict=False):
        key = session_id.encode()
        yield key, form.make(key, command_id, digest)


def commands_of(sessions: Sequence[str], form: CommandForm, count: int, seed: int = 1) -> Iterator[Keyed]:
    """`count` commands to sessions drawn at random, each as likely as any other."""
    drawn, among = Random(seed).random, len(sessions)
    for _, (command_id, digest) in zip(range(count), _identities(), strict=False):
        key = sessions[int(drawn() * among)].encode()
        yield key, form.make(key, command_id, digest)


def _identities() -> Iterator[tuple[bytes, bytes]]:
    """Ids of commands and digests of requests, without end."""
    while True:
        drawn = secrets.token_bytes(_DRAWN * 48)
        for at in range(0, len(drawn), 48):
            yield b"cmd_" + drawn[at : at + 16].hex().encode(), drawn[at + 16 : at + 48]


def sender(settings: Settings) -> Producer:
    """A producer for `produce`."""
    return producer(settings, "bench", {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})


class Batches:
    """Gathers records by partition and hands them to the client many at once, those of a partition in order."""

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer, self._topic, self._partitions = producer, topic, partitions
        self._gathered: list[list[dict[str, Any]]] = [[] for _ in range(partitions)]
        self._bytes = [0] * partitions
        self._failed: list[str] = []

    def add(self, key: bytes, value: bytes) -> None:
        partition = partition_of(key, self._partitions)
        gathered = self._gathered[partition]
        gathered.append({"key": key, "value": value})
        self._bytes[partition] += len(value)
        if len(gathered) >= _BATCH_RECORDS or self._bytes[partition] >= _BATCH_BYTES:
            self._send(partition)

    def send(self) -> None:
        """Hands over what was gathered. Raises `RuntimeError` where a record was not delivered."""
        for partition in range(self._partitions):
            self._send(partition)
        self._producer.poll(0)
        if self._failed:
            raise RuntimeError(f"{len(self._failed)} records were not delivered: {self._failed[0]}")

    def flush(self) -> None:
        """`send`, and waits until the broker has all."""
        self.send()
        self._producer.flush()
        self.send()

    def _send(self, partition: int) -> None:
        waiting, self._gathered[partition], self._bytes[partition] = self._gathered[partition], [], 0
        while waiting:
            self._producer.produce_batch(self._topic, waiting, partition=partition, on_delivery=self._delivered)
            waiting = refused(waiting)
            self._producer.poll(0.05 if waiting else 0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))


def refused(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a batch that `produce_batch` could not take, its queue being full. Raises `RuntimeError` for another reason."""
    left = []
    for each in batch:
        error: KafkaError | None = each.pop("_error", None)
        if error is not None:
            if error.code() != KafkaError._QUEUE_FULL:
                raise RuntimeError(f"a record was refused: {error.str()}")
            left.append(each)
    return left


def produce(producer: Producer, topic: str, partitions: int, keyed: Iterable[Keyed]) -> int:
    """Sends all and waits until the broker has them; returns how many. Raises `RuntimeError` where it has not."""
    batches, count = Batches(producer, topic, partitions), 0
    for key, value in keyed:
        batches.add(key, value)
        count += 1
    batches.flush()
    return count


def _sample(workspace_id: str, events: int, event_type: str, attributes: Attributes, content_bytes: int) -> Command:
    """`content_bytes` 0: none."""
    session_id, command_id, now = new_sessions(1)[0], f"cmd_{secrets.token_hex(16)}", time.time_ns() // 1000
    identity = event_ids(command_id)
    content = _content(session_id, content_bytes, now) if content_bytes else NO_CONTENT
    drafts = tuple(
        Draft(
            event_id=identity(index), session_id=session_id, type=event_type, workspace_id=workspace_id, command_id=command_id,
            attributes=attributes, content=content,
        )
        for index in range(events)
    )  # fmt: skip
    return Command(
        command_id=command_id, session_id=session_id, workspace_id=workspace_id, kind=Kind.APPEND, principal_id=_PRINCIPAL,
        request_digest=secrets.token_bytes(32), issued_at=now, not_after=now + _HOUR_US, reply_to=_REPLY_TO, correlation=1_000_000,
        drafts=drafts,
    )  # fmt: skip


def _content(session_id: str, size: int, now: int) -> Content:
    ciphertext = secrets.token_bytes(size)
    reference = KeyReference(None, session_id, content_expiry_day(now, _WINDOW_DAYS))
    return Content("sealed", reference, ciphertext, hashlib.sha256(ciphertext).digest())


def _occurrences(value: bytes, wanted: bytes) -> Iterator[int]:
    at = value.find(wanted)
    while at >= 0:
        yield at
        at = value.find(wanted, at + len(wanted))


def _field(part: bytes) -> bytes:
    """With its length before it, as ids are hashed."""
    return len(part).to_bytes(4, "big") + part


_EVENT: Final = _field(b"evt")
