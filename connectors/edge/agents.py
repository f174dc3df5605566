"""Agent checkpoints as a route sees them: outside ids and plain text in, and out. What is sealed and named lies behind `AgentCheckpoints`.

Times are microseconds since the epoch, always whole milliseconds (design 06, 1.4). `state` is the canonical JSON text, whose SHA-256
the caller has made; nothing behind here parses it.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct


class Caller(Struct, frozen=True, gc=False, kw_only=True):
    """Whose checkpoints are there: those of `agent_id` (an outside id) in the workspace, and of no other subject than
    `only_subject` (a `subj_` pseudonym, of a key that is restricted) where that is given."""

    workspace_id: str
    agent_id: str
    only_subject: str | None = None


class NewState(Struct, frozen=True, gc=False, kw_only=True):
    """What is saved at (caller, `subject_id`, `kind`). `state_hash`: 64 hex digits. `expected_state_hash`: of the state that the caller
    believes to replace; None: whatever is there."""

    subject_id: str
    kind: str
    run_id: str | None
    state: str
    state_hash: str
    ttl_seconds: int
    expected_state_hash: str | None = None


class Written(Struct, frozen=True, gc=False, kw_only=True):
    """`updated`: there was a row, expired or not. `position`: text of the command's position."""

    checkpoint_id: str
    updated: bool
    version: int
    state_hash: str
    updated_at: int
    expires_at: int
    position: str


class Conflict(Struct, frozen=True, gc=False):
    """Another state is there than was expected; None: no visible one."""

    actual_state_hash: str | None


class Checkpoint(Struct, frozen=True, gc=False, kw_only=True):
    """One version, opened."""

    checkpoint_id: str
    subject_id: str
    agent_id: str
    run_id: str | None
    kind: str
    state: str
    state_hash: str
    ttl_seconds: int
    version: int
    created_at: int
    updated_at: int
    expires_at: int


class History(Struct, frozen=True, gc=False):
    """Versions that can be read, newest first. `next_before`: what to give as `before` for those that follow; None: none do."""

    versions: tuple[Checkpoint, ...]
    next_before: int | None = None


class AgentCheckpoints(Protocol):
    """Belongs to one event loop. What is not there, expired, erased or somebody else's is None (or False), always alike.

    All raise `Retriable`s (503): the owner or the broker is away, `KeyringUnavailable`, `Overloaded`; `save` and `delete` also
    `OutcomeUnknown`: the same again is safe. A save that was answered is seen by every read that begins after that.
    """

    on_through: Callable[[float], None]
    """Told of each outcome how many seconds after its command was sent it came."""

    async def save(self, caller: Caller, new: NewState) -> Written | Conflict | None:
        """None: the caller's key is restricted to another subject."""
        ...

    async def at(self, caller: Caller, subject_id: str, kind: str) -> Checkpoint | None: ...

    async def by_id(self, caller: Caller, checkpoint_id: str) -> Checkpoint | None: ...

    async def delete(self, caller: Caller, checkpoint_id: str) -> bool:
        """Whether there was such a row of the caller's, expired or not, and not erased."""
        ...

    async def history(self, caller: Caller, checkpoint_id: str, *, limit: int, before: int | None = None) -> History | None:
        """At most `limit` versions below `before`; None as `by_id`."""
        ...
