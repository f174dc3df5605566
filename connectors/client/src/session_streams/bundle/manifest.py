"""The signed manifest of a bundle: opened by a key that counts, and of the one form that a manifest has."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import rfc8785

from session_streams import signed

from .verdict import Refuted, Section

FORMAT: Final = "checkfu.session-bundle"
VERSION: Final = 1
PAYLOAD_TYPE: Final = "application/vnd.checkfu.session-bundle+json"
PURPOSE: Final = "bundles"
SECTIONS: Final = ("events", "actors", "work", "interactions", "context-snapshots", "artifacts", "continuation-capsules")

_MEMBERS: Final = {"format", "schema_version", "session_id", "workspace_id", "end_sequence", "last_hash", "sections"}
_KINDS: Final = {"name": str, "source": dict, "items": int, "bytes": int, "digest": str, "gaps": list}
_REFUTED: Final = {
    "trust.malformed": ("no_trust", "no trust document: nobody's signature counts"),
    "envelope.malformed": ("malformed_envelope", "no JSON, or no envelope of the DSSE form"),
    "payload.type": ("wrong_type", f"no {PAYLOAD_TYPE}"),
    "key.unknown": ("unknown_key", "signed by nobody whom the trust document names for bundles"),
    "key.revoked": ("revoked_key", "signed by a key that was revoked"),
    "signature.wrong": ("wrong_signature", "not the bytes that were signed"),
}


@dataclass(frozen=True)
class Manifest:
    """What was signed, by whom. `last_hash` and `workspace_id` are None where the position that has them is missing."""

    key_id: str
    session_id: str
    workspace_id: str | None
    end_sequence: int
    last_hash: str | None
    sections: tuple[Section, ...]


def keys_of(trust: bytes) -> signed.Keys:
    """Raises `Refuted`."""
    try:
        return signed.trusted(trust, PURPOSE)
    except signed.NotVerified as error:
        raise Refuted(*_REFUTED[error.reason]) from None


def manifest_of(envelope: bytes, keys: signed.Keys) -> Manifest:
    """Raises `Refuted`."""
    if not signed.is_spelled(envelope):
        raise Refuted("malformed_envelope", "no envelope of the DSSE form with one signature, in the one spelling")
    try:
        opened = signed.opened(envelope, PAYLOAD_TYPE, keys)
    except signed.NotVerified as error:
        raise Refuted(*_REFUTED[error.reason]) from None
    told = _parsed(opened.payload)
    wrong = _misfit(told)
    if wrong is not None:
        raise Refuted("malformed_manifest", wrong)
    sections = tuple(Section(**{**each, "gaps": tuple(each["gaps"])}) for each in told["sections"])
    return Manifest(opened.key_id, told["session_id"], told["workspace_id"], told["end_sequence"], told["last_hash"], sections)


def _parsed(payload: bytes) -> dict[str, Any]:
    try:
        told = json.loads(payload.decode(), object_pairs_hook=_once, parse_constant=_refuse)
        canonical = rfc8785.dumps(told)
    except (ValueError, RecursionError):
        # An integer beyond 2^53 - 1 has no canonical form either.
        raise Refuted("malformed_manifest", "no JSON in UTF-8 that RFC 8785 has a form for") from None
    if not isinstance(told, dict):
        raise Refuted("malformed_manifest", "not an object")
    if (told.get("format"), told.get("schema_version")) != (FORMAT, VERSION):
        raise Refuted("unknown_format", f"known here is {FORMAT}, version {VERSION}")
    if canonical != payload:
        raise Refuted("not_canonical", "spaces, escapes, order of members, or the form of a number")
    return told


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Refuted("duplicate_key", f"{name[:40]!a} is given twice")
    return made


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _misfit(told: Mapping[str, Any]) -> str | None:
    """What keeps it from being a manifest, if anything does."""
    if told.keys() != _MEMBERS:
        return "a member is missing, or not known"
    if not (isinstance(told["session_id"], str) and _is_count(told["end_sequence"]) and isinstance(told["sections"], list)):
        return "a member is of another kind"
    if not all(isinstance(told[name], str | None) for name in ("workspace_id", "last_hash")):
        return "a member is of another kind"
    listed = told["sections"]
    if not all(isinstance(each, dict) for each in listed) or [each.get("name") for each in listed] != list(SECTIONS):
        return "sections: not those that a bundle has, in their order"
    for each in listed:
        if each.keys() != _KINDS.keys() or not all(type(each[name]) is kind for name, kind in _KINDS.items()):
            return f"{each['name']}: a member is missing, not known, or of another kind"
        if not (_is_count(each["items"]) and _is_count(each["bytes"])):
            return f"{each['name']}: less than none"
        if not all(isinstance(gap, dict) and isinstance(gap.get("reason"), str) for gap in each["gaps"]):
            return f"{each['name']}: a gap without its reason"
    return None


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
