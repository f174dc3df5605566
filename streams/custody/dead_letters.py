"""What could not be read is personal, too: a dead letter's key, value and place (a file path, say) are sealed.

    body       = place, key, value, each with its length in front (ff ff ff ff: absent)
    sealed as content is (`sealing.py`), compressed where that helps
    key        = HKDF-SHA-256(secret of (dead letters, workspace, day))
    associated data = the workspace, day, origin, partition and offset that the record on the topic shows

Whoever meets such a record seals it; only an operator's tool opens it. The secret goes at the end of its day.
"""

import os
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from streams.custody.keyring import SecretRef
from streams.custody.sealed_bytes import UNREADABLE, length_prefixed, open_bytes, seal_bytes
from streams.custody.sealing import Sealer, day_end_us
from streams.errors import ContentUnavailable
from streams.session.dead_letters import DeadLetter
from streams.session.words import CONTENT_EXPIRED

UNKNOWN_WORKSPACE: Final = "ws_" + "0" * 32
"""Stands for the workspace of a record that does not tell one."""

_KEY_INFO: Final = b"session-streams/dead-letter/v1"
_ABSENT: Final = b"\xff\xff\xff\xff"


class Letter(Struct, frozen=True):
    """What is sealed. `place` says where it was met, for a human."""

    key: bytes | None
    value: bytes | None
    place: str = ""


class Address(Struct, frozen=True):
    """What stands beside it in clear. `origin` is a topic or a kind of source, never a path; `key_day` is YYYY-MM-DD."""

    key_day: str
    origin: str
    partition: int | None = None
    offset: int | None = None
    workspace_id: str | None = None


class SealedLetter(Struct, frozen=True):
    key_day: str
    ciphertext: bytes
    digest: bytes


def dead_letter_key(secret: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_KEY_INFO).derive(secret)


def dead_letter_aad(address: Address) -> bytes:
    parts = (address.workspace_id or UNKNOWN_WORKSPACE, address.key_day, address.origin, address.partition, address.offset)
    return b"".join(_ABSENT if part is None else length_prefixed(str(part).encode()) for part in parts)


def seal_dead_letter(sealer: Sealer, address: Address, letter: Letter) -> SealedLetter:
    """Raises `KeyringUnavailable`, `Invalid` (no day), `ContentUnavailable` where the day's secret is destroyed."""
    day_end_us(address.key_day)
    ref = _reference(address)
    key = dead_letter_key(sealer.secrets((ref,), create=True)[ref])
    parts = (letter.place.encode(errors="surrogateescape"), letter.key, letter.value)
    body = b"".join(_ABSENT if part is None else length_prefixed(part) for part in parts)
    ciphertext, digest = seal_bytes(key, aad=dead_letter_aad(address), nonce=os.urandom(12), salt=os.urandom(16), json_text=body)
    return SealedLetter(address.key_day, ciphertext, digest)


def dead_letter(
    sealer: Sealer, address: Address, letter: Letter, *, reason: str, detail: str, recorded_at: int, session_id: str | None = None
) -> DeadLetter:
    """The record for the topic: the letter sealed, beside it what may be known. `recorded_at` in microseconds.

    Raises what `seal_dead_letter` raises.
    """
    sealed = seal_dead_letter(sealer, address, letter)
    return DeadLetter(
        origin=address.origin,
        partition=address.partition,
        offset=address.offset,
        session_id=session_id,
        workspace_id=address.workspace_id,
        reason=reason,
        detail=detail,
        recorded_at=recorded_at,
        key_day=sealed.key_day,
        ciphertext=sealed.ciphertext,
        digest=sealed.digest,
    )


def open_dead_letter(sealer: Sealer, address: Address, *, ciphertext: bytes, digest: bytes) -> Letter:
    """Raises `ContentUnavailable` (content.expired where its secret is gone, content.unreadable), `KeyringUnavailable`."""
    ref = _reference(address)
    secret = sealer.secrets((ref,), create=False).get(ref)
    if sealer.is_over(address.key_day) or (secret is None and sealer.destroyed((ref,))):
        raise ContentUnavailable(f"dead letter of {address.key_day}: its day is over", code=CONTENT_EXPIRED)
    if secret is None:
        raise ContentUnavailable(f"dead letter of {address.key_day}: this keyring never held its secret", code=UNREADABLE)
    body = open_bytes(dead_letter_key(secret), aad=dead_letter_aad(address), ciphertext=ciphertext, digest=digest)
    place, key, value = _parts(body)
    return Letter(key=key, value=value, place=(place or b"").decode(errors="surrogateescape"))


def _reference(address: Address) -> SecretRef:
    return SecretRef("dead_letters", address.workspace_id or UNKNOWN_WORKSPACE, address.key_day)


def _parts(body: bytes) -> tuple[bytes | None, bytes | None, bytes | None]:
    parts: list[bytes | None] = []
    at = 0
    for _ in range(3):
        head = body[at : at + 4]
        at += 4
        if head == _ABSENT:
            parts.append(None)
            continue
        length = int.from_bytes(head, "big")
        parts.append(body[at : at + length])
        at += length
    if at != len(body):
        raise ContentUnavailable("dead letter: its body does not end where its parts do", code=UNREADABLE)
    return parts[0], parts[1], parts[2]
