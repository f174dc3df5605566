"""Who asks, and what they may do. Scopes, workspace and subject restriction are enforced through here alone."""

from typing import Final

from msgspec import Struct

from streams.errors import NotFound, NotPermitted

SCOPES: Final = (
    "sessions:write", "sessions:read", "sessions:import", "runs:claim", "checkpoints:read", "checkpoints:write",
    "agent-checkpoints:read", "agent-checkpoints:write", "context:compile", "mcp:call", "export:read", "erasure:write",
    "policy:write", "capsules:read", "capsules:write", "capsules:import", "admin",
)  # fmt: skip
"""`admin` includes every other scope of its workspace."""

ANY_SCOPE: Final = "any"
"""What a route asks for that is open to every key."""

KINDS: Final = ("service", "runner", "person")


class Principal(Struct, frozen=True, gc=False):
    """`principal_id` is the `key_...` of the API key; `subject_id`, where given, is the only subject it may touch; `agent`, where
    given, is the agent that it shares with other keys."""

    workspace_id: str
    principal_id: str
    kind: str
    scopes: frozenset[str]
    subject_id: str | None = None
    agent: str | None = None

    @property
    def agent_id(self) -> str:
        """Whose checkpoints it saves and reads: `agent_` and 32 hex digits, of its own unless it shares one."""
        return self.agent or f"agent_{self.principal_id.removeprefix('key_')}"

    def holds(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes or scope == ANY_SCOPE

    def require(self, scope: str) -> None:
        """Raises `NotPermitted` (auth.scope) naming the scope that is missing."""
        if not self.holds(scope):
            raise NotPermitted(f"this key lacks the scope {scope}", code="auth.scope")

    def sees(self, workspace_id: str, subject_id: str | None) -> bool:
        """Whether a session of this workspace and subject is there for it."""
        return workspace_id == self.workspace_id and self.subject_id in (None, subject_id)

    def require_sight_of(self, session_id: str, workspace_id: str, subject_id: str | None) -> None:
        """Raises `NotFound` exactly as for a session that does not exist: who may not see it learns nothing of it."""
        if not self.sees(workspace_id, subject_id):
            raise no_session(session_id)


def no_session(session_id: str) -> NotFound:
    """In the words of `streams.query.queries`, which answers where the session is not there."""
    return NotFound(f"session {session_id}")
