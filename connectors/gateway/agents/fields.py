"""The rules of fields and their messages, to the letter (page 06, 1.5). Bodies are what `js.parse` gave; everything raises `Failure`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from connectors.gateway.agents import js
from connectors.gateway.agents.failures import Failure, invalid
from streams.agents.core import KINDS, TTL_SECONDS_MAX, TTL_SECONDS_MIN

NAME_MAX: Final = 200
"""UTF-16 units of `subject_id`, `agent_id` and `run_id`."""
KIND_MAX: Final = 120
STATE_BYTES_MAX: Final = 64_000
"""Of the canonical text in UTF-8, inclusive."""

_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HASH: Final = re.compile("[0-9a-f]{64}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def required_string(body: dict[str, Any], name: str, limit: int) -> str:
    if name not in body:
        raise _wrong(name, "is required.")
    return _string(body[name], name, limit, "")


def optional_string(body: dict[str, Any], name: str, limit: int) -> str | None:
    """None where it is absent or null."""
    value = body.get(name)
    return None if value is None else _string(value, name, limit, " when present")


def _string(value: Any, name: str, limit: int, present: str) -> str:
    if not isinstance(value, str):
        raise _wrong(name, f"must be a string{present}.")
    if not js.trim(value):
        raise _wrong(name, f"must be a non-empty string{present}.")
    if js.length(value) > limit:
        raise _wrong(name, f"exceeds {limit} characters.")
    if not js.is_well_formed(value):
        raise _wrong(name, "must contain well-formed Unicode.")
    if _UNSAFE.search(value) is not None:
        raise _wrong(name, "contains an unsafe control character.")
    return value


def required_integer(body: dict[str, Any], name: str, low: int, high: int) -> int:
    if name not in body:
        raise _wrong(name, "is required.")
    value = body[name]
    if isinstance(value, msgspec.Raw):
        # A number that is not integral, infinite, or far beyond any limit.
        text = bytes(value)
        if text == b"null" or not float(text).is_integer():
            raise _wrong(name, "must be an integer.")
        raise _between(name, low, high)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, "must be an integer.")
    if not low <= value <= high:
        raise _between(name, low, high)
    return value


def ttl_seconds(body: dict[str, Any]) -> int:
    return required_integer(body, "ttl_seconds", TTL_SECONDS_MIN, TTL_SECONDS_MAX)


def kind(body: dict[str, Any]) -> str:
    value = required_string(body, "kind", KIND_MAX)
    if value not in KINDS:
        raise _wrong("kind", f"must be one of: {', '.join(KINDS)}.")
    return value


def state(body: dict[str, Any]) -> str:
    """The canonical text, which is what is hashed, kept and given back."""
    if body.get("state") is None:
        raise _wrong("state", "is required.")
    text = js.stringify(body["state"])
    if len(text) > STATE_BYTES_MAX or len(text.encode()) > STATE_BYTES_MAX:
        raise invalid(f"Checkpoint state exceeds {STATE_BYTES_MAX} bytes.")
    return text


def expected_state_hash(body: dict[str, Any], if_match: str | None) -> str | None:
    """Of the state that the save is to replace; None: of any. `if_match` is that header, the hash with or without quotes."""
    found = optional_string(body, "expected_state_hash", NAME_MAX)
    if found is not None and _HASH.fullmatch(found) is None:
        raise _wrong("expected_state_hash", "must be 64 lowercase hexadecimal digits.")
    if if_match is None:
        return found
    tag = if_match[1:-1] if len(if_match) > 1 and if_match[0] == if_match[-1] == '"' else if_match
    if _HASH.fullmatch(tag) is None:
        raise invalid('Header "If-Match" must be one state_hash.')
    if found is not None and found != tag:
        raise invalid('Field "expected_state_hash" and header "If-Match" must be the same.')
    return tag


def query_integer(query: dict[str, str], name: str, low: int, high: int, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if re.fullmatch("0|[1-9][0-9]{0,15}", text) is None or not low <= int(text) <= high:
        raise invalid(f'Query "{name}" must be an integer between {low} and {high}.')
    return int(text)


def when(moment: datetime) -> str:
    """YYYY-MM-DDTHH:MM:SS.mmmZ of an aware time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def when_us(microseconds: int) -> str:
    """The same of microseconds since the epoch."""
    return when(_EPOCH + timedelta(microseconds=microseconds))


def _wrong(name: str, what: str) -> Failure:
    return invalid(f'Field "{name}" {what}')


def _between(name: str, low: int, high: int) -> Failure:
    return _wrong(name, f"must be between {low} and {high}.")
