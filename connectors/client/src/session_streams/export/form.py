"""The form of lines: JSON in one spelling, and the members that each kind of line has, in order.

A check takes a value and returns what is wrong with it, or None.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

FORMAT: Final = "checkfu.session-export"
VERSION: Final = 1
LINE_BYTES_MAX: Final = 136 * 1024 * 1024
"""64 MiB of content, each byte of it escaped, fit, and all that stands around it."""
_STRUCTURE_BYTES_MAX: Final = 1024 * 1024
"""Of a line, outside of its texts. What is built of brackets and commas takes thirty times their room, and a line has few of them."""
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""One that has no end is one, too: it is not looked for again within itself."""
REASONS: Final = ("expired", "erased", "omitted", "unreadable")

Check = Callable[[Any], str | None]

encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""A value in the one spelling."""


class Malformed(ValueError):
    """A line that no export has. `code`: malformed_line, duplicate_key, not_canonical."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


def parsed(line: bytes) -> dict[str, Any]:
    """The object of a line. Raises `Malformed` for one that is no object, or is not in the one spelling."""
    if _structure_exceeds(line, _STRUCTURE_BYTES_MAX):
        raise Malformed("malformed_line", "more brackets, commas and numbers than any line of an export")
    try:
        value = json.loads(line.decode(), object_pairs_hook=_once, parse_constant=_refuse)
        same = encode(value).encode() + b"\n" == line
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("malformed_line", "not a line of JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise Malformed("malformed_line", "not a JSON object")
    if not same:
        raise Malformed("not_canonical", "spelled otherwise than an export is: spaces, escapes, or numbers")
    return value


def _structure_exceeds(line: bytes, limit: int) -> bool:
    if len(line) <= limit:
        return False
    outside = end = 0
    for text in _TEXT.finditer(line):
        outside, end = outside + text.start() - end, text.end()
        if outside > limit:
            return True
    return outside + len(line) - end > limit


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Malformed("duplicate_key", f"{name[:40]!a} is given twice")
    return made


def _refuse(name: str) -> Any:
    raise ValueError(name)


# -- kinds of value


def _of(kind: str, fits: Callable[[Any], object]) -> Check:
    return lambda value: None if fits(value) else f"not {kind}"


def optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def word(*words: str) -> Check:
    return _of(" or ".join(words), lambda value: value in words)


def members(checks: Mapping[str, Check]) -> Check:
    """An object with exactly these members, in this order."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "not an object"
        if list(value) != list(checks):
            odd = next((name for name in (*checks, *value) if name not in value or name not in checks), None)
            return "members in another order" if odd is None else f"{odd[:40]!a}: missing, or not known"
        for name, check_member in checks.items():
            wrong = check_member(value[name])
            if wrong is not None:
                return f"{name}: {wrong}"
        return None

    return check


def every(check: Check) -> Check:
    """A list of such values."""

    def check_all(value: Any) -> str | None:
        if not isinstance(value, list):
            return "not a list"
        return next((wrong for wrong in map(check, value) if wrong is not None), None)

    return check_all


text: Final = _of("a text", lambda value: isinstance(value, str))
whole: Final = _of("a whole number of 64 bits", lambda value: type(value) is int and -(2**63) <= value < 2**63)
position: Final = _of("a position", lambda value: type(value) is int and 1 <= value < 2**63)
flag: Final = _of("true or false", lambda value: isinstance(value, bool))
anything: Final = _of("an object", lambda value: isinstance(value, dict))
_SESSION: Final = re.compile(r"sess_[0-9a-f]{32}")
session: Final = _of("sess_ and 32 hex digits", lambda value: isinstance(value, str) and _SESSION.fullmatch(value))
_HEX: Final = re.compile(r"[0-9a-f]+")
digest: Final = _of("64 hex digits", lambda value: isinstance(value, str) and len(value) == 64 and _HEX.fullmatch(value))
salt: Final = _of("32 hex digits", lambda value: isinstance(value, str) and len(value) == 32 and _HEX.fullmatch(value))


# -- kinds of line

HEADER: Final = members(
    {
        "kind": text, "format": text, "format_version": whole, "session_id": session, "from_sequence": position,
        "end_sequence": position, "chain": text, "genesis": digest, "attribute_schemas": anything,
    }
)  # fmt: skip
TRAILER: Final = members({"kind": text, "count": whole, "last_hash": optional(digest)})
ERROR: Final = members({"kind": text, "status": whole, "code": text, "next_sequence": position})
MISSING: Final = members({"kind": text, "sequence": position, "reason": text})

_KEY: Final = members({"subject_id": optional(text), "session_id": text, "expiry_day": text})


def _event(content: Mapping[str, Check], **behind: Check) -> Check:
    return members(
        {
            "kind": text, "sequence": position, "event_id": text, "session_id": text, "type": text, "workspace_id": text,
            "thread_id": optional(text), "turn_id": optional(text), "run_id": optional(text), "attempt_generation": optional(whole),
            "native_task_id": optional(text), "actor_id": optional(text), "subject_id": optional(text), "command_id": text,
            "occurred_at": optional(whole), "links": every(members({"relation": text, "id": text})),
            "attributes": optional(members({"schema": text, "bytes": text, "decoded": anything})), "content": members(content),
            "command_offset": whole, "command_last": flag, "accepted_at": whole, "previous_hash": digest, "hash": digest, **behind,
        }
    )  # fmt: skip


OPENED: Final = _event({"state": word("sealed"), "key_reference": optional(_KEY), "digest": digest, "salt": salt, "text": text})
WITHOUT_CONTENT: Final = _event({"state": word("none"), "key_reference": optional(_KEY), "digest": optional(digest)})
UNAVAILABLE: Final = _event(
    {"state": word("sealed", "omitted"), "key_reference": optional(_KEY), "digest": optional(digest)}, reason=word(*REASONS)
)
