"""Appends events: one JSON object, or many as NDJSON: one command, all or nothing. The hottest route."""

from functools import partial
from typing import Final

import msgspec
from msgspec import structs

from connectors.edge.compose import Naming, NewEvent
from connectors.edge.principal import Principal
from connectors.gateway import bodies
from connectors.gateway import fields as f
from connectors.gateway.answers import JSON, NDJSON, Answer, Changed, Sequence, microseconds_of, told
from connectors.gateway.bodies import content_text
from connectors.gateway.call import Call, parse
from connectors.gateway.changes import run_sequence_of
from connectors.gateway.limits import check_text
from connectors.gateway.problems import STATUS
from connectors.gateway.route import Route
from connectors.gateway.service import INLINE_BYTES_MAX, Gateway
from connectors.gateway.settings import GatewaySettings
from streams.errors import Invalid, NotPermitted
from streams.session.events import FAMILIES, FREELY_APPENDED, Attributes, Link, family_of
from streams.session.ids import derive_event_id

APPENDED_HERE: Final = FREELY_APPENDED | {"child.started", "child.settled", "context.pinned"}
"""Types without a route of their own. Those of a live Run need its worker's report; the authority sees to that."""

_event = msgspec.json.Decoder(bodies.EventBody)
_attributes = {family: msgspec.json.Decoder(kind) for family, kind in f.ATTRIBUTES_BODY.items()}


class Appended(Changed, kw_only=True, forbid_unknown_fields=True):
    """`sequence` is the session's after the append; consequences that the authority added follow `event_ids`."""

    first_sequence: Sequence
    last_sequence: Sequence
    event_ids: list[f.EventId]


async def append(gateway: Gateway, call: Call, query: bodies.NoQuery) -> Answer:
    media_type = call.require_media_type((JSON, NDJSON))
    text = await call.read_body()
    facts = await gateway.facts_of(call, call.path["session_id"])
    parsing = partial(parse_events, text, media_type, gateway.limits)
    events = await gateway.in_thread(parsing) if len(text) > INLINE_BYTES_MAX else parsing()
    report = call.report()
    importing = may_append(call.principal, events, reporting=report is not None)

    def build(naming: Naming) -> list[NewEvent]:
        return resolved(events, naming)

    outcome, _, event_ids = await gateway.carry_out(call, facts, build, report=report, importing=importing)
    gateway.metrics.events.inc(len(events))
    appended = Appended(
        session_id=facts.session_id,
        sequence=outcome.last_sequence,
        position=gateway.position_text(facts.session_id, outcome.position_offset),
        run_sequence=run_sequence_of(outcome),
        first_sequence=outcome.first_sequence,
        last_sequence=outcome.last_sequence,
        event_ids=event_ids,
    )
    return told(200, appended, outcome)


def parse_events(text: bytes, media_type: str, limits: GatewaySettings) -> list[NewEvent]:
    """The events of a body, in order. Raises `Invalid` naming line and field."""
    if media_type == JSON:
        return [_new_event(parse(text, _event, limits.json_depth_max), "")]
    lines = [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise Invalid("the body holds no event", code="request.malformed")
    if len(lines) > limits.events_max:
        raise Invalid(f"more than {limits.events_max} events", code="request.too_large")
    sound = _is_sound(text, limits.json_depth_max)
    return [_line(line, number, None if sound else limits.json_depth_max) for number, line in lines]


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


def may_append(principal: Principal, events: list[NewEvent], *, reporting: bool) -> bool:
    """Whether the command is an import. A live worker's report is never one, whatever else its key may do.

    Raises `NotPermitted` (auth.scope) for a type that has a route of its own.
    """
    special = {event.type for event in events} - APPENDED_HERE
    importing = principal.holds("sessions:import") and not reporting
    if special and not importing:
        raise NotPermitted(
            f"{', '.join(sorted(special))}: has a route of its own; only sessions:import may append it here", code="auth.scope"
        )
    return importing


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


def _new_event(body: bodies.EventBody, place: str) -> NewEvent:
    return NewEvent(
        type=body.type,
        thread_id=body.thread_id,
        turn_id=body.turn_id,
        run_id=body.run_id,
        attempt_generation=body.attempt_generation,
        native_task_id=body.native_task_id,
        actor=body.actor,
        occurred_at=None if body.occurred_at is None else microseconds_of(body.occurred_at),
        links=tuple(Link(link.relation, link.id) for link in body.links),
        attributes=_typed_attributes(body, place),
        content=content_text(body.content),
    )


def _typed_attributes(body: bodies.EventBody, place: str) -> Attributes | None:
    text = content_text(body.attributes)
    if text is None or text == b"null":
        return None
    family = family_of(body.type)
    try:
        given = _attributes[family].decode(text)
    except msgspec.ValidationError as error:
        told = str(error)
        where = told.replace("`$", "`$.attributes") if "`$" in told else f"{told} - at `$.attributes`"
        raise Invalid(place + where) from error
    values = structs.asdict(given)
    for name in f.TIMES & values.keys():
        if values[name] is not None:
            values[name] = microseconds_of(values[name])
    return FAMILIES[family](**values)


ROUTES = (
    Route(
        method="POST", path="/v1/sessions/{session_id}/events", name="append_events",
        summary="Append one event (JSON) or many (NDJSON), all or nothing", handler=append, scope="sessions:write",
        body=bodies.EventBody, answer=Appended, change=True, report="optional", reads_body_itself=True,
        other_body_types={NDJSON: "One EventBody a line; all are appended, or none."},
        # An importer may append any type here, so its command may meet whatever a session refuses.
        refusals=tuple(code for code in STATUS if code.startswith("runtime.")),
    ),
)  # fmt: skip
