"""Policies of workspaces: what is pinned to a session at its creation. One row each of `workspaces.config`, beside the API keys.

"A policy can shorten, never lengthen; a policy change (to zdr too) holds for sessions created after it and never moves an
existing expires_at" (Checkpoints and recovery). So nothing reads a policy but the creation of a session, and whoever may not know
the policy of now creates none.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog
from msgspec import Struct, structs

from connectors.edge.keys import Rows
from schemas.codec import Undecodable, decode_as, encode
from streams.clock import now_us
from streams.errors import BrokerUnavailable, Invalid, Misconfigured, Retriable, StreamsError
from streams.log.follower import CompactedFollower
from streams.log.rows import put_row
from streams.log.topics import Topics
from streams.session.ids import is_id
from streams.session.limits import LONGEST_CHECKPOINT_WINDOW_S, LONGEST_WINDOW_DAYS
from streams.session.words import STANDARD, ZDR
from streams.settings import Settings

MODES: Final = (STANDARD, ZDR)
_LIMITS: Final = {"content_window_days": LONGEST_WINDOW_DAYS, "checkpoint_window_s": LONGEST_CHECKPOINT_WINDOW_S}
_SUBJECT: Final = "workspace-config"
_KIND: Final = "policy"
_ID: Final = "current"
_REQUESTS_KEPT: Final = 32
_log = structlog.get_logger(__name__)


class PolicyRequest(Struct, frozen=True):
    """A request that replaced a policy. `key_digest` (32 bytes) tells who asked under which Idempotency-Key, `request_digest` (32
    bytes) what; both are keyed."""

    key_digest: bytes
    request_digest: bytes
    changed_at: int = 0


class WorkspacePolicy(Struct, frozen=True, kw_only=True):
    """`mode` zdr: content is dropped at the edge. `changed_at` in microseconds; None where the workspace has no policy of its
    own, and these are the settings of the installation. `requests`: the latest that replaced it, oldest first."""

    mode: str
    content_window_days: int
    checkpoint_window_s: int
    changed_at: int | None = None
    requests: tuple[PolicyRequest, ...] = ()


def checked(policy: WorkspacePolicy) -> WorkspacePolicy:
    """Raises `Invalid` naming the field and its limit."""
    if policy.mode not in MODES:
        raise Invalid(f"mode: one of {', '.join(MODES)}")
    for field, largest in _LIMITS.items():
        if not 1 <= getattr(policy, field) <= largest:
            raise Invalid(f"{field}: from 1 to {largest}")
    return policy


def of_installation(settings: Settings) -> WorkspacePolicy:
    """What holds where a workspace has no policy. Raises `Misconfigured` where the settings are beyond the limits."""
    try:
        return checked(
            WorkspacePolicy(
                mode=STANDARD, content_window_days=settings.content_window_days, checkpoint_window_s=settings.checkpoint_window_s
            )
        )
    except Invalid as error:
        raise Misconfigured(f"settings: {error.detail}") from error


def row_key(workspace_id: str) -> bytes:
    return f"{workspace_id}/{_KIND}/{_ID}".encode()


def encode_row(workspace_id: str, policy: WorkspacePolicy) -> bytes:
    fields = {**structs.asdict(policy), "requests": [structs.asdict(request) for request in policy.requests]}
    return encode(_SUBJECT, {"workspace_id": workspace_id, "kind": _KIND, "id": _ID, "api_key": None, "policy": fields})


def decode_row(value: bytes) -> WorkspacePolicy:
    """Raises `Invalid` for what this code cannot take for a policy."""
    try:
        row = decode_as(_SUBJECT, value)
        return checked(msgspec.convert(row["policy"], WorkspacePolicy, builtin_types=(bytes,)))
    except (Undecodable, KeyError, msgspec.ValidationError) as error:
        raise Invalid(f"policy: {type(error).__name__}") from error


class PolicyTable:
    """The policy of each workspace, in the followed table."""

    def __init__(self, table: Rows, settings: Settings) -> None:
        """Raises `Misconfigured`."""
        self._table = table
        self._default = of_installation(settings)
        self._decoded: dict[bytes, tuple[bytes, WorkspacePolicy]] = {}

    def of(self, workspace_id: str) -> WorkspacePolicy:
        """What is pinned to a session that is created now: the workspace's policy, where it has one, but no longer a window for
        checkpoints than the installation's. Raises `Retriable` while the table may lack a change, or the row cannot be read."""
        if not self._table.fresh:
            raise Retriable("the policies have not been followed for too long", code="service.not_ready")
        key = row_key(workspace_id)
        value = self._table.rows.get(key)
        if value is None:
            self._decoded.pop(key, None)
            return self._default
        known = self._decoded.get(key)
        if known is not None and known[0] is value:
            return known[1]
        policy = self._read(workspace_id, value)
        self._decoded[key] = (value, policy)
        return policy

    def knows(self, workspace_id: str, policy: WorkspacePolicy) -> bool:
        """Whether a change is followed here: sessions that are created now have it, or a later one."""
        value = self._table.rows.get(row_key(workspace_id))
        return value is not None and (self._read(workspace_id, value).changed_at or 0) >= (policy.changed_at or 0)

    def _read(self, workspace_id: str, value: bytes) -> WorkspacePolicy:
        try:
            policy = decode_row(value)
        except Invalid as error:
            # It may say that nothing is kept: the installation's settings must not stand in for it.
            _log.error("policy_unreadable", workspace_id=workspace_id, reason=error.detail)
            raise Retriable(f"the policy of {workspace_id} cannot be read", code="service.not_ready") from error
        return structs.replace(policy, checkpoint_window_s=min(policy.checkpoint_window_s, self._default.checkpoint_window_s))


