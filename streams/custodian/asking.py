"""What the custodian asks the authority for, and what an answer means for the timer.

A timer asks once it is due, and then again after a pause, until an event or an answer takes it away. What it asks for harms
nobody who is asked twice: the authority judges by its own clock and its own state.

How late a lease that is over is noticed: by the loop's look at the time (a tenth of a second), a transaction of the custodian's
and one of the authority's, and by how far their clocks are apart; where an answer was lost (the custodian died, its partitions
moved), by `PAUSES_S` besides; and so where this clock was ahead for a while, once it is right again (`doubted`).
After a takeover the authority itself grants every lease its length once more.
"""

import hashlib
from typing import Final, TypeVar

import structlog
from msgspec import structs

from streams.custodian.rows import Erasing
from streams.custodian.timers import LEASE, Timer, named
from streams.session import refusals
from streams.session.commands import Command, Kind, Report
from streams.session.events import Draft, WaitAttributes
from streams.session.ids import derive_event_id, derive_from_command
from streams.session.outcomes import ACCEPTED, Outcome

PRINCIPAL: Final = "key_" + hashlib.sha256(b"session-streams/custodian").hexdigest()[:32]
"""Who asks. Nobody holds such a key."""
PAUSES_S: Final = (5, 10, 20, 40, 60)
"""Until the same is asked again, by how often it was not answered; the last one for ever. An answer takes as long as a
transaction, so without one either it was lost or no authority is there: then many would wait to be decided."""
_VALID_US: Final = 600_000_000
"""How long a command may wait to be decided; by then it was asked again many times."""
_MARGIN_US: Final = 1_000
_OVER: Final = frozenset(
    {
        refusals.ATTEMPT_FENCED,
        refusals.ALREADY_SETTLED,
        refusals.NOT_FOUND,
        refusals.SESSION_CLOSED,
        refusals.RUN_UNAVAILABLE,
    }
)
"""Refusals after which there is nothing left to wait for."""
_LATER: Final = frozenset({refusals.REQUEST_EXPIRED, refusals.TRANSITION_REFUSED})
"""Not decided in time, or not due yet by the authority's clock."""

_log = structlog.get_logger(__name__)

Asks = TypeVar("Asks", Timer, Erasing)


def asked_by(timer: Timer | Erasing, time: int) -> str:
    """The id of the command by which it asks for the `time`-th time, from 0. A crash before its commit asks the same."""
    return derive_from_command("cmd", timer.event_id, time)


def command_of(key: bytes, timer: Timer, now: int, reply_to: str) -> Command:
    """What the timer asks for now: a lapse of the attempt, or that the wait has expired."""
    session_id, kind, identifier = named(key)
    command_id = asked_by(timer, timer.asked)
    report, drafts = None, tuple[Draft, ...]()
    if kind == LEASE:
        report = Report(run_id=identifier, generation=timer.generation or 0)
    else:
        expired = Draft(
            event_id=derive_event_id(command_id, 0),
            session_id=session_id,
            type="wait.expired",
            workspace_id=timer.workspace_id,
            command_id=command_id,
            attributes=WaitAttributes(wait_id=identifier),
        )
        drafts = (expired,)
    return Command(
        command_id=command_id,
        session_id=session_id,
        workspace_id=timer.workspace_id,
        kind=Kind.LAPSE if kind == LEASE else Kind.APPEND,
        principal_id=PRINCIPAL,
        request_digest=hashlib.sha256(command_id.encode()).digest(),
        issued_at=now,
        not_after=now + _VALID_US,
        report=report,
        reply_to=reply_to,
        drafts=drafts,
    )


def erasure_of(key: bytes, erasing: Erasing, now: int, reply_to: str) -> Command:
    """What the session's authority is asked for an order now: that what the session holds, or has of its ancestors, counts as erased."""
    command_id = asked_by(erasing, erasing.asked)
    return Command(
        command_id=command_id,
        session_id=key.partition(b"/")[0].decode(),
        workspace_id=erasing.workspace_id,
        kind=Kind(erasing.kind),
        principal_id=PRINCIPAL,
        request_digest=hashlib.sha256(command_id.encode()).digest(),
        issued_at=now,
        not_after=now + _VALID_US,
        reply_to=reply_to,
    )


def having_asked(timer: Asks, now: int) -> Asks:
    """The timer once it has asked: it asks again after a pause unless it hears something."""
    pause_s = PAUSES_S[min(timer.unanswered, len(PAUSES_S) - 1)]
    return structs.replace(timer, due_at=now + pause_s * 1_000_000, asked=timer.asked + 1, unanswered=timer.unanswered + 1)


def doubted(timer: Asks, now: int) -> Asks:
    """The timer where the clock has gone back, or nobody knows whether it has: what it was set to by the clock alone, and not by an
    event or the authority, is no longer than a first pause away. To ask too early harms nobody."""
    return structs.replace(timer, due_at=min(timer.due_at, now + PAUSES_S[0] * 1_000_000)) if timer.unanswered else timer


def having_heard(timer: Timer, outcome: Outcome, now: int) -> Timer | None:
    """The timer after the answer to what it asked last; None: it is disarmed."""
    if outcome.status == ACCEPTED:
        grant = outcome.grant
        if grant is None or grant.generation != timer.generation:
            return timer  # it was appended, and the event disarms
        # Where this clock says that the deadline has passed already, it is ahead: what is left is counted from the decision.
        left = max(0, grant.lease_expires_at - outcome.decided_at)
        if grant.lease_expires_at > now:
            return structs.replace(timer, due_at=grant.lease_expires_at + 1, unanswered=0)
        return structs.replace(timer, due_at=now + left + _MARGIN_US, unanswered=1)
    if outcome.code in _OVER:
        return None
    if outcome.code not in _LATER:
        _log.error("custodian_refused", session_id=outcome.session_id, command_id=outcome.command_id, code=outcome.code)
    return timer


def having_erased(erasing: Erasing, outcome: Outcome) -> Erasing:
    """What an order means for a session, after the answer to what was asked last."""
    if outcome.status == ACCEPTED or outcome.code == refusals.NOT_FOUND:
        # What does not exist for its authority has nothing that could be read.
        through = outcome.last_sequence if outcome.status == ACCEPTED else erasing.needed
        if through >= erasing.needed:
            return structs.replace(erasing, due_at=0, unanswered=0, through=through)
        return structs.replace(erasing, due_at=0, unanswered=0)
    if outcome.code not in _LATER:
        _log.error("erasure_refused", session_id=outcome.session_id, command_id=outcome.command_id, code=outcome.code)
    return erasing
