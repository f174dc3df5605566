"""Events: what a command supplies (`Draft`) and what the authority adds (`Event`).

The fields stand in the order of `schemas/event.v1.avsc`. A type is `family.past_participle`; its attributes are the
family's record below, which `schemas/attributes/` publishes.
"""

from typing import Final, TypeVar

from msgspec import Struct

SEALED: Final = "sealed"
NONE: Final = "none"
OMITTED: Final = "omitted"


class KeyReference(Struct, frozen=True, gc=False):
    """The three secrets of a content key; without a subject the session's own stands in the subject's place."""

    subject_id: str | None
    session_id: str
    expiry_day: str


class Content(Struct, frozen=True, gc=False):
    """Sealed content, or why there is none (`state`)."""

    state: str = NONE
    key_reference: KeyReference | None = None
    ciphertext: bytes | None = None
    digest: bytes | None = None


NO_CONTENT: Final = Content()


class Link(Struct, frozen=True, gc=False):
    """A typed reference. `relation`: parent_event, cause, call, parent_run, parent_session, wait, approval, effect,
    child, artifact, checkpoint, supersedes."""

    relation: str
    id: str


class Attributes(Struct, frozen=True, gc=False):
    """Base of the families: structural values only (ids, enumerations, software names, times, counts, digests)."""


class SessionAttributes(Attributes, frozen=True, gc=False):
    origin: str | None = None
    policy_mode: str | None = None
    content_window_days: int | None = None
    reason: str | None = None
    checkpoint_window_s: int | None = None
    fork_id: str | None = None
    source_session_id: str | None = None
    child_session_id: str | None = None
    checkpoint_id: str | None = None
    through_sequence: int | None = None
    through_event_id: str | None = None
    source_hash: str | None = None
    inherited: str | None = None
    depth: int | None = None


class SourceAttributes(Attributes, frozen=True, gc=False):
    source_kind: str | None = None
    source_record_kind: str | None = None
    source_index: int | None = None
    source_digest: str | None = None
    source_gap: str | None = None


class MessageAttributes(Attributes, frozen=True, gc=False):
    role: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    source_kind: str | None = None
    source_record_kind: str | None = None
    source_index: int | None = None
    source_digest: str | None = None
    source_gap: str | None = None


class ToolAttributes(Attributes, frozen=True, gc=False):
    call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    duration_ms: int | None = None
    gap: str | None = None


class ThreadAttributes(Attributes, frozen=True, gc=False):
    kind: str | None = None
    parent_thread_id: str | None = None


class TurnAttributes(Attributes, frozen=True, gc=False):
    outcome: str | None = None


class RunAttributes(Attributes, frozen=True, gc=False):
    origin: str | None = None
    lane: str | None = None
    claimable: bool | None = None
    harness: str | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None
    outcome: str | None = None
    reward: float | None = None
    reason: str | None = None


class AttemptAttributes(Attributes, frozen=True, gc=False):
    principal_id: str | None = None
    claim_digest: str | None = None
    lease_ms: int | None = None
    lease_expires_at: int | None = None
    reason: str | None = None
    recovery_mode: str | None = None
    recovery_reason: str | None = None
    checkpoint_id: str | None = None
    through_sequence: int | None = None
    complete: bool | None = None
    incomplete_ok: bool | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None
    replaces: int | None = None
    frontier_sequence: int | None = None
    verification_digest: str | None = None
    verified_at: int | None = None


class ChildAttributes(Attributes, frozen=True, gc=False):
    child_id: str | None = None
    kind: str | None = None
    native: bool | None = None
    outcome: str | None = None


class WaitAttributes(Attributes, frozen=True, gc=False):
    wait_id: str | None = None
    kind: str | None = None
    expires_at: int | None = None
    reason: str | None = None


class ApprovalAttributes(Attributes, frozen=True, gc=False):
    approval_id: str | None = None
    action_digest: str | None = None
    decision: str | None = None
    expires_at: int | None = None


class EffectAttributes(Attributes, frozen=True, gc=False):
    effect_id: str | None = None
    provider: str | None = None
    request_digest: str | None = None
    action_digest: str | None = None
    approval_id: str | None = None
    receipt_digest: str | None = None
    evidence_kind: str | None = None
    outcome: str | None = None


