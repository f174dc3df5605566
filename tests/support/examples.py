"""Made-up records that satisfy every rule of structure: a full one, a bare one, and ids that tests can name."""

import hashlib

from streams.session.commands import Command, Kind
from streams.session.events import FAMILIES, SEALED, TYPES, Attributes, Content, Draft, KeyReference, Link, MessageAttributes, family_of
from streams.session.ids import derive_event_id


def made_up_id(prefix: str, label: object = "") -> str:
    """The same id for the same prefix and label."""
    return f"{prefix}_{hashlib.sha256(f'{prefix} {label}'.encode()).hexdigest()[:32]}"


SESSION, WORKSPACE, COMMAND, SUBJECT = (made_up_id(prefix) for prefix in ("sess", "ws", "cmd", "subj"))
NOON = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z in microseconds."""

SEALED_CONTENT = Content(SEALED, KeyReference(SUBJECT, SESSION, "2027-01-02"), bytes(range(64)), bytes(32))


def message(index: int = 0, /, **changes: object) -> Draft:
    """A draft with every field of the envelope set."""
    fields: dict[str, object] = {
        "event_id": derive_event_id(COMMAND, index),
        "session_id": SESSION,
        "type": "message.appended",
        "workspace_id": WORKSPACE,
        "thread_id": made_up_id("sthr"),
        "turn_id": made_up_id("turn"),
        "run_id": made_up_id("run"),
        "attempt_generation": 2,
        "native_task_id": made_up_id("task"),
        "actor_id": made_up_id("actr"),
        "subject_id": SUBJECT,
        "command_id": COMMAND,
        "occurred_at": NOON - 1,
        "links": (Link("parent_event", made_up_id("evt", "parent")), Link("cause", made_up_id("evt", "cause"))),
        "attributes": MessageAttributes(role="assistant", model="a-model-1", input_tokens=1200, output_tokens=0),
        "content": SEALED_CONTENT,
    }
    return Draft(**{**fields, **changes})  # type: ignore[arg-type]


def bare(event_type: str, attributes: Attributes | None = None) -> Draft:
    """A draft with nothing but what every event has."""
    return Draft(
        event_id=derive_event_id(COMMAND, 0),
        session_id=SESSION,
        type=event_type,
        workspace_id=WORKSPACE,
        command_id=COMMAND,
        attributes=attributes,
    )


def of_every_type() -> list[Draft]:
    """A draft of each type, with its family's attributes, all absent."""
    return [bare(event_type, FAMILIES[family_of(event_type)]()) for event_type in sorted(TYPES)]


def command(*drafts: Draft, **changes: object) -> Command:
    fields: dict[str, object] = {
        "command_id": COMMAND,
        "session_id": SESSION,
        "workspace_id": WORKSPACE,
        "kind": Kind.APPEND,
        "principal_id": made_up_id("key"),
        "request_digest": bytes(32),
        "issued_at": NOON,
        "not_after": NOON + 10_000_000,
        "reply_to": "gateway-0.1",
        "correlation": 7,
        "drafts": drafts,
    }
    return Command(**{**fields, **changes})  # type: ignore[arg-type]
