"""Appends events: one JSON object, or many as NDJSON: one command, all or nothing. The hottest route."""

from functools import partial
from typing import Final

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent
from connectors.edge.events import EventBody, parse_event, parse_lines, resolved
from connectors.edge.principal import Principal
from connectors.gateway import bodies
from connectors.gateway.answers import JSON, NDJSON, Answer, Changed, Sequence
from connectors.gateway.call import Call
from connectors.gateway.changes import Done
from connectors.gateway.problems import STATUS
from connectors.gateway.route import Route
from connectors.gateway.service import INLINE_BYTES_MAX, Gateway
from streams.errors import NotPermitted
from streams.session.events import FREELY_APPENDED

APPENDED_HERE: Final = FREELY_APPENDED | {"child.started", "child.settled", "context.pinned"}
"""Types without a route of their own. Those of a live Run need its worker's report; the authority sees to that."""


class Appended(Changed, kw_only=True, forbid_unknown_fields=True):
    """`sequence` is the session's after the append; consequences that the authority added follow `event_ids`."""

    first_sequence: Sequence
    last_sequence: Sequence
    event_ids: list[f.EventId]


async def append(gateway: Gateway, call: Call, query: bodies.NoQuery) -> Answer:
    media_type = call.require_media_type((JSON, NDJSON))
    text = await call.read_body()
    facts = await gateway.facts_of(call, call.path["session_id"])
    limits = gateway.limits
    if media_type == NDJSON:
        parsing = partial(parse_lines, text, depth_max=limits.json_depth_max, events_max=limits.events_max)
    else:
        parsing = partial(parse_event, text, depth_max=limits.json_depth_max)
    events = await gateway.in_thread(parsing) if len(text) > INLINE_BYTES_MAX else parsing()
    report = call.report()
    importing = may_append(call.principal, events, reporting=report is not None)

    def build(naming: Naming) -> list[NewEvent]:
        return resolved(events, naming)

    outcome, naming, event_ids = await gateway.carry_out(call, facts, build, report=report, importing=importing)
    gateway.metrics.events.inc(len(events))
    done = Done(facts, outcome, naming, gateway.position_text(facts.session_id, outcome.position_offset))
    return done.told(200, Appended, first_sequence=outcome.first_sequence, last_sequence=outcome.last_sequence, event_ids=event_ids)


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
        body=EventBody, answer=Appended, change=True, report="optional", reads_body_itself=True,
        other_body_types={NDJSON: "One EventBody a line; all are appended, or none."},
        # An importer may append any type here, so its command may meet whatever a session refuses.
        refusals=tuple(code for code in STATUS if code.startswith("runtime.")),
    ),
)  # fmt: skip
