"""API keys: `sks_` and 32 random bytes in base64url. Only the SHA-256 is kept, as a row of `workspaces.config`. Clients that know
keys by another name may present one as `titen_sk_` and the same bytes (page 06).

Every gateway follows that topic and looks at not-before, expiry and revocation on every request. A key is found by the
digest of what was presented, so no comparison runs over a secret; the digests themselves are compared in constant time.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, Protocol

import structlog
from msgspec import Struct, structs

from connectors.edge.principal import KINDS, SCOPES, Principal
from schemas.codec import Undecodable, decode_as, encode
from streams.clock import now_us
from streams.errors import BrokerUnavailable, Invalid, NotFound, NotPermitted, Retriable
from streams.log.follower import CompactedFollower
from streams.log.rows import put_row
from streams.log.topics import Topics
from streams.session.ids import is_id
from streams.settings import Settings

_SUBJECT: Final = "workspace-config"
_KIND: Final = "api_key"
_SECRET: Final = re.compile(r"(?:sks|titen_sk)_([A-Za-z0-9_-]{43})")
_AGENT: Final = re.compile(r"agent_[0-9a-f]{32}")
_log = structlog.get_logger(__name__)


KeyState = Literal["valid", "not_yet_valid", "expired", "revoked"]


class ApiKey(Struct, frozen=True, kw_only=True):
    """A row. Times in microseconds since the epoch, UTC; the digest is 32 bytes. Keys of one `agent_id` share its checkpoints;
    without one a key is an agent of its own."""

    workspace_id: str
    key_id: str
    secret_digest: bytes
    principal_kind: str
    scopes: tuple[str, ...]
    subject_id: str | None = None
    created_at: int
    not_before: int | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    agent_id: str | None = None

    def state(self, now: int) -> KeyState:
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and now >= self.expires_at:
            return "expired"
        if self.not_before is not None and now < self.not_before:
            return "not_yet_valid"
        return "valid"


class Rows(Protocol):
    """What `CompactedFollower` offers: a table that is replaced, never changed in place, and knows how fresh it is."""

    @property
    def rows(self) -> Mapping[bytes, bytes]: ...

    @property
    def fresh(self) -> bool: ...


def new_secret() -> str:
    return "sks_" + secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def row_key(key: ApiKey) -> bytes:
    return f"{key.workspace_id}/{_KIND}/{key.key_id}".encode()


def encode_row(key: ApiKey) -> bytes:
    fields = structs.asdict(key)
    workspace_id = fields.pop("workspace_id")
    fields["scopes"] = list(key.scopes)
    return encode(_SUBJECT, {"workspace_id": workspace_id, "kind": _KIND, "id": key.key_id, "api_key": fields, "policy": None})


def decode_row(value: bytes) -> ApiKey | None:
    """None for rows of other kinds. Raises schemas.codec.Undecodable."""
    row = decode_as(_SUBJECT, value)
    fields = row["api_key"]
    if row["kind"] != _KIND or not isinstance(fields, dict):
        return None
    return ApiKey(workspace_id=str(row["workspace_id"]), **{**fields, "scopes": tuple(fields["scopes"])})


class KeyTable:
    """Finds the principal of a presented key in the followed table."""

    def __init__(self, table: Rows) -> None:
        self._table = table
        self._seen: Mapping[bytes, bytes] | None = None
        self._decoded: dict[bytes, tuple[bytes, ApiKey | None]] = {}
        self._by_digest: dict[bytes, tuple[ApiKey, Principal]] = {}

    def principal(self, secret: str, now: int) -> Principal:
        """Raises `NotPermitted` (auth.invalid, auth.not_yet_valid, auth.expired, auth.revoked), and `Retriable` while
        the table may lack a revocation."""
        if not self._table.fresh:
            raise Retriable("the keys have not been followed for too long", code="service.not_ready")
        if self._table.rows is not self._seen:
            self._index(self._table.rows)
        presented = _SECRET.fullmatch(secret)
        digest = digest_of(secret if presented is None else f"sks_{presented[1]}")
        found = self._by_digest.get(digest)
        if presented is None or found is None or not hmac.compare_digest(found[0].secret_digest, digest):
            raise NotPermitted("unknown key", code="auth.invalid")
        key, principal = found
        state = key.state(now)
        if state != "valid":
            raise NotPermitted(f"this key is {state.replace('_', ' ')}", code=f"auth.{state}")
        return principal

    def _index(self, rows: Mapping[bytes, bytes]) -> None:
        decoded: dict[bytes, tuple[bytes, ApiKey | None]] = {}
        for name, value in rows.items():
            known = self._decoded.get(name)
            decoded[name] = known if known is not None and known[0] is value else (value, _readable(name, value))
        self._decoded = decoded
        self._by_digest = {key.secret_digest: (key, _principal(key)) for _, key in decoded.values() if key is not None}
        self._seen = rows


def _principal(key: ApiKey) -> Principal:
    return Principal(key.workspace_id, key.key_id, key.principal_kind, frozenset(key.scopes), key.subject_id, key.agent_id)


def _readable(name: bytes, value: bytes) -> ApiKey | None:
    try:
        return decode_row(value)
    except (Undecodable, KeyError, TypeError) as error:
        # A row that cannot be read opens nothing; the others go on working.
        _log.error("config_row_unreadable", row=name.decode(errors="replace"), reason=type(error).__name__)
        return None


class KeyAdministration:
    """Creates, lists and revokes keys. Writes the rows itself; whoever reads them relies on their form only."""

    def __init__(
        self, settings: Settings, *, write: Callable[[bytes, bytes], None] | None = None, clock: Callable[[], int] = now_us
    ) -> None:
        """`write(key, value)` stores a row durably; by default in `workspaces.config`."""
        self._settings = settings
        self._topic = Topics(settings.topic_prefix).config
        self._write = write or (lambda key, value: put_row(settings, self._topic, key, value))
        self._clock = clock

    def create(
        self,
        workspace_id: str,
        scopes: Collection[str],
        *,
        kind: str = "service",
        subject_id: str | None = None,
        agent_id: str | None = None,
        not_before: int | None = None,
        expires_at: int | None = None,
    ) -> tuple[ApiKey, str]:
        """The key and its secret, which is shown this once. Raises `Invalid` and `BrokerUnavailable`."""
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise Invalid(f"scopes: {', '.join(unknown) or 'none given'}; there are {', '.join(SCOPES)}")
        if kind not in KINDS:
            raise Invalid(f"kind: one of {', '.join(KINDS)}")
        if not is_id(workspace_id, "ws") or not (subject_id is None or is_id(subject_id, "subj")):
            raise Invalid("workspace: ws_ and 32 hex digits; subject: subj_ and 32 hex digits")
        if agent_id is not None and _AGENT.fullmatch(agent_id) is None:
            # Names of people and their agents do not stand in the topic of keys.
            raise Invalid("agent: agent_ and 32 hex digits")
        secret = new_secret()
        key = ApiKey(
            workspace_id=workspace_id,
            key_id=f"key_{secrets.token_hex(16)}",
            secret_digest=digest_of(secret),
            principal_kind=kind,
            scopes=tuple(sorted(set(scopes))),
            subject_id=subject_id,
            created_at=self._clock(),
            not_before=not_before,
            expires_at=expires_at,
            agent_id=agent_id,
        )
        self._write(row_key(key), encode_row(key))
        return key, secret

    def list(self, timeout_s: float = 10) -> list[ApiKey]:
        """All keys, oldest first. Raises `BrokerUnavailable`."""
        follower = CompactedFollower(self._settings, "keys", self._topic)
        try:
            if not follower.wait_fresh(timeout_s):
                raise BrokerUnavailable("reading the keys: timed out")
            rows = follower.rows
        finally:
            follower.close()
        keys = [_readable(name, value) for name, value in rows.items()]
        return sorted((key for key in keys if key is not None), key=lambda key: key.created_at)

    def revoke(self, key_id: str, timeout_s: float = 10) -> ApiKey:
        """Revoking twice keeps the first time. Raises `NotFound` and `BrokerUnavailable`."""
        found = next((key for key in self.list(timeout_s) if key.key_id == key_id), None)
        if found is None:
            raise NotFound(f"no key {key_id}")
        if found.revoked_at is not None:
            return found
        revoked = structs.replace(found, revoked_at=self._clock())
        self._write(row_key(revoked), encode_row(revoked))
        return revoked