class CheckpointAttributes(Attributes, frozen=True, gc=False):
    checkpoint_id: str | None = None
    origin_session_id: str | None = None
    through_sequence: int | None = None
    through_event_id: str | None = None
    through_hash: str | None = None
    harness: str | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None
    continuation_kind: str | None = None
    expires_at: int | None = None
    snapshot_kind: str | None = None
    snapshot_id: str | None = None
    snapshot_bytes: int | None = None
    snapshot_digest: str | None = None
    native_id: str | None = None
    native_bytes: int | None = None
    native_digest: str | None = None
    fork_id: str | None = None


class ArtifactAttributes(Attributes, frozen=True, gc=False):
    artifact_id: str | None = None
    media_type: str | None = None
    byte_count: int | None = None
    digest: str | None = None


class ContextAttributes(Attributes, frozen=True, gc=False):
    pin_kind: str | None = None
    revision: str | None = None
    digest: str | None = None


class SteeringAttributes(Attributes, frozen=True, gc=False):
    kind: str | None = None
    target_run_id: str | None = None


class CapsuleAttributes(Attributes, frozen=True, gc=False):
    capsule_id: str | None = None
    import_id: str | None = None
    checkpoint_id: str | None = None
    through_sequence: int | None = None
    byte_count: int | None = None
    content_digest: str | None = None
    target_digest: str | None = None
    use_kind: str | None = None
    outcome: str | None = None
    reason: str | None = None
    expires_at: int | None = None
    request_digest: str | None = None


FAMILIES: Final[dict[str, type[Attributes]]] = {
    "session": SessionAttributes,
    "thread": ThreadAttributes,
    "turn": TurnAttributes,
    "run": RunAttributes,
    "attempt": AttemptAttributes,
    "message": MessageAttributes,
    "source": SourceAttributes,
    "tool": ToolAttributes,
    "child": ChildAttributes,
    "wait": WaitAttributes,
    "approval": ApprovalAttributes,
    "effect": EffectAttributes,
    "checkpoint": CheckpointAttributes,
    "artifact": ArtifactAttributes,
    "context": ContextAttributes,
    "steering": SteeringAttributes,
    "capsule": CapsuleAttributes,
}

TYPES: Final = frozenset(
    f"{family}.{participle}"
    for family, participles in {
        "session": "created closed forked",
        "thread": "opened",
        "turn": "started completed",
        "run": "accepted started waiting resumed completed failed cancelled",
        "attempt": "started ready failed replaced fenced",
        "message": "appended",
        "source": "recorded",
        "tool": "called returned",
        "child": "started settled",
        "wait": "opened answered expired",
        "approval": "requested granted denied",
        "effect": "dispatched receipt_accepted indeterminate reconciled",
        "checkpoint": "created consumed",
        "artifact": "recorded",
        "context": "pinned",
        "steering": "applied",
        "capsule": "created revoked imported decided",
    }.items()
    for participle in participles.split()
)

FREELY_APPENDED: Final = frozenset({"message.appended", "source.recorded", "tool.called", "tool.returned", "artifact.recorded"})
"""Types that any writer may append; every other type has a route of its own, or the importer's scope."""


def family_of(event_type: str) -> str:
    return event_type.partition(".")[0]


class Draft(Struct, frozen=True, gc=False, kw_only=True):
    """The leading fields of an event, as a command supplies them. Times in microseconds since the epoch, UTC."""

    event_id: str
    session_id: str
    type: str
    workspace_id: str
    thread_id: str | None = None
    turn_id: str | None = None
    run_id: str | None = None
    attempt_generation: int | None = None
    native_task_id: str | None = None
    actor_id: str | None = None
    subject_id: str | None = None
    command_id: str
    occurred_at: int | None = None
    links: tuple[Link, ...] = ()
    attributes: Attributes | None = None
    content: Content = NO_CONTENT


A = TypeVar("A", bound=Attributes)


def read(draft: Draft, kind: type[A]) -> A:
    """The draft's attributes; those of no attributes where it has none of this kind."""
    attributes = draft.attributes
    return attributes if isinstance(attributes, kind) else kind()


class Event(Draft, frozen=True, gc=False, kw_only=True):
    """An accepted event. `command_offset` is the offset of its command in the same partition of the command topic."""

    sequence: int
    command_offset: int
    command_last: bool
    accepted_at: int
    previous_hash: bytes
    hash: bytes
