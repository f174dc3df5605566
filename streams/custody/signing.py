"""Signatures that a stranger can check: Ed25519 over exactly the bytes that are kept, in envelopes of the DSSE form.

What is signed is the payload together with its type (the pre-authentication encoding of DSSE, `DSSEv1`), so that a signature of
one kind of statement is none of another. A payload is parsed by whoever has verified it, never before. A private key is a
PKCS #8 file (PEM) of mode 0600; a public one is told in the form of in-toto's metadata. An id of a key only says which key to
try: what counts is who is trusted.

securesystemslib signs, verifies and takes envelopes apart; beyond this module nobody knows of it. It reads more spellings of base64
than one, so what it has read is written again and compared (ADR 0037).
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Meta, Struct
from securesystemslib import dsse
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import CryptoSigner, Key, SSlibKey
from securesystemslib.signer import Signature as SignatureInHex

from streams.errors import Misconfigured
from streams.files import create_once, read_private

_PEM_BYTES_MAX: Final = 4096


class NotVerified(Exception):
    """Nothing that is signed by anybody trusted. `reason` is envelope.malformed, payload.type, key.unknown or signature.wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class KeyValue(Struct, frozen=True, forbid_unknown_fields=True):
    public: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


class PublicKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """32 bytes, in hex."""

    keytype: Literal["ed25519"] = "ed25519"
    scheme: Literal["ed25519"] = "ed25519"
    keyval: KeyValue

    @property
    def key_id(self) -> str:
        """SHA-256 of the 32 bytes, in hex."""
        return hashlib.sha256(bytes.fromhex(self.keyval.public)).hexdigest()


class Signature(Struct, frozen=True):
    keyid: str
    sig: bytes


class Envelope(Struct, frozen=True, rename="camel"):
    """As JSON, `payload` and each `sig` are base64."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]


class Verified(Struct, frozen=True):
    """A payload, and the id of the trusted key that signed it."""

    payload: bytes
    key_id: str


class SigningKey:
    """A private key. It shows nothing of itself but its public half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self.public = PublicKey(keyval=KeyValue(key.public_key().public_bytes_raw().hex()))
        self._signer = CryptoSigner(key, _verifier(self.public.key_id, self.public))

    @classmethod
    def generate(cls) -> "SigningKey":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def at(cls, path: Path) -> "SigningKey":
        """The key of a file, which is made where it is not there: of several who try at once, the first one's stays.

        Raises `Misconfigured` (mode, contents) and OSError.
        """
        if not path.exists():
            cls.generate().store(path)
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> "SigningKey":
        """As `at`, of a file that has to be there."""
        try:
            key = serialization.load_pem_private_key(read_private(path, _PEM_BYTES_MAX), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise Misconfigured(f"key file {path}: expected a private key in PEM, without a password") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise Misconfigured(f"key file {path}: expected an Ed25519 key")
        return cls(key)

    def store(self, path: Path) -> None:
        """In a file that is there already, the key stays that is in it. Raises OSError."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_once(path, self._signer.private_bytes)

    def sign(self, payload_type: str, payload: bytes) -> Envelope:
        signature = self.sign_bytes(encoding_to_sign(payload_type, payload))
        return Envelope(payload_type, payload, (Signature(self.public.key_id, signature),))

    def sign_bytes(self, told: bytes) -> bytes:
        """64 bytes, over exactly these bytes: for a form that says by itself what it is (a capsule's digests)."""
        return bytes.fromhex(self._signer.sign(told).signature)


def encoding_to_sign(payload_type: str, payload: bytes) -> bytes:
    """PAE of DSSE v1: lengths stand in front, so no two pairs of type and payload have the same encoding."""
    return dsse.Envelope(payload, payload_type, {}).pae()


def opened(text: bytes, payload_type: str, trusted: Mapping[str, PublicKey]) -> Verified:
    """The payload of an envelope (JSON) that one of the trusted keys, by id, has signed. Raises `NotVerified`."""
    envelope = _read(text)
    if envelope.payload_type != payload_type:
        raise NotVerified("payload.type")
    known: list[Key] = [_verifier(key_id, trusted[key_id]) for key_id in envelope.signatures if key_id in trusted]
    if not known:
        raise NotVerified("key.unknown")
    try:
        (key_id,) = envelope.verify(known, threshold=1)
    except UnverifiedSignatureError as error:
        raise NotVerified("signature.wrong") from error
    return Verified(envelope.payload, key_id)


def is_signed(key: PublicKey, signature: bytes, told: bytes) -> bool:
    """Whether the key has signed exactly these bytes."""
    key_id = key.key_id
    try:
        _verifier(key_id, key).verify_signature(SignatureInHex(key_id, signature.hex()), told)
    except UnverifiedSignatureError:
        return False
    return True


class _SignatureText(Struct, frozen=True):
    keyid: str
    sig: str


class _EnvelopeText(Struct, frozen=True, rename="camel"):
    """As it is told, base64 and all."""

    payload: str
    payload_type: str
    signatures: list[_SignatureText]


def _read(text: bytes) -> dsse.Envelope:
    """In the one standard spelling of base64, with one signature a key. Raises `NotVerified`."""
    try:
        told = msgspec.json.decode(text, type=_EnvelopeText)
        # It takes the signatures apart that it is given.
        envelope = dsse.Envelope.from_dict(_builtins(told))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise NotVerified("envelope.malformed") from error
    if envelope.to_dict() != _builtins(told):
        raise NotVerified("envelope.malformed")
    return envelope


def _builtins(told: _EnvelopeText) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(told)
    return made


def _verifier(key_id: str, key: PublicKey) -> SSlibKey:
    return SSlibKey(key_id, key.keytype, key.scheme, {"public": key.keyval.public})
