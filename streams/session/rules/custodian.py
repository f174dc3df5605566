"""What the custodian asks for: that an attempt whose lease is over fails, and that what a session holds, or has of its ancestors,
counts as erased.

They come without drafts. None is believed more than anybody else: the authority itself judges the lease.
"""

from msgspec import structs

from streams.session import consequences, refusals
from streams.session.items import HISTORY, LINEAGE, attempt_of, history_of, lineage_of, run_of
from streams.session.lifecycles import LIVE_ATTEMPT, SETTLED_RUN
from streams.session.outcomes import Rejected
from streams.session.rules.claims import lapse_draft
from streams.session.work import Work


def lapse(work: Work) -> Rejected | None:
    """Fails the named attempt if its lease is over; else tells its real deadline, as a grant, and appends nothing."""
    report = work.command.report
    if report is None:
        return Rejected(refusals.INVALID, "report: run_id and generation are required")
    run = run_of(work, report.run_id)
    if run is None:
        return Rejected(refusals.NOT_FOUND, "report: run_id")
    if run.status in SETTLED_RUN:
        return refusals.settled(run.run_id, run.status)
    attempt = attempt_of(work, run.run_id)
    if attempt is None or attempt.generation != report.generation or attempt.status not in LIVE_ATTEMPT:
        return refusals.fenced(run.run_id, run.generation)
    if attempt.lease_expires_at is None:
        return Rejected(refusals.RUN_UNAVAILABLE, f"{run.run_id} has no lease")
    if work.lapsed(attempt):
        consequences.append(work, lapse_draft(work, run, attempt))
    else:
        work.told = run.run_id
    return None


def erase(work: Work) -> Rejected | None:
    """Content and checkpoints up to the session's position are erased, those of its ancestors too: what they say of the subject goes
    with it. Retention is not told in the session's own log (design 04)."""
    header = work.header
    if header is None:
        return Rejected(refusals.NOT_FOUND, work.command.session_id)
    work.put(((HISTORY, structs.replace(history_of(work), erased_through=header.sequence)),))
    lineage = lineage_of(work)
    if lineage is not None:
        work.put(((LINEAGE, structs.replace(lineage, erased=True)),))
    return None


def disinherit(work: Work) -> Rejected | None:
    """An ancestor of this fork is erased: what the fork has of its ancestors goes ("what is erased in the source is erased in every
    fork", design 02), and so do its checkpoints so far, whose snapshots have seen it. Its own content stays."""
    header = work.header
    if header is None:
        return Rejected(refusals.NOT_FOUND, work.command.session_id)
    lineage = lineage_of(work)
    if lineage is None:
        return Rejected(refusals.INVALID, f"{header.session_id} is no fork")
    work.put(
        (
            (LINEAGE, structs.replace(lineage, erased=True)),
            (HISTORY, structs.replace(history_of(work), checkpoints_erased_through=header.sequence)),
        )
    )
    return None
