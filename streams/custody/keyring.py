"""What a keyring is: secrets that can be created, read and destroyed for ever, and the pseudonyms of outside names.

Rules, for every implementation (tests/contract/keyring_contract.py holds them to it):

- A secret is 32 random bytes. Whatever is returned is durable: a power cut after the answer loses nothing.
- Processes that ask for the same secret, pseudonym or identity key at once get the same one.
- A destroyed secret leaves a permanent tombstone: nobody creates it again, however late they ask.
- Destroying a subject's secret forgets which outside name the pseudonym stood for; who returns gets a new pseudonym.
- An outside name is stored as a keyed hash only.

Sealing and the edge call it, from any thread; calls block.
"""

import hmac
import re
from collections.abc import Collection, Iterable
from typing import Final, Literal, Protocol, cast

from msgspec import Struct

from streams.errors import ContentUnavailable, Invalid
from streams.session.ids import is_id
from streams.session.words import CONTENT_ERASED, CONTENT_EXPIRED

SECRET_BYTES: Final = 32

SecretKind = Literal["subject", "session", "day", "dead_letters", "snapshot", "capsule"]
PseudonymKind = Literal["subject", "actor"]

PSEUDONYM_PREFIXES: Final[dict[PseudonymKind, str]] = {"subject": "subj", "actor": "actr"}

DAY_KINDS: Final[frozenset[SecretKind]] = frozenset({"day", "dead_letters"})
"""Whose secrets go when their day is over."""

_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HEX: Final = "[0-9a-f]{32}"
_NAME: Final = re.compile(
    rf"ws_{_HEX}/(?:subject/subj_{_HEX}|session/sess_{_HEX}|snapshot/snap_{_HEX}|capsule/cap_{_HEX}|day/{_DAY}|dead_letters/{_DAY})"
)


class SecretRef(Struct, frozen=True):
    """Which secret. `id` is a subj_, sess_, snap_ or cap_ identifier, or a UTC day as YYYY-MM-DD, as `kind` says."""

    kind: SecretKind
    workspace_id: str
    id: str

    @classmethod
    def named(cls, name: str) -> "SecretRef":
        """Of a name that a secret is stored under."""
        workspace_id, kind, identifier = name.split("/")
        return cls(cast(SecretKind, kind), workspace_id, identifier)

    @property
    def name(self) -> str:
        """The name it is stored under. Raises `Invalid` where the parts do not fit their patterns."""
        name = f"{self.workspace_id}/{self.kind}/{self.id}"
        if _NAME.fullmatch(name) is None:
            raise Invalid(f"secret of kind {self.kind}: its workspace or id does not fit the pattern")
        return name


class Keyring(Protocol):
    """Every method raises `KeyringUnavailable` where storage or provider cannot answer now."""

    def identity_key(self, workspace_id: str) -> bytes:
        """The workspace's key (32 bytes) for identifiers derived from outside text; created at the first call.

        It outlives every rotation of the workspace key, since derived identifiers must not change.
        """
        ...

    def pseudonym(self, workspace_id: str, kind: PseudonymKind, outside_id: str, *, create: bool) -> str | None:
        """The subj_ or actr_ identifier of an outside name; None where there is none and `create` is false.

        Raises `Invalid` for a name that cannot be one: no Unicode, or with `create` one that is spelled like a pseudonym. Who echoes
        what an answer told would make another person of it, and an erasure would mean the first.
        """
        ...

    def is_named(self, workspace_id: str, pseudonym: str) -> bool:
        """Whether a pseudonym stands for an outside name still."""
        ...

    def secrets(self, refs: Collection[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
        """The secrets (32 bytes each), in one step for all.

        Without `create`, those that are not there, or no longer, are absent from the answer.
        With it, raises `ContentUnavailable` where one is destroyed; others of the call may have been created then.
        """
        ...

    def destroyed(self, refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        """Those that have a tombstone, so that a reader can tell *erased* from *never here*."""
        ...

    def days_before(self, day: str, limit: int) -> list[SecretRef]:
        """Secrets of days (kinds `day` and `dead_letters`) that are there and whose day is before `day` (YYYY-MM-DD): the oldest first,
        at most `limit`. What is not over costs nothing."""
        ...

    def destroy(self, refs: Collection[SecretRef]) -> None:
        """Destroy for ever, also what never existed. Returns when no file of the keyring holds a trace of them.

        Raises `KeyringUnavailable` where that cannot be shown; the destruction does not count then and is to be repeated.
        """
        ...

    def workspaces(self) -> list[str]:
        """Those that have a key, in order."""
        ...

    def rotate(self, workspace_id: str) -> int:
        """A new key of the workspace, wrapped by the provider's key of now, wraps every secret from here on; gives how many it wrapped
        anew. Secrets, pseudonyms and derived identifiers stay what they are, so the log never notices. One that was broken off is
        finished by the next call. Others create and read meanwhile.
        """
        ...

    def counts(self, workspace_id: str) -> dict[str, int]:
        """How many secrets there are by kind, `destroyed` among them, and `generation`: that of the workspace's key."""
        ...

    def close(self) -> None:
        """Give up threads and files. No call may follow."""
        ...


class WorkspaceKeyProvider(Protocol):
    """Wraps workspace keys with a key that the keyring's own storage never holds."""

    @property
    def key_id(self) -> str:
        """Names the key that `wrap` uses; stored beside what it wrapped, so that a provider can hold old and new keys."""
        ...

    def wrap(self, workspace_id: str, key: bytes) -> bytes:
        """Raises `KeyringUnavailable`."""
        ...

    def unwrap(self, workspace_id: str, key_id: str, wrapped: bytes) -> bytes:
        """Raises `Misconfigured` where this provider does not hold that key, `KeyringUnavailable` where it cannot answer now."""
        ...


def require_outside(outside_id: str) -> None:
    """Raises `Invalid` for what is spelled like a pseudonym of ours."""
    if any(is_id(outside_id, prefix) for prefix in PSEUDONYM_PREFIXES.values()):
        raise Invalid("outside id: subj_ or actr_ and 32 hex digits is a pseudonym, not an id of yours")


def hashed_name(identity_key: bytes, outside_id: str) -> bytes:
    """By what a keyring finds an outside name: 32 bytes. It does not depend on the role, so that erasing a subject forgets the person in
    both. Raises `Invalid`."""
    try:
        name = outside_id.encode()
    except UnicodeEncodeError:
        raise Invalid("outside id: not valid Unicode") from None
    message = b"".join(len(part).to_bytes(4, "big") + part for part in (b"pseudonym", name))
    return hmac.digest(identity_key, message, "sha256")


def refuse_destroyed(refs: Iterable[SecretRef]) -> None:
    """Raises `ContentUnavailable` for the first of those that are destroyed."""
    for ref in refs:
        code = CONTENT_ERASED if ref.kind in ("subject", "session") else CONTENT_EXPIRED
        raise ContentUnavailable(f"secret {ref.name} is destroyed", code=code)
