"""What the custodian keeps of sessions besides their timers, as rows of the changelog and of the store.

    <session id>/begun                     `Begun`: whose it is, and of which sessions it has something
    <session id>/erase/<order>             `Erasing`: what an order means for it, until it is done
    <session id>/erased/<kind>             up to which position it is erased, by what the authority was asked for
    <session id>/expiry/<checkpoint id>    `Expiring`: a checkpoint whose uploads are still there
    <session id>/expiry/<capsule id>       `Expiring`: a capsule that was made here, whose secret is still there
    <session id>/upload/<snap id>          `NamedUpload`: it is no orphan
    orders/followed                        `Followed`: how far the partition has followed the orders
    orders/purged/<order>                  what was removed for an order: counts
    ~subject/<subject id>/<session id>     which sessions a subject has                           store only
    ~fork/<ancestor>/<session id>          which sessions have something of another one           store only
    ~open/<order, 8 bytes>/<session id>    what is not done yet                                   store only
    ~remove/<due at, 8 bytes>/<key>        sessions whose uploads and texts have to go            store only
    ~expire/<due at, 8 bytes>/<key>        checkpoints and capsules by the time when they go      store only

What is in the store only is made of the other rows, so a restore from the changelog gives the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec
from streams.custodian import timers
from streams.custodian.timers import DUE, LEASE, WAIT, due_row, record_of
from streams.errors import StoreUnusable
from streams.loop.handler import Get
from streams.session.commands import Kind
from streams.store.table import Put

BEGUN: Final = b"begun"
ERASE: Final = b"erase"
EXPIRY: Final = b"expiry"
OPEN: Final = b"~open/"
REMOVE: Final = b"~remove/"
EXPIRE: Final = b"~expire/"
FOLLOWED: Final = b"orders/followed"
PURGED: Final = b"orders/purged/"
_NUMBER_BYTES: Final = 8

T = TypeVar("T")


class Begun(Struct, frozen=True, kw_only=True):
    workspace_id: str
    subject_id: str | None = None
    ancestors: tuple[str, ...] = ()


class Erasing(Struct, frozen=True, kw_only=True):
    """As `schemas/timer/erasure`: asked until the authority answers with a position (`through`), then what is to go is removed. Times in
    microseconds since the epoch; `due_at` 0: at once. `kind` is Kind.ERASE or Kind.DISINHERIT."""

    workspace_id: str
    kind: str
    armed_at: int
    event_id: str
    due_at: int = 0
    asked: int = 0
    unanswered: int = 0
    needed: int = 0
    through: int | None = None
    late: bool = False


class Expiring(Struct, frozen=True, kw_only=True):
    """As `schemas/timer/expiry`. Times in microseconds since the epoch; `sequence` is that of the event that made the checkpoint;
    a capsule has no uploads."""

    workspace_id: str
    expires_at: int
    due_at: int
    sequence: int
    uploads: tuple[str, ...]


class NamedUpload(Struct, frozen=True, kw_only=True):
    """The checkpoint that names it and ends last, and when that is."""

    checkpoint_id: str
    expires_at: int | None = None


class Followed(Struct, frozen=True, kw_only=True):
    """Orders up to `applied` have become rows, and of the next one those for keys up to `within`. For orders up to `covered`, everything is
    read that had come before them."""

    applied: int = 0
    within: str = ""
    covered: int = 0


_SUBJECTS: Final[dict[type[Struct], str]] = {
    Begun: "timer/begun",
    Erasing: "timer/erasure",
    Expiring: "timer/expiry",
    NamedUpload: "timer/upload",
    Followed: "timer/orders",
}


def encode(row: Struct) -> bytes:
    """A whole value."""
    return codec.encode(_SUBJECTS[type(row)], msgspec.to_builtins(row))


def decode(kind: type[T], value: bytes) -> T:
    """Raises `StoreUnusable`."""
    subject = _SUBJECTS[kind]  # type: ignore[index]
    return _converted(record_of(subject, value), kind, subject)


def found(get: Get, key: bytes, kind: type[T]) -> T | None:
    """The row of a key. Raises `StoreUnusable`."""
    value = get(key)
    return None if value is None else decode(kind, value)


def encode_through(through: int) -> bytes:
    """A whole value: up to which position a session is erased."""
    return codec.encode("timer/erased", {"through": through})


def decode_through(value: bytes) -> int:
    """Raises `StoreUnusable`."""
    return int(record_of("timer/erased", value)["through"])


def encode_counts(counts: Mapping[str, int]) -> bytes:
    """A whole value: what was removed for an order."""
    return codec.encode("timer/purged", {"counts": dict(counts)})


def decode_counts(value: bytes) -> dict[str, int]:
    """Raises `StoreUnusable`."""
    return dict(record_of("timer/purged", value)["counts"])


def begun_key(session_id: str) -> bytes:
    return f"{session_id}/begun".encode()


def erase_key(session_id: str, order: int) -> bytes:
    return f"{session_id}/erase/{order}".encode()


def erased_key(session_id: str, kind: Kind) -> bytes:
    return f"{session_id}/erased/{kind.value}".encode()


def expiry_key(session_id: str, checkpoint_id: str) -> bytes:
    return f"{session_id}/expiry/{checkpoint_id}".encode()


def upload_key(session_id: str, upload_id: str) -> bytes:
    return f"{session_id}/upload/{upload_id}".encode()


def purged_key(order: int) -> bytes:
    return PURGED + b"%012d" % order


def order_of_purged(key: bytes) -> int:
    return int(key[len(PURGED) :])


def subject_prefix(subject_id: str) -> bytes:
    """Below which the sessions of a subject lie."""
    return f"~subject/{subject_id}/".encode()


def fork_prefix(ancestor_id: str) -> bytes:
    """Below which the sessions lie that have something of another one."""
    return f"~fork/{ancestor_id}/".encode()


def kind_of(key: bytes) -> bytes:
    """What a row of the changelog is."""
    return key.split(b"/", 2)[1]


def order_of_open(key: bytes) -> int:
    return int.from_bytes(key[len(OPEN) : len(OPEN) + _NUMBER_BYTES], "big")


def local_rows(get: Get, key: bytes, before: bytes | None, after: bytes | None) -> Iterator[Put]:
    """The rows that only the store has, where the row of this key changes. `get` sees what was put so far."""
    kind = kind_of(key)
    if kind in (LEASE, WAIT):
        yield from timers.local_rows(get, key, before, after)
    elif kind in _LOCAL:
        for value, held in ((before, None), (after, b"")):
            if value is not None:
                for local in _LOCAL[kind](key, value):
                    yield local, held


def _of_begun(key: bytes, value: bytes) -> Iterator[bytes]:
    begun, session_id = decode(Begun, value), key.partition(b"/")[0]
    if begun.subject_id is not None:
        yield subject_prefix(begun.subject_id) + session_id
    for ancestor in begun.ancestors:
        yield fork_prefix(ancestor) + session_id


def _of_erasing(key: bytes, value: bytes) -> Iterator[bytes]:
    erasing, (session_id, _, order) = decode(Erasing, value), key.split(b"/", 2)
    yield due_row(erasing.due_at, key, DUE if erasing.through is None else REMOVE)
    yield b"%b%b/%b" % (OPEN, int(order).to_bytes(_NUMBER_BYTES, "big"), session_id)


def _of_expiring(key: bytes, value: bytes) -> Iterator[bytes]:
    yield due_row(decode(Expiring, value).due_at, key, EXPIRE)


_LOCAL: Final = {BEGUN: _of_begun, ERASE: _of_erasing, EXPIRY: _of_expiring}
INDEXED: Final = frozenset({LEASE, WAIT, *_LOCAL})
"""Kinds of rows that the store has others for."""


def _converted(record: Any, kind: type[T], subject: str) -> T:
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        raise StoreUnusable(f"{subject}: {error}") from error
