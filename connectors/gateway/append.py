"""Appends events: one JSON object, or many as NDJSON: one command, all or nothing. The hottest route."""

from functools import partial
from typing import Final

import msgspec
from msgspec import structs

from connectors.edge.compose import Naming, NewEvent
from connectors.edge.principal import Principal
from connectors.gateway import bodies
from connectors.edge import fields as f
from connectors.gateway.answers import JSON, NDJSON, Answer, Changed, Sequence, told
from connectors.gateway.call import Call, parse
from connectors.gateway.changes import run_sequence_of
from connectors.gateway.limits import check_text
from connectors.gateway.problems import STATUS
from connectors.gateway.route import Route
from connectors.gateway.service import INLINE_BYTES_MAX, Gateway
from connectors.gateway.limits import GatewayLimits
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