class PolicyAdministration:
    """Sets and shows policies. Writes the rows itself; whoever reads them relies on their form only."""

    def __init__(
        self,
        settings: Settings,
        *,
        write: Callable[[bytes, bytes], None] | None = None,
        read: Callable[[], Mapping[bytes, bytes]] | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`write(key, value)` stores a row durably, `read()` gives all of them; by default in `workspaces.config`."""
        self._settings = settings
        self._topic = Topics(settings.topic_prefix).config
        self._write = write or (lambda key, value: put_row(settings, self._topic, key, value))
        self._read = read or self._rows
        self._clock = clock

    def show(self, workspace_id: str) -> WorkspacePolicy:
        """The workspace's own, or what holds without one. Raises `Invalid`, `Misconfigured`, `BrokerUnavailable`."""
        if not is_id(workspace_id, "ws"):
            raise Invalid("workspace: ws_ and 32 hex digits")
        value = self._read().get(row_key(workspace_id))
        return of_installation(self._settings) if value is None else decode_row(value)

    def set(
        self,
        workspace_id: str,
        *,
        mode: str | None = None,
        content_window_days: int | None = None,
        checkpoint_window_s: int | None = None,
    ) -> WorkspacePolicy:
        """Holds for sessions created after it; what is not given stays. Raises as `show`, `Invalid` with field and limit."""
        given = {"mode": mode, "content_window_days": content_window_days, "checkpoint_window_s": checkpoint_window_s}
        changes = {name: value for name, value in given.items() if value is not None}
        policy = checked(structs.replace(self.show(workspace_id), changed_at=self._clock(), **changes))
        self._write(row_key(workspace_id), encode_row(workspace_id, policy))
        return policy

    def replace(self, workspace_id: str, policy: WorkspacePolicy, request: PolicyRequest) -> tuple[WorkspacePolicy, bool]:
        """Sets all of it. A request that was carried out changes nothing when it comes again: the policy as it set it, and True.

        Raises as `set`, and `StreamsError` (request.idempotency_mismatch) where the same key came with another request.
        """
        before = self.show(workspace_id)
        known = next((each for each in before.requests if each.key_digest == request.key_digest), None)
        if known is not None:
            if known.request_digest != request.request_digest:
                raise StreamsError("this Idempotency-Key came with another request", code="request.idempotency_mismatch")
            return structs.replace(policy, changed_at=known.changed_at), True
        now = self._clock()
        kept = (*before.requests, structs.replace(request, changed_at=now))[-_REQUESTS_KEPT:]
        made = checked(structs.replace(policy, changed_at=now, requests=kept))
        self._write(row_key(workspace_id), encode_row(workspace_id, made))
        return made, False

    def _rows(self, timeout_s: float = 10) -> Mapping[bytes, bytes]:
        follower = CompactedFollower(self._settings, "policies", self._topic)
        try:
            if not follower.wait_fresh(timeout_s):
                raise BrokerUnavailable("reading the policies: timed out")
            return follower.rows
        finally:
            follower.close()
