"""The private part of a capsule, sealed: it opens while its subject, its session, its expiry day and its own secret are all there.

So an erasure of subject or session ends every copy of it, wherever it was taken; so does the end of its day, and its revocation, which
destroys its own secret. The bytes are those of `sealed_stream.py`.
"""

from msgspec import Struct

from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sealed_bytes import UNREADABLE, content_key
from streams.custody.sealed_stream import StreamOpener, StreamPlace, StreamSealer
from streams.errors import ContentUnavailable
from streams.session.words import CONTENT_ERASED, CONTENT_EXPIRED

_PART = "capsule"


class CapsulePlace(Struct, frozen=True):
    """Whose capsule it is. `expiry_day` as YYYY-MM-DD."""

    workspace_id: str
    session_id: str
    subject_id: str | None
    expiry_day: str
    capsule_id: str

    @property
    def secret(self) -> SecretRef:
        """Its own."""
        return capsule_secret(self.workspace_id, self.capsule_id)


def capsule_secret(workspace_id: str, capsule_id: str) -> SecretRef:
    """A capsule's own, which ends its private part in every copy, in custody of its imports too."""
    return SecretRef("capsule", workspace_id, capsule_id)


def seal_capsule(keyring: Keyring, place: CapsulePlace, plaintext: bytes) -> bytes:
    """Blocks. Raises `ContentUnavailable` where a secret is destroyed, `KeyringUnavailable`."""
    refs = _refs(place)
    secrets = keyring.secrets(set(refs), create=True)
    sealer = StreamSealer(_secret([secrets[ref] for ref in refs]), _stream(place))
    return b"".join([*sealer.update(plaintext), sealer.finish()])


def open_capsule(keyring: Keyring, place: CapsulePlace, sealed: bytes) -> bytes:
    """Blocks. Raises `ContentUnavailable`: content.erased, content.expired (also once it is revoked), or content.unreadable; and
    `KeyringUnavailable`."""
    refs = _refs(place)
    secrets = keyring.secrets(set(refs), create=False)
    gone = [ref for ref in refs if ref not in secrets]
    if gone:
        raise ContentUnavailable(f"capsule {place.capsule_id}: a secret is gone", code=_why(keyring, gone))
    opener = StreamOpener(_secret([secrets[ref] for ref in refs]), _stream(place))
    return b"".join([*opener.update(sealed), opener.finish()])


def _why(keyring: Keyring, gone: list[SecretRef]) -> str:
    destroyed = keyring.destroyed(gone)
    if not destroyed:
        return UNREADABLE
    return CONTENT_ERASED if any(ref.kind in ("subject", "session") for ref in destroyed) else CONTENT_EXPIRED


def _refs(place: CapsulePlace) -> tuple[SecretRef, SecretRef, SecretRef, SecretRef]:
    session = SecretRef("session", place.workspace_id, place.session_id)
    subject = session if place.subject_id is None else SecretRef("subject", place.workspace_id, place.subject_id)
    return subject, session, SecretRef("day", place.workspace_id, place.expiry_day), place.secret


def _secret(secrets: list[bytes]) -> bytes:
    subject, session, day, own = secrets
    return content_key(subject, session, day) + own


def _stream(place: CapsulePlace) -> StreamPlace:
    return StreamPlace(place.workspace_id, place.session_id, place.capsule_id, _PART)
