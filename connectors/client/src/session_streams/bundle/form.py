"""What a manifest says of a section: what each one is made of, and the forms of a gap (docs/bundle.md, section 3)."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

SECTIONS: Final = ("events", "actors", "work", "interactions", "context-snapshots", "artifacts", "continuation-capsules")

_MADE_OF: Final[Mapping[str, Mapping[str, Any]]] = {
    "events": {"kind": "session_log", "format": "checkfu.session-export", "format_version": 1},
    "actors": {"kind": "session_events", "members": ["actor_id", "subject_id"]},
    "work": {"kind": "session_events", "families": ["attempt", "checkpoint", "child", "effect", "run", "thread", "turn"]},
    "interactions": {"kind": "session_events", "families": ["approval", "steering", "wait"]},
    "context-snapshots": {"kind": "session_events", "families": ["context"]},
    "artifacts": {"kind": "session_events", "families": ["artifact"]},
    "continuation-capsules": {"kind": "session_events", "families": ["capsule"]},
}
_MEMBERS: Final = {"name", "source", "items", "bytes", "digest", "gaps"}


def is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def is_text(form: str) -> Callable[[object], bool]:
    found = re.compile(form)
    return lambda value: isinstance(value, str) and found.fullmatch(value) is not None


_GAP: Final[Mapping[str, Callable[[object], bool]]] = {
    "reason": is_text("[a-z_]{1,40}"),
    "count": is_count,
    "first_sequence": is_count,
    "last_sequence": is_count,
    "session_id": is_text("sess_[0-9a-f]{32}"),
    "through_sequence": is_count,
    "source_hash": is_text("[0-9a-f]{64}"),
}
_TOGETHER: Final = ({"reason"}, {"reason", "count"}, {"reason", "count", "first_sequence", "last_sequence"})
_OF_A_FORK: Final = {"reason", "session_id", "through_sequence", "source_hash"}


def misfit(told: Mapping[str, Any], end_sequence: int) -> str | None:
    """What keeps it from being a section of this name and of a session that ends there, if anything does."""
    gaps = told.get("gaps")
    if told.keys() != _MEMBERS or not (isinstance(told["digest"], str) and isinstance(gaps, list)):
        return "a member is missing, not known, or of another kind"
    if not (is_count(told["items"]) and is_count(told["bytes"])):
        return "less than none"
    made_of = {**_MADE_OF[told["name"]], "from_sequence": 1, "through_sequence": end_sequence}
    # As text, since Python takes true for 1.
    if json.dumps(told["source"], sort_keys=True) != json.dumps(made_of, sort_keys=True):
        return "source: not what this section is made of"
    if not all(map(_is_gap, gaps)) or [gap["reason"] for gap in gaps] != sorted(gap["reason"] for gap in gaps):
        return "gaps: one that has no known form, or not by reason"
    if not told["items"] and not gaps:
        return "it is empty, and does not say why"
    return None


def _is_gap(gap: object) -> bool:
    if not isinstance(gap, dict) or not all(name in _GAP and _GAP[name](value) for name, value in gap.items()):
        return False
    return gap.keys() in _TOGETHER or {"reason", "session_id"} <= gap.keys() <= _OF_A_FORK
