"""`sessions` and `tail`: what the log holds, as lines for a person or as the service's own JSON."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from connectors.cli.console import emit_json, print_table
from session_streams import Client, Event, Session
from streams.errors import NotFound

_SNIPPET: Final = 100
_KINDS_SHOWN: Final = 2


def show_sessions(client: Client, *, limit: int, as_json: bool, padded: bool = False) -> int:
    """Prints the newest `limit` sessions, `padded` as for `print_table`; returns how many there were."""
    sessions = list(islice(client.sessions(page_size=min(limit, 100)), limit))
    if as_json:
        for session in sessions:
            emit_json(session.raw)
    else:
        columns = ["session", "status", "created", "events", "of which", "source"]
        print_table(columns, [_session_row(session) for session in sessions], padded=padded)
    return len(sessions)


def newest_session(client: Client) -> Session:
    """Raises `NotFound` where there is none."""
    for session in client.sessions(page_size=1):
        return session
    raise NotFound("there are no sessions yet")


def show_tail(client: Client, session: Session, *, count: int, follow: bool, as_json: bool) -> None:
    """Prints the last `count` events, and with `follow` what comes until the session ends."""
    for event in _events(client, session, max(0, session.sequence - count), follow):
        if as_json:
            emit_json(event.raw)
        else:
            print(event_line(event), flush=True)


def _events(client: Client, session: Session, after: int, follow: bool) -> Iterator[Event]:
    if follow:
        return client.follow(session.session_id, after_sequence=after)
    return client.events(session.session_id, after_sequence=after)


def _session_row(session: Session) -> list[str]:
    counts: Mapping[str, int] = session.raw.get("counts") or {}
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{kind} {count:,}" for kind, count in largest[:_KINDS_SHOWN])
    rest = f", {len(largest) - _KINDS_SHOWN} more" if len(largest) > _KINDS_SHOWN else ""
    source: Mapping[str, Any] | None = session.raw.get("source")
    return [
        session.session_id,
        session.status,
        str(session.raw.get("created_at", ""))[:19],
        f"{session.sequence:,}",
        shown + rest,
        str(session.raw.get("origin", "")) if source is None else f"{source['kind']}, record {source['index']:,}",
    ]


def event_line(event: Event) -> str:
    """`sequence time type attributes content`, cut to a line. JSON escapes whatever a terminal would obey."""
    at = str(event.raw.get("occurred_at") or event.raw["accepted_at"])
    told = " ".join(f"{name}={value}" for name, value in event.attributes.items() if name in _TOLD)
    content = "" if event.content is None else _cut(_gist(event.content))
    if event.gap is not None:
        content = f"[content {event.gap.reason}]"
    return " ".join(part for part in (f"{event.sequence:>6}", at, f"{event.type:<18}", told, content) if part)


_TOLD: Final = frozenset({"role", "model", "name", "status", "reason", "tool_name", "outcome", "reward"})


def _gist(content: object) -> str:
    """The first text in it that a person wrote or reads, else all of it, as JSON: a transcript's record wraps its message."""
    match content:
        case {"message": dict() as inner}:
            return _gist(inner)
        case {"content": str() as text} | {"text": str() as text} | {"summary": str() as text}:
            return json.dumps(text, ensure_ascii=False)
        case {"content": [*blocks]} if blocks:
            return " ".join(_gist(block) for block in blocks)
        case {"type": "tool_use", "name": str() as name, "input": given}:
            return f"{name} {json.dumps(given, ensure_ascii=False)}"
    return json.dumps(content, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _SNIPPET else text[: _SNIPPET - 1] + "…"
