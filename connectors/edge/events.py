"""Events as they come in: JSON, one of them or one a line, read into what a command is composed of.

A bound that is broken is told with line and field, never with what stands there. `content` stays the text that came.
"""

from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, structs

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent
from connectors.edge.json_text import check_text, parse
from connectors.edge.misfits import in_words
from streams.errors import Invalid
from streams.session.events import FAMILIES, Attributes, Link, family_of
from streams.session.ids import derive_event_id

EVENTS_MAX: Final = 5000
"""Of one command, where a caller sets no other bound."""
JSON_DEPTH_MAX: Final = 100
_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 256
"""Bytes of the attributes that are remembered, and of how many events."""


class LinkBody(f.Body, frozen=True):
    """A typed reference to something else in the log. `$n` names the n-th event (from 0) of the same request."""

    relation: f.Relation
    id: f.LinkTarget


class EventBody(f.Body, frozen=True):
    """One event to append. `attributes` has the fields of the type's family; `actor` is the caller's own identifier."""

    type: f.EventType
    thread_id: f.ThreadId | None = None
    turn_id: f.TurnId | None = None
    run_id: f.RunId | None = None
    attempt_generation: f.Generation | None = None
    native_task_id: f.TaskId | None = None
    actor: f.OutsideId | None = None
    occurred_at: f.Moment | None = None
    links: Annotated[list[LinkBody], Meta(max_length=256)] = msgspec.field(default_factory=list)
    attributes: f.Content = UNSET
    content: f.Content = UNSET


_event = msgspec.json.Decoder(EventBody)
_attributes = {family: msgspec.json.Decoder(kind) for family, kind in f.ATTRIBUTES_BODY.items()}


def parse_event(text: bytes, *, depth_max: int = JSON_DEPTH_MAX) -> list[NewEvent]:
    """The one event of a JSON body. Raises `Invalid` naming the field."""
    return [_new_event(parse(text, _event, depth_max), "")]


def parse_lines(text: bytes, *, depth_max: int = JSON_DEPTH_MAX, events_max: int = EVENTS_MAX) -> list[NewEvent]:
    """The events of NDJSON, in order. Raises `Invalid` naming line and field."""
    lines = [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise Invalid("the body holds no event", code="request.malformed")
    if len(lines) > events_max:
        raise Invalid(f"more than {events_max} events", code="request.too_large")
    sound = _is_sound(text, depth_max)
    return [_line(line, number, None if sound else depth_max) for number, line in lines]


def _is_sound(text: bytes, depth_max: int) -> bool:
    """Whether all lines pass what is looked at before they are parsed. One that does not is found by looking again."""
    try:
        check_text(text, depth_max)
    except Invalid:
        return False
    return True


def _line(line: bytes, number: int, depth_max: int | None) -> NewEvent:
    place = f"line {number}: "
    return _new_event(parse(line, _event, depth_max, place), place)


def resolved(events: list[NewEvent], naming: Naming) -> list[NewEvent]:
    """With `$n` replaced by the id of the n-th event. Raises `Invalid`."""
    if not any(link.id.startswith("$") for event in events for link in event.links):
        return events
    return [structs.replace(event, links=tuple(_resolved(link, naming, len(events)) for link in event.links)) for event in events]


def _resolved(link: Link, naming: Naming, count: int) -> Link:
    if not link.id.startswith("$"):
        return link
    index = int(link.id[1:])
    if index >= count:
        raise Invalid(f"links: {link.id}: there are {count} events, counted from $0")
    return Link(link.relation, derive_event_id(naming.command_id, index))


def _new_event(body: EventBody, place: str) -> NewEvent:
    return NewEvent(
        type=body.type,
        thread_id=body.thread_id,
        turn_id=body.turn_id,
        run_id=body.run_id,
        attempt_generation=body.attempt_generation,
        native_task_id=body.native_task_id,
        actor=body.actor,
        occurred_at=None if body.occurred_at is None else f.microseconds_of(body.occurred_at),
        links=tuple(Link(link.relation, link.id) for link in body.links),
        attributes=_typed_attributes(body, place),
        content=f.content_text(body.content),
    )


def _typed_attributes(body: EventBody, place: str) -> Attributes | None:
    text = f.content_text(body.attributes)
    if text is None or text == b"null":
        return None
    read = _same_attributes if len(text) <= _LONGEST_REMEMBERED else _attributes_of
    try:
        return read(family_of(body.type), text)
    except msgspec.ValidationError as error:
        told = in_words(str(error))
        where = told.replace("`$", "`$.attributes") if "`$" in told else f"{told} - at `$.attributes`"
        raise Invalid(place + where) from error


def _attributes_of(family: str, text: bytes) -> Attributes:
    given = _attributes[family].decode(text)
    values = structs.asdict(given)
    for name in f.TIMES & values.keys():
        if values[name] is not None:
            values[name] = f.microseconds_of(values[name])
    return FAMILIES[family](**values)


_same_attributes = lru_cache(_REMEMBERED)(_attributes_of)
"""Many events have the same attributes."""
