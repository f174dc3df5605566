"""Commands as they lie in Kafka, made quickly: one is encoded, and its identifiers are exchanged for each further one.

Content is random bytes in the place of ciphertext: an authority never opens content, so its size is all that counts.
"""

import hashlib
import secrets
import time
from collections.abc import Iterator
from random import Random
from typing import Final

from confluent_kafka import Producer

from streams.custody.sealing import content_expiry_day
from streams.log import record
from streams.log.partitioner import partition_of
from streams.session.commands import Command, Kind
from streams.session.events import NO_CONTENT, Attributes, Content, Draft, KeyReference, MessageAttributes, SessionAttributes
from streams.session.ids import event_ids
from streams.session.vocabulary import SHORTEST_CIPHERTEXT

WORKSPACE: Final = "ws_" + "b" * 32
_PRINCIPAL: Final = "key_" + "c" * 32
_REPLY_TO: Final = "bench/0123456789abcdef"
_WINDOW_DAYS: Final = 365
_HOUR_US: Final = 3600 * 1_000_000
_HASH: Final = bytes(32)
_SESSION, _COMMAND, _DIGEST = -3, -2, -1
"""What stands in a place of a command; from 0 on, the id of that event."""


Keyed = tuple[bytes, bytes]
"""Key and value of a record to be."""


def new_sessions(count: int) -> list[str]:
    return [f"sess_{secrets.token_hex(16)}" for _ in range(count)]


class CommandForm:
    """Makes commands that differ in their identifiers only. `make` takes about 10 µs for one event."""

    def __init__(self, sample: Command) -> None:
        """`sample` names its session, its command and its events as `event_ids` does."""
        value = record.encode_command(sample)
        identity = event_ids(sample.command_id)
        known: dict[str, int] = {sample.session_id: _SESSION, sample.command_id: _COMMAND}
        known.update({identity(index): index for index in range(len(sample.drafts))})
        places: list[tuple[int, int, int]] = []
        for text, what in known.items():
            places += [(at, len(text), what) for at in _occurrences(value, text.encode())]
        digest_at = value.index(sample.request_digest)
        places.append((digest_at, len(sample.request_digest), _DIGEST))
        self._events = len(sample.drafts)
        self._parts: list[bytes] = []
        self._slots: list[int] = []
        end = 0
        for at, length, what in sorted(places):
            self._parts.append(value[end:at])
            self._slots.append(what)
            end = at + length
        self._tail = value[end:]

    def make(self, session_id: str, command_id: str) -> bytes:
        identity = event_ids(command_id)
        events = [identity(index).encode() for index in range(self._events)]
        named = {_SESSION: session_id.encode(), _COMMAND: command_id.encode(), _DIGEST: hashlib.sha256(command_id.encode()).digest()}
        pieces: list[bytes] = []
        for part, slot in zip(self._parts, self._slots, strict=True):
            pieces.append(part)
            pieces.append(events[slot] if slot >= 0 else named[slot])
        pieces.append(self._tail)
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


def sessions_of(sessions: list[str], form: CommandForm) -> Iterator[Keyed]:
    """One command for each session."""
    for session_id in sessions:
        yield session_id.encode(), form.make(session_id, _command_id())


def commands_of(sessions: list[str], form: CommandForm, count: int, seed: int = 1) -> Iterator[Keyed]:
    """`count` commands to sessions drawn at random, each as likely as any other."""
    random = Random(seed)
    for _ in range(count):
        session_id = random.choice(sessions)
        yield session_id.encode(), form.make(session_id, _command_id())


def produce(producer: Producer, topic: str, partitions: int, keyed: Iterator[Keyed]) -> int:
    """Sends all and waits until the broker has them; returns how many."""
    count = 0
    places: dict[bytes, int] = {}
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for key, value in keyed:
        partition = places.get(key)
        if partition is None:
            partition = places[key] = partition_of(key, partitions)
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    producer.flush()
    if failed:
        raise RuntimeError(f"{len(failed)} records were not delivered: {failed[0]}")
    return count


def _sample(workspace_id: str, events: int, event_type: str, attributes: Attributes, content_bytes: int) -> Command:
    """`content_bytes` 0: none."""
    session_id, command_id, now = new_sessions(1)[0], _command_id(), time.time_ns() // 1000
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


def _command_id() -> str:
    return f"cmd_{secrets.token_hex(16)}"
