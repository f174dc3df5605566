"""Every rule of an agent's checkpoint, as a pure function of what is there, what is asked, and the time (design 06, 1.7).

One row a scope: (workspace, subject, agent, kind), the last writer wins unless it says what it believes to replace. A save over a row,
expired or not, keeps its id and when it was created; its time to live begins anew. Times are microseconds since the epoch, and those
that a row has are whole milliseconds, as they are shown.
"""

from typing import Final

from msgspec import Struct

KINDS: Final = ("task_state", "conversation", "workflow", "cursor")
TTL_SECONDS_MIN: Final = 60
TTL_SECONDS_MAX: Final = 2_592_000
VERSIONS_KEPT: Final = 20
"""Numbered versions of a scope, besides its head."""

CONFLICT: Final = "conflict"
"""Another state is there than was expected, or no visible one."""
ABSENT: Final = "absent"
"""The scope has no row of that id."""
LATE: Final = "late"
"""Nobody waits for it any more, so it must not take effect as if it were new."""


class AgentScope(Struct, frozen=True, gc=False):
    """Whose state it is. `subject_id` and `agent_id` are pseudonyms (`subj_`, `actr_`), `kind` is one of `KINDS`."""

    workspace_id: str
    subject_id: str
    agent_id: str
    kind: str

    @property
    def key(self) -> str:
        """What its records are keyed by, and what its partition is that of."""
        return f"{self.workspace_id}/{self.subject_id}/{self.agent_id}/{self.kind}"


class Sealed(Struct, frozen=True, gc=False):
    """A state as it was sealed. `save_id` (a command's) is in what its bytes are bound to; `expiry_day` (YYYY-MM-DD) names the secret
    that goes when the state has expired."""

    ciphertext: bytes
    digest: bytes
    expiry_day: str
    save_id: str


class Head(Struct, frozen=True, gc=False, kw_only=True):
    """The row of a scope, or one of its numbered versions. `oldest_version` is that of the first version that may be there still."""

    checkpoint_id: str
    scope: AgentScope
    version: int
    oldest_version: int
    created_at: int
    updated_at: int
    expires_at: int
    ttl_seconds: int
    state_hash: str
    sealed: Sealed

    def visible(self, now: int) -> bool:
        """Equal is expired (design 06, 1.7)."""
        return self.expires_at > now


class Save(Struct, frozen=True, gc=False, kw_only=True):
    """`checkpoint_id`: for the row, if it is a new one. `expected_state_hash`: of the visible state that it is to replace."""

    scope: AgentScope
    checkpoint_id: str
    state_hash: str
    ttl_seconds: int
    sealed: Sealed
    expected_state_hash: str | None = None
    not_after: int


class Delete(Struct, frozen=True, gc=False, kw_only=True):
    scope: AgentScope
    checkpoint_id: str
    not_after: int


class Saved(Struct, frozen=True, gc=False):
    """`superseded`: the row that was there, which becomes a numbered version; None: the row is new. `dropped`: numbers of versions that
    are over the bound."""

    head: Head
    superseded: Head | None
    dropped: range


class Deleted(Struct, frozen=True, gc=False):
    """`dropped`: the numbers of its versions."""

    head: Head
    dropped: range


class Refused(Struct, frozen=True, gc=False):
    """`actual_state_hash`: of the visible state, where that is why."""

    code: str
    actual_state_hash: str | None = None


def decide(head: Head | None, command: Save | Delete, now: int) -> Saved | Deleted | Refused:
    """What becomes of a command, where `head` is the row of its scope."""
    if now > command.not_after:
        return Refused(LATE)
    if isinstance(command, Delete):
        if head is None or head.checkpoint_id != command.checkpoint_id:
            return Refused(ABSENT)
        return Deleted(head, range(head.oldest_version, head.version))
    # A clock that stands behind its predecessor's does not make a version older than the one before.
    at = max(now // 1000 * 1000, head.updated_at if head is not None else 0)
    if command.expected_state_hash is not None:
        actual = head.state_hash if head is not None and head.visible(at) else None
        if actual != command.expected_state_hash:
            return Refused(CONFLICT, actual)
    version = 1 if head is None else head.version + 1
    oldest = version if head is None else max(head.oldest_version, version - VERSIONS_KEPT)
    saved = Head(
        checkpoint_id=command.checkpoint_id if head is None else head.checkpoint_id,
        scope=command.scope,
        version=version,
        oldest_version=oldest,
        created_at=at if head is None else head.created_at,
        updated_at=at,
        expires_at=at + command.ttl_seconds * 1_000_000,
        ttl_seconds=command.ttl_seconds,
        state_hash=command.state_hash,
        sealed=command.sealed,
    )
    return Saved(saved, head, range(0) if head is None else range(head.oldest_version, oldest))
