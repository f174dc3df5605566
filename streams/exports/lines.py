"""The lines of a session export, `checkfu.session-export`; docs/export.md states them for whoever reads or checks one.

- Every line has one form: JSON without spaces, its members in the order below, escapes only where JSON asks for them.
  The same position gives the same bytes, so that an export is continued where it broke off, and no byte is unchecked.
- Shown is what the hash chain covers, or what can be checked against that: attributes beside the bytes that they are
  read from, the text of content beside its salt. Ciphertext is not in the chain and is left out.
- Content that cannot be opened is told with its reason; the structure and the digest stay, so the chain still verifies.

Called by the gateway. `session_streams.export` checks what is written here and shares no code with it.
"""

import base64
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from schemas import codec
from schemas.catalog import FileRegistry
from streams.custody.sealing import UNREADABLE, Opened
from streams.errors import ContentUnavailable
from streams.session import chain
from streams.session.events import NONE, Content, Event

FORMAT: Final = "checkfu.session-export"
VERSION: Final = 1

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def header_line(session_id: str, *, from_sequence: int, end_sequence: int) -> bytes:
    """The first line: what is exported, and how far, before anything of it."""
    return _line(
        {
            "kind": "header",
            "format": FORMAT,
            "format_version": VERSION,
            "session_id": session_id,
            "from_sequence": from_sequence,
            "end_sequence": end_sequence,
            "chain": chain.GENESIS.decode(),
            "genesis": chain.genesis(session_id).hex(),
            "attribute_schemas": _attribute_schemas(),
        }
    )


def position_line(event: Event, attributes: bytes | None, opened: Opened | ContentUnavailable | None) -> bytes:
    """One accepted event. `attributes` are its bytes as they stand in the log, `opened` is what `Sealer.open_each` gave."""
    shown: dict[str, str] = {}
    reason: str | None = None
    if isinstance(opened, Opened):
        try:
            shown = {"salt": opened.salt.hex(), "text": opened.json_text.decode()}
        except UnicodeDecodeError:
            reason = UNREADABLE
    elif opened is not None:
        reason = opened.code
    elif event.content.state != NONE:
        raise ValueError(f"{event.event_id}: whether its content can be opened is not told")
    line: dict[str, object] = {"kind": "event" if reason is None else "unavailable", "sequence": event.sequence}
    line |= _supplied(event, attributes)
    line["content"] = _content(event.content, shown)
    line |= {
        "command_offset": event.command_offset,
        "command_last": event.command_last,
        "accepted_at": event.accepted_at,
        "previous_hash": event.previous_hash.hex(),
        "hash": event.hash.hex(),
    }
    if reason is not None:
        line["reason"] = reason.removeprefix("content.")
    return _line(line)


def missing_line(sequence: int, reason: str) -> bytes:
    """A position of which nothing can be shown. `reason` is the code under which its record was set aside."""
    return _line({"kind": "missing", "sequence": sequence, "reason": reason})


def trailer_line(end_sequence: int, last_hash: bytes | None) -> bytes:
    """The last line. It is the same whether or not the export was continued; without it an export is not whole."""
    return _line({"kind": "trailer", "count": end_sequence, "last_hash": None if last_hash is None else last_hash.hex()})


def error_line(code: str, *, status: int, next_sequence: int) -> bytes:
    """Why an export ends before its trailer, and where to go on."""
    return _line({"kind": "error", "status": status, "code": code, "next_sequence": next_sequence})


def _supplied(event: Event, attributes: bytes | None) -> dict[str, object]:
    """What the command supplied, content aside."""
    return {
        "event_id": event.event_id,
        "session_id": event.session_id,
        "type": event.type,
        "workspace_id": event.workspace_id,
        "thread_id": event.thread_id,
        "turn_id": event.turn_id,
        "run_id": event.run_id,
        "attempt_generation": event.attempt_generation,
        "native_task_id": event.native_task_id,
        "actor_id": event.actor_id,
        "subject_id": event.subject_id,
        "command_id": event.command_id,
        "occurred_at": event.occurred_at,
        "links": [{"relation": link.relation, "id": link.id} for link in event.links],
        "attributes": None if attributes is None else _attributes(attributes),
    }


def _attributes(value: bytes) -> dict[str, object]:
    """In the version that they were written in: the bytes are hashed, and what is shown must follow from them."""
    written = codec.decode_as_written(value)
    return {
        "schema": f"{written.subject}.v{written.version}",
        "bytes": base64.b64encode(value).decode(),
        "decoded": {name: _number(item) for name, item in written.record.items() if item is not None},
    }


def _number(item: object) -> object:
    """JSON has no form for NaN and the infinities; their names stand for them."""
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def _content(content: Content, shown: Mapping[str, str]) -> dict[str, object]:
    reference = content.key_reference
    key: dict[str, object] | None = None
    if reference is not None:
        key = {"subject_id": reference.subject_id, "session_id": reference.session_id, "expiry_day": reference.expiry_day}
    return {"state": content.state, "key_reference": key, "digest": None if content.digest is None else content.digest.hex(), **shown}


@cache
def _attribute_schemas() -> dict[str, Any]:
    """Every published version of every family: a reader decodes the bytes with nothing but the export."""
    families = (each for each in FileRegistry().published() if each.subject.startswith("attributes/"))
    return {f"{each.subject}.v{each.version}": each.schema for each in sorted(families, key=lambda each: (each.subject, each.version))}


def _line(value: Mapping[str, object]) -> bytes:
    return _encode(value).encode() + b"\n"
