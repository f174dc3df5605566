"""What is armed, as rows of the changelog and of the store.

    <session id>/lease/<run id>            `Timer`: when the lease of the Run's attempt is over, as far as it is known
    <session id>/wait/<wait id>            `Timer`: when the wait expires
    ~due/<due at, 8 bytes>/<timer's key>   timers by time                                      store only
    ~armed                                 how many timers there are, as 8 bytes               store only

What is in the store only is made of the timers themselves, so a restore from the changelog gives the same rows. `rows.py` has what is
kept besides.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas import codec
from streams.errors import StoreUnusable
from streams.loop.handler import Get
from streams.store.table import Put, Reads

LEASE: Final = b"lease"
WAIT: Final = b"wait"
DUE: Final = b"~due/"
ARMED: Final = b"~armed"
_TIMER: Final = "timer/armed"
_NUMBER_BYTES: Final = 8


class Timer(Struct, frozen=True, gc=False, kw_only=True):
    """As `schemas/timer/armed`. `due_at` in microseconds since the epoch; `generation` is a lease's. `unanswered`: how often
    it asked since it was last set to a time that does not depend on this clock; 0: it is set to such a time."""

    workspace_id: str
    event_id: str
    generation: int | None = None
    due_at: int
    asked: int = 0
    unanswered: int = 0


def lease_key(session_id: str, run_id: str) -> bytes:
    return f"{session_id}/lease/{run_id}".encode()


def wait_key(session_id: str, wait_id: str) -> bytes:
    return f"{session_id}/wait/{wait_id}".encode()


def timer_prefixes(session_id: str) -> tuple[bytes, bytes]:
    """Below which all timers of a session lie."""
    return f"{session_id}/lease/".encode(), f"{session_id}/wait/".encode()


def named(key: bytes) -> tuple[str, bytes, str]:
    """Session, kind (`LEASE`, `WAIT`) and id of a timer's key."""
    session_id, kind, identifier = key.split(b"/", 2)
    return session_id.decode(), kind, identifier.decode()


def encode_timer(timer: Timer) -> bytes:
    """A whole value."""
    return codec.encode(_TIMER, msgspec.structs.asdict(timer))


def decode_timer(value: bytes) -> Timer:
    """Raises `StoreUnusable`."""
    return Timer(**record_of(_TIMER, value))


def due_before(key: bytes, index: bytes = DUE) -> int:
    """When the row is due that this one of an index stands for."""
    return int.from_bytes(key[len(index) : len(index) + _NUMBER_BYTES], "big")


def timer_of(key: bytes, index: bytes = DUE) -> bytes:
    """The key of the row that this one of an index stands for."""
    return key[len(index) + _NUMBER_BYTES + 1 :]


def due_from(due_at: int, index: bytes = DUE) -> bytes:
    """Where the rows of an index begin that are due no sooner."""
    return index + max(0, due_at).to_bytes(_NUMBER_BYTES, "big")


def due_row(due_at: int, key: bytes, index: bytes = DUE) -> bytes:
    """The row of an index that stands for a key."""
    return b"%b/%b" % (due_from(due_at, index), key)


def first_due(store: Reads, due_at: int = 0) -> int | None:
    """When the next of a store's timers is due, of those due no sooner than `due_at`; None: there is none."""
    with store.scan(DUE, start=due_from(due_at)) as rows:
        first = next(rows, None)
    return None if first is None else due_before(first[0])


def armed_in(get: Get) -> int:
    """How many timers a store holds."""
    value = get(ARMED)
    return 0 if value is None else int.from_bytes(value, "big")


def local_rows(get: Get, key: bytes, before: bytes | None, after: bytes | None) -> Iterator[Put]:
    """The rows that only the store has, where the timer of this key changes. `get` sees what was put so far."""
    if before is not None:
        yield due_row(decode_timer(before).due_at, key), None
    if after is not None:
        yield due_row(decode_timer(after).due_at, key), b""
    more = (after is not None) - (before is not None)
    if more:
        yield ARMED, (armed_in(get) + more).to_bytes(_NUMBER_BYTES, "big")


def record_of(subject: str, value: bytes) -> Any:
    """Raises `StoreUnusable`."""
    try:
        return codec.decode_as(subject, value)
    except codec.Undecodable as error:
        raise StoreUnusable(f"{subject}: {error}") from error
