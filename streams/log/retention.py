"""What is retained no longer, who has followed that, and what the custodian is asked: records of `sessions.retention`,
`sessions.confirmations`, `workspaces.commands` and `workspaces.outcomes` <-> values.

A row with an `order` is followed by every holder of data. Orders are counted from 1 and lie in the topic as they are counted, since such
a row is written once; how an erasure goes on is told in a row of its own (design 04, "Erasure").
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, structs

from schemas import codec
from streams.errors import RecordUnreadable

SUBJECT: Final = "subject"
SESSION: Final = "session"
DAY: Final = "day"
DEAD_LETTERS: Final = "dead_letters"
CHECKPOINT: Final = "checkpoint"
CAPSULE: Final = "capsule"
ERASURE: Final = "erasure"
REISSUE: Final = "reissue"
"""A broker came back from a long absence: what compaction was to take may lie there again, and is to be deleted once more."""

ERASED: Final = "erased"
EXPIRED: Final = "expired"
REQUESTED: Final = "requested"

ACCEPTED: Final = "accepted"
DESTROYED: Final = "destroyed"
ENFORCED: Final = "enforced"
COMPLETE: Final = "complete"
"""How far an erasure is."""

CACHE: Final = "cache"
"""A process that keeps secrets in memory for a lease."""
PARTITION: Final = "partition"
"""A partition's store, whoever has it."""
SINK: Final = "sink"
"""What keeps data for itself, for others: it is waited for until it is taken off the list."""

ERASE_SUBJECT: Final = "erase_subject"
ERASE_SESSION: Final = "erase_session"
KNOWN: Final = "known"
"""The same was asked before."""
LATE: Final = "late"
"""The command was found after its time."""

_RETENTION: Final = "retention"
_CONFIRMATION: Final = "confirmation"
_COMMAND: Final = "workspace/command"
_OUTCOMES: Final = "workspace/outcomes"

T = TypeVar("T")


class Order(NamedTuple):
    """What every holder of data has to drop. `kind` is SUBJECT, SESSION, DAY, DEAD_LETTERS or REISSUE; `id` a pseudonym, a session, a
    day (YYYY-MM-DD)."""

    order: int
    kind: str
    workspace_id: str
    id: str


class Erasure(Struct, frozen=True, kw_only=True):
    """How an erasure goes. `scope` is SUBJECT or SESSION; `order` 0 while nothing is destroyed; times in microseconds since the epoch;
    `receipts` are DSSE envelopes as JSON, one a step."""

    scope: str
    scope_id: str
    principal_id: str
    order: int = 0
    enforced_at: int | None = None
    completed_at: int | None = None
    counts: dict[str, int] = {}
    tombstones_at: int | None = None
    receipts: tuple[bytes, ...] = ()


class RetentionRow(Struct, frozen=True, kw_only=True):
    """As `schemas/retention`. Times in microseconds since the epoch."""

    kind: str
    workspace_id: str
    id: str
    state: str
    order: int = 0
    erasure_id: str | None = None
    ended_at: int
    destroyed_at: int | None = None
    position: str | None = None
    erasure: Erasure | None = None

    @property
    def key(self) -> bytes:
        return f"{self.kind}/{self.workspace_id}/{self.id}".encode()


class Purged(Struct, frozen=True, kw_only=True):
    """What a holder has removed for an order. `tombstones_at` (microseconds): when it last wrote one that compaction has to follow."""

    order: int
    counts: dict[str, int] = {}
    tombstones_at: int | None = None


class Confirmation(Struct, frozen=True, kw_only=True):
    """As `schemas/confirmation`: up to `enforced_through` nothing destroyed is readable at this holder, up to `purged_through` it holds
    nothing of it. `process` is `instance/epoch`, `told_at` in microseconds."""

    holder_id: str
    kind: str
    process: str
    enforced_through: int
    purged_through: int
    purged: tuple[Purged, ...] = ()
    leaving: bool = False
    told_at: int


class WorkspaceCommand(Struct, frozen=True, kw_only=True):
    """`action` is ERASE_SUBJECT or ERASE_SESSION; times in microseconds since the epoch."""

    command_id: str
    workspace_id: str
    action: str
    target_id: str
    principal_id: str
    issued_at: int
    not_after: int
    reply_to: str = ""
    correlation: int = 0


class WorkspaceOutcome(Struct, frozen=True, kw_only=True):
    """`status` is ACCEPTED, KNOWN or LATE."""

    command_id: str
    correlation: int
    status: str
    erasure_id: str | None = None
    position_offset: int
    decided_at: int


def erasure_id_of(workspace_id: str, scope: str, scope_id: str) -> str:
    """One thing is erased once: who asks again finds the same erasure."""
    return f"ers_{hashlib.sha256(f'{workspace_id}/{scope}/{scope_id}'.encode()).hexdigest()[:32]}"


def order_of(row: RetentionRow) -> Order | None:
    """None for a row that no holder has to follow."""
    return Order(row.order, row.kind, row.workspace_id, row.id) if row.order and row.kind != ERASURE else None


def encode_retention(row: RetentionRow) -> bytes:
    """A whole value."""
    record = structs.asdict(row)
    if row.erasure is not None:
        record["erasure"] = {**structs.asdict(row.erasure), "receipts": list(row.erasure.receipts)}
    return codec.encode(_RETENTION, record)


def decode_retention(value: bytes) -> RetentionRow:
    """Raises `RecordUnreadable`."""
    return _converted(_RETENTION, value, RetentionRow)


def encode_confirmation(told: Confirmation) -> bytes:
    """A whole value."""
    return codec.encode(_CONFIRMATION, {**structs.asdict(told), "purged": [structs.asdict(each) for each in told.purged]})


def decode_confirmation(value: bytes) -> Confirmation:
    """Raises `RecordUnreadable`."""
    return _converted(_CONFIRMATION, value, Confirmation)


def encode_workspace_command(command: WorkspaceCommand) -> bytes:
    """A whole value."""
    return codec.encode(_COMMAND, structs.asdict(command))


def decode_workspace_command(value: bytes) -> WorkspaceCommand:
    """Raises `RecordUnreadable`."""
    return _converted(_COMMAND, value, WorkspaceCommand)


def encode_workspace_outcomes(reply_to: str, outcomes: Sequence[WorkspaceOutcome]) -> bytes:
    """A whole value."""
    return codec.encode(_OUTCOMES, {"reply_to": reply_to, "outcomes": [structs.asdict(outcome) for outcome in outcomes]})


def decode_workspace_outcomes(value: bytes) -> tuple[WorkspaceOutcome, ...]:
    """Raises `RecordUnreadable`."""
    rows = _record(_OUTCOMES, value)["outcomes"]
    try:
        return msgspec.convert(rows, tuple[WorkspaceOutcome, ...])
    except msgspec.ValidationError as error:
        raise RecordUnreadable(f"outcomes: {error}") from error


def _converted(subject: str, value: bytes, kind: type[T]) -> T:
    try:
        return msgspec.convert(_record(subject, value), kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise RecordUnreadable(f"{subject}: {error}") from error


def _record(subject: str, value: bytes) -> Mapping[str, Any]:
    try:
        return codec.decode_as(subject, value)
    except codec.Undecodable as error:
        raise RecordUnreadable(f"{subject}: {error}", code=error.reason) from error
