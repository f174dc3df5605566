"""The signed manifest of a bundle: opened by a key that counts, and of the one form that a manifest has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from session_streams import signed

from . import canonical, form
from .form import SECTIONS
from .verdict import Refuted, Section

FORMAT: Final = "checkfu.session-bundle"
VERSION: Final = 1
PAYLOAD_TYPE: Final = "application/vnd.checkfu.session-bundle+json"
PURPOSE: Final = "bundles"

_MEMBERS: Final = {"format", "schema_version", "session_id", "workspace_id", "end_sequence", "last_hash", "sections"}


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
        raise Refuted(*signed.refutation(error, PAYLOAD_TYPE, PURPOSE)) from None


def manifest_of(envelope: bytes, keys: signed.Keys) -> Manifest:
    """Raises `Refuted`."""
    if not signed.is_spelled(envelope):
        raise Refuted("malformed_envelope", "no envelope of the DSSE form with one signature, in the one spelling")
    try:
        opened = signed.opened(envelope, PAYLOAD_TYPE, keys)
    except signed.NotVerified as error:
        raise Refuted(*signed.refutation(error, PAYLOAD_TYPE, PURPOSE)) from None
    told = _parsed(opened.payload)
    wrong = _misfit(told)
    if wrong is not None:
        raise Refuted("malformed_manifest", wrong)
    sections = tuple(Section(**{**each, "gaps": tuple(each["gaps"])}) for each in told["sections"])
    return Manifest(opened.key_id, told["session_id"], told["workspace_id"], told["end_sequence"], told["last_hash"], sections)


def _parsed(payload: bytes) -> dict[str, Any]:
    try:
        told, spelled = canonical.parsed(payload)
    except canonical.Unreadable as error:
        raise Refuted("duplicate_key" if error.twice else "malformed_manifest", error.detail) from None
    if not isinstance(told, dict):
        raise Refuted("malformed_manifest", "not an object")
    version = told.get("schema_version")
    if told.get("format") != FORMAT or type(version) is not int or version != VERSION:
        raise Refuted("unknown_format", f"known here is {FORMAT}, version {VERSION}")
    if spelled != payload:
        raise Refuted("not_canonical", "spaces, escapes, order of members, or the form of a number")
    return told


def _misfit(told: Mapping[str, Any]) -> str | None:
    """What keeps it from being a manifest, if anything does."""
    if told.keys() != _MEMBERS:
        return "a member is missing, or not known"
    if not (isinstance(told["session_id"], str) and form.is_count(told["end_sequence"]) and isinstance(told["sections"], list)):
        return "a member is of another kind"
    if not all(isinstance(told[name], str | None) for name in ("workspace_id", "last_hash")):
        return "a member is of another kind"
    listed = told["sections"]
    if not all(isinstance(each, dict) for each in listed) or [each.get("name") for each in listed] != list(SECTIONS):
        return "sections: not those that a bundle has, in their order"
    for each in listed:
        wrong = form.misfit(each, told["end_sequence"])
        if wrong is not None:
            return f"{each['name']}: {wrong}"
    return None
