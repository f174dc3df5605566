"""Events as JSON, their content opened where it may be. The text of content is embedded as it was sealed: nothing is
parsed, so numbers of any size and escapes come back as they came."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from connectors.edge import fields as f
from connectors.gateway.answers import PositionText
from connectors.gateway.answers import Sequence as SequenceNumber
from connectors.gateway.service import Gateway
from streams.custody.sealing import NotAtHand, Opened
from streams.errors import ContentUnavailable
from streams.log.record import decode_event
from streams.session.events import Attributes, Event


class LinkView(Struct, frozen=True, forbid_unknown_fields=True):
    relation: str
    id: f.AnyId


class ContentGap(Struct, frozen=True, forbid_unknown_fields=True):
    """Why content cannot be shown: expired, erased, omitted or unreadable."""

    reason: str


class KeyReferenceView(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose erasure, or which day's end, takes the content away."""

    subject_id: f.SubjectId | None
    session_id: f.SessionId
    expiry_day: str


class EventView(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An accepted event. Exactly one of `content` and `gap` is there where content was given."""

    event_id: f.EventId
    session_id: f.SessionId
    sequence: SequenceNumber
    type: f.EventType
    workspace_id: f.WorkspaceId
    thread_id: f.ThreadId | None = None
    turn_id: f.TurnId | None = None
    run_id: f.RunId | None = None
    attempt_generation: f.Generation | None = None
    native_task_id: f.TaskId | None = None
    actor_id: f.ActorId | None = None
    subject_id: f.SubjectId | None = None
    command_id: f.CommandId
    position: PositionText
    command_last: bool
    occurred_at: f.Moment | None = None
    accepted_at: f.Moment
    links: list[LinkView] = []
    attributes: dict[str, Any] | UnsetType = UNSET
    content_state: str
    content_digest: f.Hex32 | None = None
    key_reference: KeyReferenceView | None = None
    content: Raw | UnsetType = UNSET
    gap: ContentGap | None = None
    previous_hash: f.Hex32
    hash: f.Hex32


def gap_of(code: str) -> ContentGap:
    """The gap that a code content.* tells of."""
    return ContentGap(code.removeprefix("content."))


def opened_views(gateway: Gateway, values: Sequence[bytes]) -> list[EventView]:
    """Decodes and opens the raw values of one session's events: the first of them, up to the one with which their content is as
    large as a page may be. Blocks on keyring and blob store. Raises `KeyringUnavailable`, `BlobStoreUnavailable`."""
    events = [decode_event(value) for value in values]
    return _views(gateway, events, gateway.sealer.open_each(events))


def views_at_hand(gateway: Gateway, values: Sequence[bytes]) -> list[EventView] | None:
    """As `opened_views` where neither a secret nor a text has to be asked for, else None. Does not block."""
    events = [decode_event(value) for value in values]
    try:
        return _views(gateway, events, gateway.sealer.open_each(events, ask=False))
    except NotAtHand:
        return None


def _views(gateway: Gateway, events: list[Event], contents: Iterator[Opened | ContentUnavailable | None]) -> list[EventView]:
    views: list[EventView] = []
    size = 0
    for event, content in zip(events, contents, strict=True):
        text = content.json_text if isinstance(content, Opened) else content
        views.append(_view(gateway, event, text, f"{gateway.commands_topic}:{gateway.partition_of(event.session_id)}:"))
        size += len(text) if isinstance(text, bytes) else 0
        if size >= gateway.limits.opened_bytes_max:
            break
    return views


def _view(gateway: Gateway, event: Event, content: bytes | ContentUnavailable | None, prefix: str) -> EventView:
    text: Raw | UnsetType = UNSET
    gap = None
    if isinstance(content, ContentUnavailable):
        gap = gap_of(content.code)
        gateway.metrics.gaps.labels(gap.reason).inc()
    elif content is not None:
        text = Raw(content)
    sealed = event.content
    reference = sealed.key_reference
    return EventView(
        event_id=event.event_id,
        session_id=event.session_id,
        sequence=event.sequence,
        type=event.type,
        workspace_id=event.workspace_id,
        thread_id=event.thread_id,
        turn_id=event.turn_id,
        run_id=event.run_id,
        attempt_generation=event.attempt_generation,
        native_task_id=event.native_task_id,
        actor_id=event.actor_id,
        subject_id=event.subject_id,
        command_id=event.command_id,
        position=f"{prefix}{event.command_offset}",
        command_last=event.command_last,
        occurred_at=None if event.occurred_at is None else f.when(event.occurred_at),
        accepted_at=f.when(event.accepted_at),
        links=[LinkView(link.relation, link.id) for link in event.links],
        attributes=UNSET if event.attributes is None else _attributes(event.attributes),
        content_state=sealed.state,
        content_digest=None if sealed.digest is None else sealed.digest.hex(),
        key_reference=None if reference is None else KeyReferenceView(reference.subject_id, reference.session_id, reference.expiry_day),
        content=text,
        gap=gap,
        previous_hash=event.previous_hash.hex(),
        hash=event.hash.hex(),
    )


def _attributes(attributes: Attributes) -> dict[str, Any]:
    given = {name: value for name, value in structs.asdict(attributes).items() if value is not None}
    for name in f.TIMES & given.keys():
        given[name] = f.when(given[name])
    return given


encode_view = msgspec.json.Encoder().encode
