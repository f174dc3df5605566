"""The bytes of sealed content, given the secrets: pure, and the same for every reader.

plaintext  = 0x01 | flags (bit 0: zstd; bit 1: a claim check) | salt (16) | JSON text, compressed where that helps, or what
             `claim_checks.py` puts in its place
ciphertext = nonce (12) | AES-256-GCM(content key, plaintext, associated data)
digest     = SHA-256(salt | JSON text uncompressed)
content key     = HKDF-SHA-256(subject's secret | session's secret | day's secret); destroying one shreds the content
associated data = workspace, session, event, field, each with its length in front: the bytes open nowhere else
"""

import hashlib
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from streams.custody.compression import compressed, decompressed
from streams.errors import ContentUnavailable

CONTENT_FIELD: Final = "content"
UNREADABLE: Final = "content.unreadable"

NONCE_BYTES: Final = 12
SALT_BYTES: Final = 16
_KEY_INFO: Final = b"session-streams/content/v1"
_VERSION: Final = 1
_ZSTD_FLAG: Final = 1
_CLAIM_FLAG: Final = 2
_HEAD_BYTES: Final = 2 + SALT_BYTES
_TAG_BYTES: Final = 16
_COMPRESS_FROM_BYTES: Final = 256
"""Below this zstd saves less than it costs."""


class Opened(Struct, frozen=True):
    """A JSON text and the salt that stood in front of it: who is shown both can compute the event's digest, without any key."""

    salt: bytes
    json_text: bytes


class Claimed(Struct, frozen=True):
    """What stands in place of a text that lies elsewhere; the digest is of this salt and that text."""

    salt: bytes
    body: bytes


def length_prefixed(part: bytes) -> bytes:
    """Behind its length in 4 bytes, big-endian."""
    return len(part).to_bytes(4, "big") + part


def content_key(subject_secret: bytes, session_secret: bytes, day_secret: bytes) -> bytes:
    """32 bytes from three secrets of 32. Without a subject pass the session's secret in the subject's place too."""
    secret = subject_secret + session_secret + day_secret
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_KEY_INFO).derive(secret)


def content_aad(workspace_id: str, session_id: str, event_id: str, field: str = CONTENT_FIELD) -> bytes:
    """The associated data that binds a ciphertext to its place."""
    return b"".join((_aad_of(workspace_id, session_id), length_prefixed(event_id.encode()), length_prefixed(field.encode())))


@lru_cache(4096)
def _aad_of(workspace_id: str, session_id: str) -> bytes:
    return length_prefixed(workspace_id.encode()) + length_prefixed(session_id.encode())


def seal_bytes(key: bytes, *, aad: bytes, nonce: bytes, salt: bytes, json_text: bytes, compress: bool = True) -> tuple[bytes, bytes]:
    """(ciphertext, digest). `nonce` (12 bytes) and `salt` (16 bytes) must be random and fresh; compresses only where shorter."""
    return sealed_with(AESGCM(key), aad, nonce, salt, json_text, compress)


def sealed_with(cipher: AESGCM, aad: bytes, nonce: bytes, salt: bytes, json_text: bytes, compress: bool = True) -> tuple[bytes, bytes]:
    """As `seal_bytes`, with the cipher of a key that is used for several."""
    flags, body = 0, json_text
    if compress and len(json_text) >= _COMPRESS_FROM_BYTES:
        shorter = compressed(json_text)
        if len(shorter) < len(json_text):
            flags, body = _ZSTD_FLAG, shorter
    return _encrypted(cipher, aad, nonce, flags, salt, body), salted_digest(salt, json_text)


def claim_sealed_with(cipher: AESGCM, aad: bytes, nonce: bytes, salt: bytes, json_text: bytes, body: bytes) -> tuple[bytes, bytes]:
    """As `sealed_with`, with a claim check's body in place of the text."""
    return _encrypted(cipher, aad, nonce, _CLAIM_FLAG, salt, body), salted_digest(salt, json_text)


def salted_digest(salt: bytes, json_text: bytes) -> bytes:
    """What an event shows of its content."""
    sha256 = hashlib.sha256(salt)
    sha256.update(json_text)
    return sha256.digest()


def _encrypted(cipher: AESGCM, aad: bytes, nonce: bytes, flags: int, salt: bytes, body: bytes) -> bytes:
    return nonce + cipher.encrypt(nonce, b"".join((bytes((_VERSION, flags)), salt, body)), aad)


def open_bytes(key: bytes, *, aad: bytes, ciphertext: bytes, digest: bytes) -> bytes:
    """The JSON text, byte for byte. Raises `ContentUnavailable` (content.unreadable) where one bit differs from what was sealed."""
    return open_salted(key, aad=aad, ciphertext=ciphertext, digest=digest).json_text


def open_salted(key: bytes, *, aad: bytes, ciphertext: bytes, digest: bytes) -> Opened:
    """As `open_bytes`, with the salt."""
    opened = opened_with(AESGCM(key), aad, ciphertext, digest)
    if isinstance(opened, Claimed):
        raise ContentUnavailable("sealed bytes: a claim check, whose text lies elsewhere", code=UNREADABLE)
    return opened


def opened_with(cipher: AESGCM, aad: bytes, ciphertext: bytes, digest: bytes) -> Opened | Claimed:
    """As `open_salted`, with the cipher of a key that is used for several; a text that lies elsewhere is told as claimed."""
    if len(ciphertext) < NONCE_BYTES + _HEAD_BYTES + _TAG_BYTES:
        raise ContentUnavailable("sealed bytes: too short", code=UNREADABLE)
    try:
        plaintext = cipher.decrypt(ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:], aad)
    except InvalidTag:
        raise ContentUnavailable("sealed bytes: altered, moved, or sealed with another key", code=UNREADABLE) from None
    version, flags = plaintext[0], plaintext[1]
    if version != _VERSION or flags not in (0, _ZSTD_FLAG, _CLAIM_FLAG):
        raise ContentUnavailable(f"sealed bytes: version {version}, flags {flags} are not known here", code=UNREADABLE)
    salt, body = plaintext[2:_HEAD_BYTES], plaintext[_HEAD_BYTES:]
    if flags == _CLAIM_FLAG:
        return Claimed(salt, body)
    try:
        json_text = decompressed(body) if flags & _ZSTD_FLAG else body
    except ValueError as error:
        raise ContentUnavailable(f"sealed bytes: {error}", code=UNREADABLE) from None
    return checked(Opened(salt, json_text), digest)


def checked(opened: Opened, digest: bytes) -> Opened:
    """What was opened, if it is what the event shows the digest of. Raises `ContentUnavailable`."""
    if salted_digest(opened.salt, opened.json_text) != digest:
        raise ContentUnavailable("sealed bytes: another digest than the event shows", code=UNREADABLE)
    return opened
