"""The kinds of value that requests and answers are made of, each with the bounds that the interface document shows.

A pattern is anchored so that it means the same to Python and to a reader of the document (ECMA-262): `(?!\\n)` keeps
Python's `$` from passing over a last line break.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from streams.session.events import FAMILIES, TYPES
from streams.session.ids import PREFIXES
from streams.session.limits import LONGEST_CHECKPOINT_WINDOW_S, LONGEST_LEASE_MS, LONGEST_WINDOW_DAYS, SHORTEST_LEASE_MS
from streams.session.vocabulary import NAME_PATTERN, RELATIONS
from streams.session.words import IMPORTED, LIVE, NATIVE, NO_SNAPSHOT, REBUILD, REFERENCED, RESTORE, STANDARD, STORED, ZDR

INT64_MAX = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the requests."""


Content = Raw | UnsetType
"""Any JSON value; numbers and escapes are kept as written."""


def content_text(content: Any) -> bytes | None:
    """The JSON text as it came, or None where there is none."""
    return None if content is UNSET else bytes(content)


def when(microseconds: int) -> datetime:
    """RFC 3339 on the wire, in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds_of(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _identifier(prefix: str) -> Any:
    length = len(prefix) + 33
    return Annotated[str, Meta(pattern=f"^{prefix}_[0-9a-f]{{32}}$", min_length=length, max_length=length)]


SessionId = _identifier("sess")
WorkspaceId = _identifier("ws")
SubjectId = _identifier("subj")
ActorId = _identifier("actr")
ThreadId = _identifier("sthr")
TurnId = _identifier("turn")
RunId = _identifier("run")
TaskId = _identifier("task")
EventId = _identifier("evt")
CommandId = _identifier("cmd")
PrincipalId = _identifier("key")
WaitId = _identifier("wait")
ApprovalId = _identifier("appr")
EffectId = _identifier("eff")
ArtifactId = _identifier("art")
CallId = _identifier("call")
ChildId = _identifier("chld")
CheckpointId = _identifier("ckpt")
ForkId = _identifier("fork")
UploadId = _identifier("snap")
ErasureId = _identifier("ers")
SnapshotId = _identifier("snap")
CapsuleId = _identifier("cap")
ImportId = _identifier("cimp")
AnyId = Annotated[str, Meta(pattern=rf"^({'|'.join(PREFIXES)})_[0-9a-f]{{32}}$(?!\n)", max_length=40)]
LinkTarget = Annotated[str, Meta(pattern=rf"^(({'|'.join(PREFIXES)})_[0-9a-f]{{32}}|\$(0|[1-9][0-9]{{0,4}}))$(?!\n)", max_length=40)]
PlaceInLineage = Annotated[
    str,
    Meta(
        pattern=r"^sess_[0-9a-f]{32}:(0|[1-9][0-9]{0,17})$(?!\n)",
        max_length=56,
        description="A position of a session or of one of its ancestors; 0: before the first",
    ),
]
NodeId = Annotated[
    str,
    Meta(
        pattern=rf"^({'|'.join(PREFIXES)})_[0-9a-f]{{32}}(\.[a-z0-9][a-z0-9_.-]{{0,63}})?$(?!\n)",
        max_length=105,
        description="Of a node of the graph: the id of what it stands for; an attempt's is <run id>.<generation>",
    ),
]

PATH_PARAMETERS: dict[str, tuple[str, Any]] = {
    "session_id": ("sess", SessionId),
    "turn_id": ("turn", TurnId),
    "run_id": ("run", RunId),
    "wait_id": ("wait", WaitId),
    "approval_id": ("appr", ApprovalId),
    "effect_id": ("eff", EffectId),
    "checkpoint_id": ("ckpt", CheckpointId),
    "capsule_id": ("cap", CapsuleId),
    "import_id": ("cimp", ImportId),
    "erasure_id": ("ers", ErasureId),
}
"""An id of another form names nothing: such a path is not found."""

Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Generation = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Days = Annotated[int, Meta(ge=1, le=LONGEST_WINDOW_DAYS)]
CheckpointWindow = Annotated[int, Meta(ge=1, le=LONGEST_CHECKPOINT_WINDOW_S, description="Seconds")]
LeaseMs = Annotated[int, Meta(ge=SHORTEST_LEASE_MS, le=LONGEST_LEASE_MS, description="Milliseconds")]
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339 with an offset; kept to the microsecond")]
Name = Annotated[
    str,
    Meta(
        pattern=rf"^{NAME_PATTERN}$(?!\n)",
        min_length=1,
        max_length=128,
        description="Of software, a lane or a revision; never of a person",
    ),
]
Code = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_.-]{0,63}$(?!\n)", max_length=64)]
Digest = Annotated[str, Meta(pattern=r"^([a-z0-9-]{1,16}:)?[0-9a-f]{32,128}$(?!\n)", max_length=145)]
Hex32 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", min_length=64, max_length=64)]
OUTSIDE_ID_MAX: Final = 512
OutsideId = Annotated[
    str, Meta(min_length=1, max_length=OUTSIDE_ID_MAX, description="The caller's own identifier; kept as a pseudonym only")
]
SubjectNamed = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=OUTSIDE_ID_MAX,
        description="The caller's own identifier of a person, percent-encoded, or subj_ and 32 hex digits: the pseudonym",
        examples=["customer-4711", "jo@example.com", "subj_0123456789abcdef0123456789abcdef"],
    ),
]
if TYPE_CHECKING:
    EventType = str
    Relation = str
    RecoveryMode = str
    ContinuationKind = str
    SnapshotKind = str
    Origin = str
    PolicyMode = str
else:
    EventType = Literal[tuple(sorted(TYPES))]
    Relation = Literal[tuple(sorted(RELATIONS))]
    RecoveryMode = Literal[RESTORE, REBUILD]
    ContinuationKind = Literal[NATIVE, REBUILD]
    SnapshotKind = Literal[STORED, REFERENCED, NO_SNAPSHOT]
    Origin = Literal[LIVE, IMPORTED]
    PolicyMode = Literal[STANDARD, ZDR]
Role = Literal["user", "assistant", "tool", "system"]
ThreadKind = Literal["main", "child"]
WaitKind = Literal["human", "machine", "timer"]
EvidenceKind = Literal["provider_lookup", "idempotency_mechanism", "accepted_receipt", "governed_decision"]
EffectOutcome = Literal["succeeded", "failed", "not_performed", "abandoned"]
Positions = Annotated[str, Meta(pattern=r"^[a-z0-9_=:,;-]*$(?!\n)", description="Where content lies, by session and expiry day")]

TIMES = frozenset({"expires_at", "lease_expires_at", "verified_at"})
"""Attributes that are times: microseconds in the log, RFC 3339 here."""

_ATTRIBUTES: dict[str, Any] = {
    "origin": Origin, "policy_mode": PolicyMode, "content_window_days": Days, "source_kind": Name, "source_record_kind": Name,
    "source_index": Count, "source_digest": Digest, "source_gap": Code, "role": Role, "model": Name, "input_tokens": Count,
    "output_tokens": Count, "cache_read_tokens": Count, "cache_write_tokens": Count, "call_id": CallId, "name": Name,
    "is_error": bool, "duration_ms": Count, "gap": Code, "parent_thread_id": ThreadId, "lane": Name, "claimable": bool,
    "harness": Name, "harness_revision": Name, "environment_revision": Name, "outcome": Code, "reward": float, "reason": Code,
    "principal_id": PrincipalId, "claim_digest": Digest, "lease_ms": Count, "lease_expires_at": Moment, "child_id": ChildId,
    "kind": Name, "native": bool, "wait_id": WaitId, "expires_at": Moment, "approval_id": ApprovalId, "action_digest": Digest,
    "decision": Code, "effect_id": EffectId, "provider": Name, "request_digest": Digest, "receipt_digest": Digest,
    "evidence_kind": EvidenceKind, "artifact_id": ArtifactId, "media_type": Name, "byte_count": Count, "digest": Digest,
    "pin_kind": Code, "revision": Name, "target_run_id": RunId, "checkpoint_window_s": CheckpointWindow, "fork_id": ForkId,
    "source_session_id": SessionId, "child_session_id": SessionId, "origin_session_id": SessionId, "checkpoint_id": CheckpointId,
    "through_sequence": Count, "through_event_id": EventId, "through_hash": Hex32, "source_hash": Hex32, "inherited": Positions,
    "depth": Count, "recovery_mode": RecoveryMode, "recovery_reason": Code, "complete": bool, "incomplete_ok": bool,
    "replaces": Generation, "frontier_sequence": Count, "verification_digest": Digest, "verified_at": Moment,
    "capsule_id": CapsuleId, "import_id": ImportId, "content_digest": Digest, "target_digest": Digest, "use_kind": Code,
    "continuation_kind": ContinuationKind, "snapshot_kind": SnapshotKind, "snapshot_id": SnapshotId, "snapshot_bytes": Count,
    "snapshot_digest": Digest, "native_id": SnapshotId, "native_bytes": Count, "native_digest": Digest,
}  # fmt: skip
_OF_FAMILY: dict[tuple[str, str], Any] = {
    ("thread", "kind"): ThreadKind,
    ("wait", "kind"): WaitKind,
    ("steering", "kind"): Code,
    ("effect", "outcome"): EffectOutcome,
}

ATTRIBUTES_BODY: dict[str, Any] = {
    family: msgspec.defstruct(
        f"{record.__name__}Body",
        [(name, _OF_FAMILY.get((family, name), _ATTRIBUTES[name]) | None, None) for name in record.__struct_fields__],
        forbid_unknown_fields=True,
        frozen=True,
        omit_defaults=True,
        kw_only=True,
    )
    for family, record in FAMILIES.items()
}
"""For each family, its attributes as JSON: the fields of `schemas/attributes/`, with their bounds."""
