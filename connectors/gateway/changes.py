"""What the lifecycle routes share: one event for a session, made of a body, and an answer that names what was made."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from connectors.edge.compose import Naming, NewEvent, SessionFacts
from connectors.gateway.answers import Answer, Changed, told
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import Invalid
from streams.session.commands import Kind, Report
from streams.session.outcomes import Outcome


class Done(Struct, frozen=True):
    """An accepted change. `position` is the text of it, or None."""

    facts: SessionFacts
    outcome: Outcome
    naming: Naming
    position: str | None

    def told(self, status: int, shape: type[Changed], **fields: Any) -> Answer:
        """The answer: what every change tells, and the `fields` that `shape` adds."""
        outcome = self.outcome
        body = shape(
            session_id=self.facts.session_id,
            sequence=outcome.last_sequence,
            position=self.position,
            run_sequence=run_sequence_of(outcome),
            **fields,
        )
        return told(status, body, outcome)


async def append_one(
    gateway: Gateway,
    call: Call,
    build: Callable[[Naming], NewEvent] | None,
    *,
    kind: Kind = Kind.APPEND,
    report: Report | None = None,
    lease_ms: int | None = None,
) -> Done:
    """`build` is None for a renewal, which appends nothing. Raises what `facts_of` and `carry_out` of the gateway raise."""
    facts = await gateway.facts_of(call, call.path["session_id"])
    outcome, naming, _ = await gateway.carry_out(
        call, facts, lambda naming: [] if build is None else [build(naming)], kind=kind, report=report, lease_ms=lease_ms
    )
    return Done(facts, outcome, naming, gateway.position_text(facts.session_id, outcome.position_offset))


def run_sequence_of(outcome: Outcome) -> int | None:
    """The position that the next report has to name, where the outcome tells one."""
    if outcome.actual_run_sequence is not None:
        return outcome.actual_run_sequence
    return None if outcome.grant is None else outcome.grant.run_sequence


def report_of(call: Call, *, position_needed: bool = True) -> Report:
    """The worker's report, which must name the attempt that the path names. Raises `Invalid`."""
    report = call.report(position_needed=position_needed)
    assert report is not None, "the route requires it"
    path = call.path
    if path.get("run_id", report.run_id) != report.run_id or int(path.get("generation", report.generation)) != report.generation:
        raise Invalid("Session-Streams-Report: names another attempt than the path")
    return report
