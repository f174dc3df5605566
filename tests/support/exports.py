"""Exports made without a service: a history is told event by event, chained as the authority does, and written out.

Content is not sealed here: its digest is that of a salt and a text which the export shows.
"""

import hashlib
import json
from typing import Any

from msgspec import structs

from streams.custody.sealing import Opened
from streams.errors import ContentUnavailable
from streams.exports import lines
from streams.log.record import encode_attributes
from streams.session.chain import event_hash, genesis
from streams.session.events import NO_CONTENT, OMITTED, SEALED, Attributes, Content, Draft, Event, KeyReference, Link, MessageAttributes
from streams.session.ids import derive_event_id
from tests.support.examples import NOON, SESSION, SUBJECT, WORKSPACE, made_up_id


class History:
    """One session. `lines()` is its export."""

    def __init__(self, session_id: str = SESSION) -> None:
        self.session_id = session_id
        self.events: list[tuple[Event, bytes | None, Opened | ContentUnavailable | None]] = []
        self._last_hash = genesis(session_id)

    def tell(
        self, event_type: str = "message.appended", attributes: Attributes | None = None, *, text: str | None = None,
        gone: str | None = None, **fields: Any,
    ) -> "History":  # fmt: skip
        """Accepts one more event, with content `text`; `gone` is why it cannot be opened any more."""
        command_id = made_up_id("cmd", len(self.events))
        draft = Draft(
            event_id=derive_event_id(command_id, 0), session_id=self.session_id, type=event_type, workspace_id=WORKSPACE,
            command_id=command_id, attributes=attributes, **fields,
        )  # fmt: skip
        return self.accept(draft, text=text, gone=gone)

    def accept(self, draft: Draft, *, text: str | None, gone: str | None) -> "History":
        """As `tell`, with whatever else the draft says."""
        number = len(self.events)
        salt = hashlib.sha256(draft.event_id.encode()).digest()[:16]
        content, opened = NO_CONTENT, None
        if gone == "omitted":
            content = Content(OMITTED)
        elif text is not None:
            reference = KeyReference(draft.subject_id, self.session_id, "2027-01-02")
            content = Content(SEALED, reference, bytes(64), hashlib.sha256(salt + text.encode()).digest())
        if gone is not None:
            opened = ContentUnavailable("gone", code=f"content.{gone}")
        elif text is not None:
            opened = Opened(salt, text.encode())
        draft = structs.replace(draft, session_id=self.session_id, content=content)
        added: dict[str, Any] = {
            "sequence": number + 1, "command_offset": 2 * number, "command_last": True, "accepted_at": NOON + number,
            "previous_hash": self._last_hash,
        }  # fmt: skip
        raw = encode_attributes(draft.type, draft.attributes)
        self._last_hash = event_hash(draft, raw, **added)
        self.events.append((Event(**structs.asdict(draft), **added, hash=self._last_hash), raw, opened))
        return self

    def lines(self, from_sequence: int = 1, end_sequence: int | None = None) -> list[bytes]:
        end = len(self.events) if end_sequence is None else end_sequence
        told = [lines.position_line(*each) for each in self.events[from_sequence - 1 : end]]
        header = lines.header_line(self.session_id, from_sequence=from_sequence, end_sequence=end)
        return [header, *told, lines.trailer_line(end, self.events[end - 1][0].hash if end else None)]


def conversation(length: int = 6, session_id: str = SESSION) -> History:
    """Messages with every structural field set, and texts that are easily spoilt on the way."""
    history = History(session_id)
    for number in range(length):
        history.tell(
            attributes=MessageAttributes(role="user", model="a-model-1", input_tokens=number, output_tokens=2**53 + 1),
            text=f'{{"n": 1e400, "big": {10**30 + number}, "e": "\\u00e9\\u0000 \u2028 \\"é\\"" , "x":[ ]}}',
            thread_id=made_up_id("sthr"), turn_id=made_up_id("turn"), run_id=made_up_id("run"), attempt_generation=2,
            native_task_id=made_up_id("task"), actor_id=made_up_id("actr"), subject_id=SUBJECT, occurred_at=NOON - 1,
            links=(Link("parent_event", made_up_id("evt", "parent")), Link("cause", made_up_id("evt", "cause"))),
        )  # fmt: skip
    return history


def spelled(value: dict[str, Any]) -> bytes:
    """A line in the form of an export, so that a test can change what it says and nothing else."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def changed(line: bytes, *path: str | int, to: Any) -> bytes:
    """The line with another value at a place in it."""
    value = json.loads(line)
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    assert repr(inner[path[-1]]) != repr(to)
    inner[path[-1]] = to
    return spelled(value)
