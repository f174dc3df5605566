"""What structural fields may hold: identifiers, enumerations, codes, digests, and names of software; never text about
or by a person.

The schemas say "string" where this page says which strings, so that a new word needs no new schema. It is enforced
where a command is made and where it is decided (`streams.log.record`); what was accepted is not judged again, so that
an older reader can read newer words.
"""

import re
from collections.abc import Callable
from typing import Final

from streams.session.events import (
    FAMILIES,
    NONE,
    OMITTED,
    SEALED,
    TYPES,
    ApprovalAttributes,
    ArtifactAttributes,
    AttemptAttributes,
    Attributes,
    CapsuleAttributes,
    CheckpointAttributes,
    ChildAttributes,
    Content,
    ContextAttributes,
    Draft,
    EffectAttributes,
    MessageAttributes,
    RunAttributes,
    SessionAttributes,
    SourceAttributes,
    SteeringAttributes,
    ThreadAttributes,
    ToolAttributes,
    TurnAttributes,
    WaitAttributes,
    family_of,
)
from streams.session.ids import PREFIXES
from streams.session.words import IMPORTED, LIVE, NATIVE, NO_SNAPSHOT, REBUILD, REFERENCED, RESTORE, STANDARD, STORED, ZDR

Check = Callable[[str], object]
"""Truthy where the text may stand in the field."""

RELATIONS: Final = frozenset(
    {
        "parent_event",
        "cause",
        "call",
        "parent_run",
        "parent_session",
        "wait",
        "approval",
        "effect",
        "child",
        "artifact",
        "checkpoint",
        "supersedes",
    }
)
NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}"
"""What software calls itself: a word of ASCII, so that neither a sentence nor a name as people write theirs gets in."""
DIGEST_BYTES: Final = 32
SHORTEST_CIPHERTEXT: Final = 12 + 18 + 16
"""Bytes: nonce, then version, flags and salt, then the tag (docs/wire-format.md)."""


def _matches(pattern: str) -> Check:
    return re.compile(pattern).fullmatch


def _id(*prefixes: str) -> Check:
    return _matches(rf"(?:{'|'.join(prefixes)})_[0-9a-f]{{32}}")


def _one_of(words: str) -> Check:
    return _matches("|".join(words.split()))


def pattern_of(check: Check) -> str:
    """The regular expression of what a check of this page lets through: every one is the `fullmatch` of one."""
    pattern: re.Pattern[str] = check.__self__  # type: ignore[attr-defined]
    return pattern.pattern


EVENT_ID: Final = _id("evt")
SESSION_ID: Final = _id("sess")
WORKSPACE_ID: Final = _id("ws")
COMMAND_ID: Final = _id("cmd")
PRINCIPAL_ID: Final = _id("key")
THREAD_ID: Final = _id("sthr")
TURN_ID: Final = _id("turn")
RUN_ID: Final = _id("run")
TASK_ID: Final = _id("task")
ACTOR_ID: Final = _id("actr")
SUBJECT_ID: Final = _id("subj")
ANY_ID: Final = _id(*PREFIXES)
DAY: Final = _matches(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])")
CODE: Final = _matches(r"[a-z][a-z0-9_.-]{0,63}")
DIGEST: Final = _matches(r"(?:[a-z0-9-]{1,16}:)?[0-9a-f]{32,128}")
NAME: Final = _matches(NAME_PATTERN)
CHECKPOINT_ID: Final = _id("ckpt")
SNAPSHOT_ID: Final = _id("snap")
HASH: Final = _matches(r"[0-9a-f]{64}")
_SPAN: Final = r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|omitted|erased):[0-9]{1,18}-[0-9]{1,18}"
_SPANS: Final = rf"sess_[0-9a-f]{{32}}={_SPAN}(?:,{_SPAN})*"
POSITIONS: Final = _matches(rf"(?:{_SPANS}(?:;{_SPANS})*)?")
"""Where content lies (`streams.session.history`)."""

_IDENTIFIERS: Final[tuple[tuple[str, Check], ...]] = (
    ("event_id", EVENT_ID),
    ("session_id", SESSION_ID),
    ("workspace_id", WORKSPACE_ID),
    ("thread_id", THREAD_ID),
    ("turn_id", TURN_ID),
    ("run_id", RUN_ID),
    ("native_task_id", TASK_ID),
    ("actor_id", ACTOR_ID),
    ("subject_id", SUBJECT_ID),
    ("command_id", COMMAND_ID),
)

_SOURCE: Final[tuple[tuple[str, Check], ...]] = (
    ("source_kind", NAME),
    ("source_record_kind", NAME),
    ("source_digest", DIGEST),
    ("source_gap", CODE),
)

