"""An agent's state into sealed bytes and back, under two secrets: its subject's and that of (workspace, expiry day) (design 04).

The bytes are those of `sealed_bytes`; what they are bound to is workspace, scope and the save, so that they open in no other place.
Blocking, where a secret has to be asked for.
"""

import os
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from streams.custody.days import day_end_us
from streams.custody.keyring import SecretRef
from streams.custody.sealed_bytes import NONCE_BYTES, SALT_BYTES, Opened, content_aad, opened_with, sealed_with
from streams.custody.sealing import UNREADABLE, NotAtHand, Sealer
from streams.errors import ContentUnavailable, Invalid
from streams.session.words import CONTENT_ERASED, CONTENT_EXPIRED

_KEY_INFO: Final = b"session-streams/agent-state/v1"
_FIELD: Final = "agent-state"


class StatePlace(NamedTuple):
    """What a state is sealed for. `scope_key`: of its row; `save_id`: of the command that brings it; `expiry_day`: YYYY-MM-DD."""

    workspace_id: str
    subject_id: str
    scope_key: str
    save_id: str
    expiry_day: str


def agent_state_key(subject_secret: bytes, day_secret: bytes) -> bytes:
    """32 bytes from two secrets of 32. Destroying either shreds what was sealed under both."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_KEY_INFO).derive(subject_secret + day_secret)


def seal_agent_state(sealer: Sealer, place: StatePlace, text: bytes, *, ask: bool = True) -> tuple[bytes, bytes]:
    """(ciphertext, digest); the secrets are durable when this returns.

    Raises `ContentUnavailable` where the subject is erased or the day over, `Invalid`, `KeyringUnavailable`; with `ask` false
    `NotAtHand` instead of blocking.
    """
    day_end_us(place.expiry_day)
    subject, day = _references(place)
    secrets = sealer.secrets((subject, day), create=True, ask=ask)
    cipher = sealer.cipher(agent_state_key, secrets[subject], secrets[day])
    random = os.urandom(NONCE_BYTES + SALT_BYTES)
    return sealed_with(cipher, _aad(place), random[:NONCE_BYTES], random[NONCE_BYTES:], text)


def open_agent_state(sealer: Sealer, place: StatePlace, ciphertext: bytes, digest: bytes, *, ask: bool = True) -> bytes:
    """The text, byte for byte. Raises `ContentUnavailable` saying why not, `KeyringUnavailable`; `NotAtHand` as `seal_agent_state`."""
    subject, day = _references(place)
    try:
        over = sealer.is_over(place.expiry_day)
        secrets = sealer.secrets((subject, day), create=False, ask=ask)
    except Invalid as error:
        raise ContentUnavailable(f"state of {place.save_id}: {error.detail}", code=UNREADABLE) from error
    if over or len(secrets) < 2:
        if not ask:
            # Why it is closed only the keyring knows.
            raise NotAtHand
        raise ContentUnavailable(f"state of {place.save_id}", code=_why_closed(sealer, subject, day, over))
    opened = opened_with(sealer.cipher(agent_state_key, secrets[subject], secrets[day]), _aad(place), ciphertext, digest)
    if not isinstance(opened, Opened):
        raise ContentUnavailable(f"state of {place.save_id}: a claim check, which no state is", code=UNREADABLE)
    return opened.json_text


def _why_closed(sealer: Sealer, subject: SecretRef, day: SecretRef, over: bool) -> str:
    """Erasure is told before expiry: it is the stronger fact, and stays true."""
    destroyed = sealer.destroyed((subject, day))
    if subject in destroyed:
        return CONTENT_ERASED
    return CONTENT_EXPIRED if over or day in destroyed else UNREADABLE


def _references(place: StatePlace) -> tuple[SecretRef, SecretRef]:
    return SecretRef("subject", place.workspace_id, place.subject_id), SecretRef("day", place.workspace_id, place.expiry_day)


def _aad(place: StatePlace) -> bytes:
    return content_aad(place.workspace_id, place.scope_key, place.save_id, _FIELD)
