"""How one record of a Claude-Code transcript is read. Nothing here remembers another record.

A *prompt of a person* opens a Turn. It is a `user` record that is none of these:

- a tool result, a meta record (`isMeta`), a compaction summary, a record of a sidechain (its prompts come from an agent);
- a note that the person interrupted ("[Request interrupted by user"): it ends what runs and asks for nothing;
- a command that the terminal served itself, and its output (`<command-name>` first, `<bash-input>`,
  `<local-command-stdout>` and the like). A command that becomes a prompt begins with `<command-message>`, and is one.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from connectors.sources.bodies import software_name

Json = Mapping[str, object]

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_INTERRUPTED = "[Request interrupted by user"
_SERVED_BY_TERMINAL = (
    "<command-name>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<user-memory-input>",
    "<task-notification>",
    "<system-reminder>",
)


def mapping(value: object) -> Json:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def record_kind(record: Json) -> str:
    """The record's own type, with its subtype after a slash: `progress/agent_progress`, `system/compact_boundary`."""
    kind = _kind(record.get("type"))
    detail = mapping(record.get("data")).get("type") if kind == "progress" else record.get("subtype")
    return f"{kind}/{_kind(detail)}" if isinstance(detail, str) else kind


def _kind(value: object) -> str:
    if not isinstance(value, str):
        return "unknown"
    return value if _KIND.fullmatch(value) else "other"


def is_message(record: Json) -> bool:
    return record.get("type") in ("user", "assistant") and isinstance(record.get("message"), dict)


def blocks(record: Json, block_type: str) -> Iterator[Json]:
    """The content blocks of one type in a record's message."""
    content = mapping(record.get("message")).get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == block_type:
                yield block


def role(record: Json) -> str:
    if record.get("type") == "assistant":
        return "assistant"
    return "tool" if any(True for _ in blocks(record, "tool_result")) else "user"


def is_prompt(record: Json) -> bool:
    """Whether the record is a real prompt of a person (see above)."""
    if record.get("type") != "user" or not is_message(record):
        return False
    if any(record.get(name) is True for name in ("isMeta", "isCompactSummary", "isSidechain")) or role(record) == "tool":
        return False
    start = _first_text(record)
    return not start.startswith((_INTERRUPTED, *_SERVED_BY_TERMINAL))


def is_interruption(record: Json) -> bool:
    return record.get("type") == "user" and _first_text(record).startswith(_INTERRUPTED)


def _first_text(record: Json) -> str:
    content = mapping(record.get("message")).get("content")
    if isinstance(content, str):
        return content.lstrip()
    first = next(blocks(record, "text"), {}).get("text")
    return first.lstrip() if isinstance(first, str) else ""


def occurred_at(record: Json) -> str | None:
    """The record's timestamp, if it is an RFC 3339 time."""
    value = record.get("timestamp")
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return None
    return value


def model(record: Json) -> str | None:
    return software_name(mapping(record.get("message")).get("model"))


def usage(record: Json) -> dict[str, int]:
    """Token counts of a model's answer, under our names."""
    counts = mapping(mapping(record.get("message")).get("usage"))
    names = {
        "input_tokens": "input_tokens",
        "output_tokens": "output_tokens",
        "cache_read_tokens": "cache_read_input_tokens",
        "cache_write_tokens": "cache_creation_input_tokens",
    }
    found = {ours: counts.get(theirs) for ours, theirs in names.items()}
    return {name: count for name, count in found.items() if type(count) is int and 0 <= count < 2**53}
