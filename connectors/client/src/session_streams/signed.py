"""Envelopes that a stranger can check: who signed what, by the public keys of a trust document (DSSE, Ed25519).

The trust document is `trust.json` of an installation: every public key, for what it signs, since when, whether revoked. What a key
signed stays good when another follows it; what a revoked key signed, ever, is not. A payload is parsed once it is verified, never before.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

TRUST_FORMAT: Final = "session-streams.trust"
_KEY_BYTES: Final = 32
_ALGORITHM: Final = ("ed25519", "ed25519")


class NotVerified(Exception):
    """Nothing that anybody trusted has signed. `reason` is envelope.malformed, payload.type, key.unknown, key.revoked, signature.wrong or
    trust.malformed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Keys:
    """Public keys (32 bytes) for one purpose, by id. `revoked`: ids of those that count no more."""

    counting: Mapping[str, bytes]
    revoked: frozenset[str]


@dataclass(frozen=True)
class Opened:
    """A payload, and the id of the key that signed it."""

    payload: bytes
    key_id: str


def trusted(document: bytes, purpose: str) -> Keys:
    """Those of a trust document that sign for a purpose. Raises `NotVerified` (trust.malformed)."""
    counting: dict[str, bytes] = {}
    revoked: set[str] = set()
    try:
        told = json.loads(document, object_pairs_hook=once)
        if (told["format"], told["schema_version"]) != (TRUST_FORMAT, 1):
            raise NotVerified("trust.malformed")
        for key in told["keys"]:
            public = bytes.fromhex(key["keyval"]["public"])
            # An id only says which key to try; it has to be that of the key, so that none is taken for another.
            if (
                len(public) != _KEY_BYTES
                or (key["keytype"], key["scheme"]) != _ALGORITHM
                or key["key_id"] != hashlib.sha256(public).hexdigest()
            ):
                raise NotVerified("trust.malformed")
            if key["purpose"] != purpose:
                continue
            if key.get("revoked_at") is None:
                counting[key["key_id"]] = public
            else:
                revoked.add(key["key_id"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotVerified("trust.malformed") from error
    return Keys(counting, frozenset(revoked))


def opened(envelope: bytes, payload_type: str, keys: Keys) -> Opened:
    """The payload of an envelope (JSON) that one of the keys has signed. Raises `NotVerified`."""
    found_type, payload, signatures = _parts(envelope)
    if found_type != payload_type:
        raise NotVerified("payload.type")
    known = [(key_id, signature) for key_id, signature in signatures if key_id in keys.counting]
    if not known:
        raise NotVerified("key.revoked" if any(key_id in keys.revoked for key_id, _ in signatures) else "key.unknown")
    told = encoding_to_sign(payload_type, payload)
    for key_id, signature in known:
        try:
            Ed25519PublicKey.from_public_bytes(keys.counting[key_id]).verify(signature, told)
        except InvalidSignature:
            continue
        return Opened(payload, key_id)
    raise NotVerified("signature.wrong")


def is_spelled(envelope: bytes) -> bool:
    """Whether it has one signature and the one spelling that RFC 8785 gives it: then every byte of it is told by what it says."""
    try:
        payload_type, payload, signatures = _parts(envelope)
    except NotVerified:
        return False
    told = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode()} for key_id, signature in signatures],
    }
    try:
        return len(signatures) == 1 and json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() == envelope
    except UnicodeEncodeError:
        return False


def encoding_to_sign(payload_type: str, payload: bytes) -> bytes:
    """PAE of DSSE v1."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: of two members of one name, who knows which another reader takes. Raises ValueError."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a member is given twice")
    return made


def _parts(envelope: bytes) -> tuple[str, bytes, list[tuple[str, bytes]]]:
    """Type, payload, and the signatures with the ids of their keys."""
    try:
        told: Any = json.loads(envelope, object_pairs_hook=once)
        payload = base64.b64decode(told["payload"], validate=True)
        signatures = [(each["keyid"], base64.b64decode(each["sig"], validate=True)) for each in told["signatures"]]
        if not isinstance(told["payloadType"], str) or not all(isinstance(key_id, str) for key_id, _ in signatures):
            raise NotVerified("envelope.malformed")
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
        raise NotVerified("envelope.malformed") from error
    return told["payloadType"], payload, signatures