ATTRIBUTES: Final[dict[type[Attributes], tuple[tuple[str, Check], ...]]] = {
    SessionAttributes: (
        ("origin", _one_of(f"{LIVE} {IMPORTED}")),
        ("policy_mode", _one_of(f"{STANDARD} {ZDR}")),
        ("reason", CODE),
        ("fork_id", _id("fork")),
        ("source_session_id", SESSION_ID),
        ("child_session_id", SESSION_ID),
        ("checkpoint_id", CHECKPOINT_ID),
        ("through_event_id", EVENT_ID),
        ("source_hash", HASH),
        ("inherited", POSITIONS),
    ),
    ThreadAttributes: (("kind", _one_of("main child")), ("parent_thread_id", THREAD_ID)),
    TurnAttributes: (("outcome", CODE),),
    RunAttributes: (
        ("origin", _one_of(f"{LIVE} {IMPORTED}")),
        ("lane", NAME),
        ("harness", NAME),
        ("harness_revision", NAME),
        ("environment_revision", NAME),
        ("outcome", CODE),
        ("reason", CODE),
    ),
    AttemptAttributes: (
        ("principal_id", PRINCIPAL_ID),
        ("claim_digest", DIGEST),
        ("reason", CODE),
        ("recovery_mode", _one_of(f"{RESTORE} {REBUILD}")),
        ("recovery_reason", CODE),
        ("checkpoint_id", CHECKPOINT_ID),
        ("harness_revision", NAME),
        ("environment_revision", NAME),
        ("verification_digest", DIGEST),
    ),
    MessageAttributes: (("role", _one_of("user assistant tool system")), ("model", NAME), *_SOURCE),
    SourceAttributes: _SOURCE,
    ToolAttributes: (("call_id", _id("call")), ("name", NAME), ("gap", CODE)),
    ChildAttributes: (("child_id", _id("chld")), ("kind", NAME), ("outcome", CODE)),
    WaitAttributes: (("wait_id", _id("wait")), ("kind", _one_of("human machine timer")), ("reason", CODE)),
    ApprovalAttributes: (("approval_id", _id("appr")), ("action_digest", DIGEST), ("decision", CODE)),
    EffectAttributes: (
        ("effect_id", _id("eff")),
        ("provider", NAME),
        ("request_digest", DIGEST),
        ("action_digest", DIGEST),
        ("approval_id", _id("appr")),
        ("receipt_digest", DIGEST),
        ("evidence_kind", _one_of("provider_lookup idempotency_mechanism accepted_receipt governed_decision")),
        ("outcome", _one_of("succeeded failed not_performed abandoned")),
    ),
    CheckpointAttributes: (
        ("checkpoint_id", CHECKPOINT_ID),
        ("origin_session_id", SESSION_ID),
        ("through_event_id", EVENT_ID),
        ("through_hash", HASH),
        ("harness", NAME),
        ("harness_revision", NAME),
        ("environment_revision", NAME),
        ("continuation_kind", _one_of(f"{NATIVE} {REBUILD}")),
        ("snapshot_kind", _one_of(f"{STORED} {REFERENCED} {NO_SNAPSHOT}")),
        ("snapshot_id", SNAPSHOT_ID),
        ("snapshot_digest", DIGEST),
        ("native_id", SNAPSHOT_ID),
        ("native_digest", DIGEST),
        ("fork_id", _id("fork")),
    ),
    ArtifactAttributes: (("artifact_id", _id("art")), ("media_type", NAME), ("digest", DIGEST)),
    ContextAttributes: (("pin_kind", CODE), ("revision", NAME), ("digest", DIGEST)),
    SteeringAttributes: (("kind", CODE), ("target_run_id", RUN_ID)),
    CapsuleAttributes: (
        ("capsule_id", _id("cap")),
        ("import_id", _id("cimp")),
        ("checkpoint_id", CHECKPOINT_ID),
        ("content_digest", DIGEST),
        ("target_digest", DIGEST),
        ("use_kind", CODE),
        ("outcome", _one_of("imported refused")),
        ("reason", CODE),
        ("request_digest", DIGEST),
    ),
}
"""For each family, its fields of text and what they may hold."""


def misplaced_identifier(draft: Draft) -> str | None:
    """The name of an identifier of the envelope that is not of its kind, if there is one."""
    for name, check in _IDENTIFIERS:
        value = getattr(draft, name)
        if value is not None and not check(value):
            return name
    return None


def misplaced(draft: Draft) -> str | None:
    """The name of a field of the envelope (attributes aside) that holds what it may not, if there is one."""
    if draft.type not in TYPES:
        return "type"
    for link in draft.links:
        if link.relation not in RELATIONS or not ANY_ID(link.id):
            return "links"
    return misplaced_identifier(draft) or _misplaced_content(draft.content, draft.session_id)


def misplaced_attribute(event_type: str, attributes: Attributes) -> str | None:
    """The name of an attribute that holds what it may not (or "attributes": not the type's family), if there is one."""
    if type(attributes) is not FAMILIES.get(family_of(event_type)):
        return "attributes"
    for name, check in ATTRIBUTES[type(attributes)]:
        value = getattr(attributes, name)
        if value is not None and not check(value):
            return f"attributes.{name}"
    return None


def _misplaced_content(content: Content, session_id: str) -> str | None:
    reference = content.key_reference
    if content.state == SEALED:
        if reference is None or reference.session_id != session_id or not DAY(reference.expiry_day):
            return "content.key_reference"
        if reference.subject_id is not None and not SUBJECT_ID(reference.subject_id):
            return "content.key_reference"
        if content.ciphertext is None or len(content.ciphertext) < SHORTEST_CIPHERTEXT:
            return "content.ciphertext"
        return None if content.digest is not None and len(content.digest) == DIGEST_BYTES else "content.digest"
    if content.state not in (NONE, OMITTED):
        return "content.state"
    return None if reference is None and content.ciphertext is None and content.digest is None else "content"
