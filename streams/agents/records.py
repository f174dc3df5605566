"""Commands, checkpoints and outcomes of agents <-> bytes (`schemas/agents/`): what is read here is typed and within bounds from then on."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from schemas import codec
from streams.agents.core import KINDS, TTL_SECONDS_MAX, TTL_SECONDS_MIN, AgentScope, Delete, Head, Save, Sealed
from streams.agents.ids import partition_of_id
from streams.errors import Invalid, RecordUnreadable
from streams.log.partitioner import partition_of

SAVED: Final = "saved"
DELETED: Final = "deleted"

_COMMAND: Final = "agents/command"
_CHECKPOINT: Final = "agents/checkpoint"
_OUTCOMES: Final = "agents/outcomes"
_SAVE: Final = "save"
_DELETE: Final = "delete"
_SCOPE: Final = re.compile(rf"ws_[0-9a-f]{{32}}/subj_[0-9a-f]{{32}}/actr_[0-9a-f]{{32}}/(?:{'|'.join(KINDS)})")
_HASH: Final = re.compile("[0-9a-f]{64}")
_DIGEST_BYTES: Final = 32


class AgentCommand(Struct, frozen=True, gc=False, kw_only=True):
    """A save or a deletion, with who waits for what it leads to. Times in microseconds since the epoch."""

    command_id: str
    what: Save | Delete
    issued_at: int
    reply_to: str = ""
    correlation: int = 0


class AgentOutcome(Struct, frozen=True, gc=False, kw_only=True):
    """As `schemas/agents/outcomes`. `status`: `SAVED`, `DELETED`, or why it was refused (`core`)."""

    command_id: str
    correlation: int
    status: str
    checkpoint_id: str | None = None
    created: bool = False
    version: int = 0
    state_hash: str | None = None
    updated_at: int = 0
    expires_at: int = 0
    position_offset: int
    decided_at: int


def is_scope_key(key: str) -> bool:
    """Whether it is what a scope's records are keyed by."""
    return _SCOPE.fullmatch(key) is not None


def encode_command(command: AgentCommand) -> bytes:
    """A whole value. Raises `Invalid`."""
    what = command.what
    save = what if isinstance(what, Save) else None
    sealed = None if save is None else save.sealed
    record = {
        "command_id": command.command_id, "action": _DELETE if save is None else _SAVE, **structs.asdict(what.scope),
        "checkpoint_id": what.checkpoint_id, "issued_at": command.issued_at, "not_after": what.not_after, "reply_to": command.reply_to,
        "correlation": command.correlation,
        "state_hash": save and save.state_hash, "ttl_seconds": save and save.ttl_seconds,
        "expected_state_hash": save and save.expected_state_hash,
        "sealed": sealed and {"ciphertext": sealed.ciphertext, "digest": sealed.digest, "expiry_day": sealed.expiry_day},
    }  # fmt: skip
    try:
        return codec.encode(_COMMAND, record)
    except codec.Unencodable as error:
        raise Invalid(str(error)) from error


def decode_command(value: bytes, partitions: int) -> AgentCommand:
    """Raises `RecordUnreadable` naming the field that holds what it may not; `partitions` is how many the topic has."""
    record = _decoded(_COMMAND, value)
    scope = _scope_of(record)
    partition = partition_of(scope.key.encode(), partitions)
    _require("checkpoint_id", partition_of_id(record["checkpoint_id"], partitions) == partition)
    if record["action"] == _SAVE:
        sealed, ttl, expected = record["sealed"], record["ttl_seconds"], record["expected_state_hash"]
        _require("state_hash", _is_hash(record["state_hash"]))
        _require("expected_state_hash", expected is None or _is_hash(expected))
        _require("ttl_seconds", ttl is not None and TTL_SECONDS_MIN <= ttl <= TTL_SECONDS_MAX)
        _require("sealed", sealed is not None and len(sealed["digest"]) == _DIGEST_BYTES)
        what: Save | Delete = Save(
            scope=scope,
            checkpoint_id=record["checkpoint_id"],
            state_hash=record["state_hash"],
            ttl_seconds=ttl,
            sealed=Sealed(sealed["ciphertext"], sealed["digest"], sealed["expiry_day"], record["command_id"]),
            expected_state_hash=expected,
            not_after=record["not_after"],
        )
    else:
        _require("action", record["action"] == _DELETE)
        what = Delete(scope=scope, checkpoint_id=record["checkpoint_id"], not_after=record["not_after"])
    return AgentCommand(
        command_id=record["command_id"], what=what, issued_at=record["issued_at"], reply_to=record["reply_to"],
        correlation=record["correlation"],
    )  # fmt: skip


def encode_checkpoint(head: Head) -> bytes:
    """A whole value."""
    sealed = head.sealed
    return codec.encode(
        _CHECKPOINT,
        {
            "checkpoint_id": head.checkpoint_id, **structs.asdict(head.scope), "version": head.version,
            "oldest_version": head.oldest_version, "created_at": head.created_at, "updated_at": head.updated_at,
            "expires_at": head.expires_at, "ttl_seconds": head.ttl_seconds, "state_hash": head.state_hash,
            "sealed": {
                "ciphertext": sealed.ciphertext, "digest": sealed.digest, "expiry_day": sealed.expiry_day, "save_id": sealed.save_id,
            },
        },
    )  # fmt: skip


def decode_checkpoint(value: bytes) -> Head:
    """Raises `RecordUnreadable`."""
    record = _decoded(_CHECKPOINT, value)
    sealed = record["sealed"]
    return Head(
        checkpoint_id=record["checkpoint_id"],
        scope=_scope_of(record),
        version=record["version"],
        oldest_version=record["oldest_version"],
        created_at=record["created_at"],
        updated_at=record["updated_at"],
        expires_at=record["expires_at"],
        ttl_seconds=record["ttl_seconds"],
        state_hash=record["state_hash"],
        sealed=Sealed(sealed["ciphertext"], sealed["digest"], sealed["expiry_day"], sealed["save_id"]),
    )


def encode_outcomes(reply_to: str, outcomes: Sequence[AgentOutcome]) -> bytes:
    """A whole value."""
    return codec.encode(_OUTCOMES, {"reply_to": reply_to, "outcomes": [structs.asdict(outcome) for outcome in outcomes]})


def decode_outcomes(value: bytes) -> tuple[AgentOutcome, ...]:
    """Raises `RecordUnreadable`."""
    rows = _decoded(_OUTCOMES, value)["outcomes"]
    try:
        return msgspec.convert(rows, tuple[AgentOutcome, ...])
    except msgspec.ValidationError as error:
        raise RecordUnreadable(f"outcomes: {error}") from error


def _scope_of(record: dict[str, Any]) -> AgentScope:
    scope = AgentScope(record["workspace_id"], record["subject_id"], record["agent_id"], record["kind"])
    _require("scope", is_scope_key(scope.key))
    return scope


def _is_hash(text: str | None) -> bool:
    return text is not None and _HASH.fullmatch(text) is not None


def _require(field: str, holds: bool) -> None:
    if not holds:
        raise RecordUnreadable(f"field.misplaced: {field}", code="field.misplaced")


def _decoded(subject: str, value: bytes) -> dict[str, Any]:
    try:
        return codec.decode_as(subject, value)
    except codec.Undecodable as error:
        raise RecordUnreadable(f"{subject}: {error}", code=error.reason) from error
