"""What a receipt is made of: the members that it has, and what each may be."""

import re
from datetime import datetime
from typing import Any, Final

FORMAT: Final = "session-streams.erasure-receipt"
VERSION: Final = 1
STEPS: Final = ("accepted", "enforced", "complete")
TIMES: Final = ("accepted_at", "destroyed_at", "enforced_at", "complete_at")

_TEXTS: Final = ("erasure_id", "workspace_id", "step", "requested_by", "accepted_at", "issued_at")
_NAMES: Final = frozenset((*_TEXTS, *TIMES, "format", "schema_version", "scope", "counts", "holders", "lapsed"))
_ERASURE: Final = re.compile(r"ers_[0-9a-f]{32}")
_WORKSPACE: Final = re.compile(r"ws_[0-9a-f]{32}")
_ERASED: Final = {"subject": re.compile(r"subj_[0-9a-f]{32}"), "session": re.compile(r"sess_[0-9a-f]{32}")}
_COUNT: Final = re.compile(r"[a-z_]{1,40}")
_COUNT_MAX: Final = 2**53 - 1
"""RFC 8785 has no whole number above it: a reader that holds numbers as doubles would read another one."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")


def misfit(raw: Any) -> str | None:
    """What keeps it from being a receipt as it is known here."""
    if not isinstance(raw, dict):
        return "not an object"
    version = raw.get("schema_version")
    # One that is a fraction, or true, is the same to Python.
    if raw.get("format") != FORMAT or type(version) is not int or version != VERSION:
        return f"known here is {FORMAT}, version {VERSION}"
    unknown = sorted(raw.keys() - _NAMES)
    if unknown:
        return f"{unknown[0][:40]!a} is not known"
    if raw.get("step") not in STEPS:
        return "step: none that is known"
    scope, counts = raw.get("scope"), raw.get("counts")
    needed = {*_TEXTS, *({"enforced_at"} if raw["step"] != "accepted" else ()), *({"complete_at"} if raw["step"] == "complete" else ())}
    texts = [*(raw.get(name) for name in needed), *(raw[name] for name in TIMES if name in raw)]
    lists = [raw.get("holders"), raw.get("lapsed")]
    fits = (
        all(isinstance(each, str) for each in texts)
        and isinstance(scope, dict)
        and scope.keys() == {"kind", "id"}
        and all(isinstance(each, str) for each in scope.values())
        and isinstance(counts, dict)
        and all(_COUNT.fullmatch(name) and type(count) is int and 0 <= count <= _COUNT_MAX for name, count in counts.items())
        and all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in lists)
    )
    if not fits:
        return "a member is missing, or is of another kind"
    if not _has_ids(raw):
        return "erasure_id, workspace_id, scope: an id of another form"
    odd = next((name for name in (*TIMES, "issued_at") if name in raw and moment(raw[name]) is None), None)
    return None if odd is None else f"{odd}: no time in UTC"


def moment(text: str) -> datetime | None:
    """None for what is no time in UTC, in the one form of it that receipts have (RFC 3339)."""
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + "+00:00") if _TIME.fullmatch(text) else None
    except ValueError:
        return None


def _has_ids(raw: dict[str, Any]) -> bool:
    """What is told of an erasure, and stands on a screen, are ids and nothing else."""
    erased = _ERASED.get(raw["scope"]["kind"])
    told = ((_ERASURE, raw["erasure_id"]), (_WORKSPACE, raw["workspace_id"]), (erased, raw["scope"]["id"]))
    return all(pattern is not None and pattern.fullmatch(text) for pattern, text in told)
