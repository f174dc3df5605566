"""What was decided, remembered for 25 hours, so that a repeat of a command is answered alike (promise 2 of the log).

In the changelog: one chunk a partition and transaction, with the ids, request digests and outcomes of its commands
(52 bytes a command beside its outcome's 74 to 164). In the store: the chunk, and an index from command id to
outcome that a restore makes again. A later transaction tombstones a chunk once it is older than that.
"""

from collections.abc import Iterator
from typing import Final

from streams.authority.encoding import Entry, decode_chunk, decode_recorded, encode_chunk, encode_recorded
from streams.log.outcomes import Told
from streams.loop.handler import Get
from streams.loop.step import Step
from streams.session.commands import Command
from streams.session.outcomes import Outcome
from streams.session.vocabulary import DIGEST_BYTES
from streams.store.table import Put

REMEMBERED_US: Final = 25 * 3600 * 1_000_000
"""An hour more than is promised, so that a clock that differs by less than that breaks nothing."""

_CHUNK: Final = b"~outcomes/"
_INDEX: Final = b"~command/"
_FORGOTTEN_AT_ONCE: Final = 8
"""Chunks tombstoned in one step: a bound on what an old partition's first transaction does."""


def is_chunk(key: bytes) -> bool:
    """Whether a key of the changelog is that of a chunk, and not of an item."""
    return key.startswith(_CHUNK)


def _index_key(command_id: str) -> bytes:
    return _INDEX + bytes.fromhex(command_id[4:])


def lookup(step: Step, command_ids: list[str]) -> list[bytes | None]:
    """What is recorded under each command id, as `recorded` reads it; None: nothing."""
    return step.get_many([_index_key(command_id) for command_id in command_ids])


def lookup_in_step(step: Step, command_id: str) -> bytes | None:
    """What this very step has recorded under the command id."""
    return step.local.get(_index_key(command_id))


def recorded(command_id: str, value: bytes) -> tuple[bytes, Outcome]:
    """The request digest and the outcome that was recorded (its `correlation` is 0)."""
    return value[:DIGEST_BYTES], decode_recorded(command_id, value[DIGEST_BYTES:])


def remember(step: Step, entries: list[Entry]) -> None:
    """Records what this step decided."""
    if entries:
        key = b"%s%d/%020d" % (_CHUNK, step.partition, step.records[0].offset)
        step.put(key, encode_chunk(step.now, entries))


def remember_at_once(step: Step, command: Command, outcome: Told) -> Entry:
    """Makes the outcome visible to the rest of the step: a repeat may stand in the same batch. Returns it for `remember`."""
    command_id, digest, body = bytes.fromhex(command.command_id[4:]), command.request_digest, encode_recorded(outcome)
    step.local[_INDEX + command_id] = digest + body
    return command_id, digest, body


def restored_chunk(get: Get, key: bytes, value: bytes | None) -> Iterator[Put]:
    """The store's puts for a chunk of the changelog: itself and its index, or the removal of both."""
    if value is not None:
        for command_id, digest, body in decode_chunk(value)[1]:
            yield _INDEX + command_id, digest + body
    else:
        old = get(key)
        if old is not None:
            for command_id, _, _ in decode_chunk(old)[1]:
                yield _INDEX + command_id, None
    yield key, value


class Forgetting:
    """Forgets what is old, a bounded number of chunks a step, and looks only when something may be due."""

    def __init__(self) -> None:
        self._due: dict[int, int] = {}
        """Partition -> when its oldest chunk may go (microseconds since the epoch)."""

    def forget(self, step: Step) -> None:
        if step.now < self._due.get(step.partition, 0):
            return
        forgotten = 0
        for key, value in step.first_few(b"%s%d/" % (_CHUNK, step.partition), _FORGOTTEN_AT_ONCE):
            decided_at, entries = decode_chunk(value)
            if step.now - decided_at < REMEMBERED_US:
                self._due[step.partition] = decided_at + REMEMBERED_US
                return
            step.put(key, None)
            for command_id, _, _ in entries:
                step.put_local(_INDEX + command_id, None)
            forgotten += 1
        if forgotten < _FORGOTTEN_AT_ONCE:
            self._due[step.partition] = step.now + REMEMBERED_US
