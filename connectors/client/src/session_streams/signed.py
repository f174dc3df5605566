"""Envelopes that a stranger can check: who signed what, by the public keys of a trust document (DSSE, Ed25519).

The trust document is `trust.json` of an installation: every public key, for what it signs, since when, whether revoked. What a key
signed stays good when another follows it; what a revoked key signed, ever, is not. A payload is parsed once it is verified, never before.

An envelope has one spelling of base64, no member twice and one signature a key: securesystemslib, which takes it apart and verifies it,
would read more (ADR 0037).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import rfc8785
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import Key, SSlibKey

TRUST_FORMAT: Final = "session-streams.trust"
TRUST_BYTES_MAX: Final = 1024 * 1024
_KEY_BYTES: Final = 32
_ALGORITHM: Final = ("ed25519", "ed25519")
_MEMBERS: Final = ("payload", "payloadType", "signatures")


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
    """Those of a trust document that sign for a purpose. One that is revoked anywhere in it is, whatever it was for. Raises `NotVerified`
    (trust.malformed)."""
    found: dict[str, bytes] = {}
    revoked: set[str] = set()
    try:
        told = _trust(document)
        for key in told["keys"]:
            public = bytes.fromhex(key["keyval"]["public"])
            # An id only says which key to try; it has to be that of the key, so that none is taken for another.
            if (
                len(public) != _KEY_BYTES
                or key["keyval"]["public"] != public.hex()
                or (key["keytype"], key["scheme"]) != _ALGORITHM
                or key["key_id"] != hashlib.sha256(public).hexdigest()
                or not isinstance(key["purpose"], str)
            ):
                raise NotVerified("trust.malformed")
            if key["purpose"] == purpose:
                found[key["key_id"]] = public
            if key.get("revoked_at") is not None:
                revoked.add(key["key_id"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotVerified("trust.malformed") from error
    return Keys({key_id: public for key_id, public in found.items() if key_id not in revoked}, frozenset(revoked & found.keys()))


def _trust(document: bytes) -> dict[str, Any]:
    """Raises `NotVerified`, ValueError, KeyError, TypeError, RecursionError."""
    if len(document) > TRUST_BYTES_MAX:
        raise NotVerified("trust.malformed")
    told: dict[str, Any] = json.loads(document.decode(), object_pairs_hook=once, parse_constant=_refuse)
    known = (told["format"], told["schema_version"]) == (TRUST_FORMAT, 1) and type(told["schema_version"]) is int
    if not known or not isinstance(told["keys"], list):
        raise NotVerified("trust.malformed")
    return told


def opened(envelope: bytes, payload_type: str, keys: Keys) -> Opened:
    """The payload of an envelope (JSON) that one of the keys has signed. Raises `NotVerified`."""
    found = _read(envelope)
    if found.payload_type != payload_type:
        raise NotVerified("payload.type")
    known: list[Key] = [
        SSlibKey(key_id, *_ALGORITHM, {"public": keys.counting[key_id].hex()}) for key_id in found.signatures if key_id in keys.counting
    ]
    if not known:
        raise NotVerified("key.unknown" if keys.revoked.isdisjoint(found.signatures) else "key.revoked")
    try:
        (key_id,) = found.verify(known, threshold=1)
    except UnverifiedSignatureError as error:
        raise NotVerified("signature.wrong") from error
    return Opened(found.payload, key_id)


def refutation(error: NotVerified, payload_type: str, purpose: str) -> tuple[str, str]:
    """The verdict that a check gives for it, and what a person is told."""
    return {
        "trust.malformed": ("no_trust", "no trust document: nobody's signature counts"),
        "envelope.malformed": ("malformed_envelope", "no JSON, or no envelope of the DSSE form"),
        "payload.type": ("wrong_type", f"no {payload_type}"),
        "key.unknown": ("unknown_key", f"signed by nobody whom the trust document names for {purpose}"),
        "key.revoked": ("revoked_key", "signed by a key that was revoked"),
        "signature.wrong": ("wrong_signature", "not the bytes that were signed"),
    }[error.reason]


def is_spelled(envelope: bytes) -> bool:
    """Whether it has one signature and the one spelling that RFC 8785 gives it: then every byte of it is told by what it says."""
    try:
        found = _read(envelope)
        unknown = any(signature.unrecognized_fields for signature in found.signatures.values())
        return len(found.signatures) == 1 and not unknown and rfc8785.dumps(found.to_dict()) == envelope
    except (NotVerified, rfc8785.CanonicalizationError):
        return False


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: of two members of one name, who knows which another reader takes. Raises ValueError."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a member is given twice")
    return made


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _read(envelope: bytes) -> Envelope:
    """What is not known in it is passed over. Raises `NotVerified`."""
    try:
        told: Any = json.loads(envelope.decode(), object_pairs_hook=once)
        # It takes the signatures apart that it is given; what is no text, but should be, is an AttributeError.
        found = Envelope.from_dict({**told, "signatures": [dict(each) for each in told["signatures"]]})
        same = found.to_dict() == {name: told[name] for name in _MEMBERS}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotVerified("envelope.malformed") from error
    # It reads base64 of the other alphabet and without padding, too, and ids of any kind.
    if not same or not all(isinstance(text, str) for text in (found.payload_type, *found.signatures)):
        raise NotVerified("envelope.malformed")
    return found
