"""Claims and renewals: how a worker comes to hold a Run, and keeps it.

A claim is a command of one draft, `attempt.started`, that names the Run and, in `claim_digest`, the claim itself; the
authority fills in generation, native task, holder and lease. A renewal is a command without drafts whose report names
the attempt; it changes the lease in the authority's state and appends nothing.
"""

from typing import Final

from msgspec import structs

from streams.session import consequences, refusals
from streams.session.events import AttemptAttributes, Draft
from streams.session.folds import IMPORTED, read
from streams.session.ids import derive_from_command
from streams.session.items import AttemptState, RunState, attempt_of, run_of
from streams.session.lifecycles import LIVE_ATTEMPT, SETTLED_RUN
from streams.session.outcomes import Rejected
from streams.session.rules.reports import completed, holder, place
from streams.session.work import Work

DEFAULT_LEASE_MS: Final = 30_000
SHORTEST_LEASE_MS: Final = 1_000
LONGEST_LEASE_MS: Final = 3_600_000


def _lease_ms(work: Work, default: int) -> int | Rejected:
    asked = default if work.command.lease_ms is None else work.command.lease_ms
    if SHORTEST_LEASE_MS <= asked <= LONGEST_LEASE_MS:
        return asked
    return Rejected(refusals.INVALID, f"lease_ms: {SHORTEST_LEASE_MS} to {LONGEST_LEASE_MS}")


def claim(work: Work) -> Rejected | None:
    """Grants the Run to the principal, or tells the live grant again to whoever repeats its claim."""
    draft = work.command.drafts[0]
    run = _claimable(work, draft)
    if isinstance(run, Rejected):
        return run
    lease_ms = _lease_ms(work, DEFAULT_LEASE_MS)
    if isinstance(lease_ms, Rejected):
        return lease_ms
    attempt = attempt_of(work, run.run_id)
    if attempt is not None:
        if attempt.status in LIVE_ATTEMPT and not work.lapsed(attempt):
            if _same_claim(work, draft, attempt):
                work.told = run.run_id
                return None
            return Rejected(refusals.NOT_CLAIMABLE, f"{run.run_id} is held at generation {attempt.generation}")
        if attempt.was_ready:
            return Rejected(refusals.REPLACEMENT_UNAVAILABLE, f"{run.run_id}: generation {attempt.generation} was ready; missing: evidence")
        if attempt.status in LIVE_ATTEMPT:
            consequences.append(work, _lapse(work, run, attempt))
    started = _started(work, draft, run, lease_ms)
    if isinstance(started, Rejected):
        return started
    consequences.append(work, started)
    work.told = run.run_id
    return None


def _claimable(work: Work, draft: Draft) -> RunState | Rejected:
    refused = place(work, draft, open_turn=False)
    if refused is not None:
        return refused
    run = None if draft.run_id is None else run_of(work, draft.run_id)
    if run is None:
        return refusals.not_found(work.index, "run_id")
    if run.status in SETTLED_RUN:
        return refusals.settled(run.run_id, run.status)
    if run.origin == IMPORTED or not run.claimable:
        return Rejected(refusals.RUN_UNAVAILABLE, run.run_id)
    if draft.turn_id is not None and draft.turn_id != run.turn_id:
        return refusals.invalid(work.index, "turn_id")
    return run


def _same_claim(work: Work, draft: Draft, attempt: AttemptState) -> bool:
    digest = read(draft, AttemptAttributes).claim_digest
    return digest is not None and digest == attempt.claim_digest and attempt.principal_id == work.command.principal_id


def _lapse(work: Work, run: RunState, attempt: AttemptState) -> Draft:
    attributes = AttemptAttributes(
        principal_id=attempt.principal_id, lease_expires_at=attempt.lease_expires_at, reason="lease_lapsed"
    )  # fmt: skip
    return work.make(
        "attempt.failed", run, attributes, generation=attempt.generation, native_task_id=attempt.native_task_id or None
    )  # fmt: skip


def _started(work: Work, draft: Draft, run: RunState, lease_ms: int) -> Draft | Rejected:
    """The claim's draft with what only the authority knows; what it says already must agree."""
    native_task_id = derive_from_command("task", work.command.command_id, 0)
    if draft.attempt_generation not in (None, run.generation + 1):
        return refusals.fenced(run.run_id, run.generation)
    if draft.native_task_id not in (None, native_task_id):
        return refusals.invalid(work.index, "native_task_id")
    attributes = AttemptAttributes(
        principal_id=work.command.principal_id,
        claim_digest=read(draft, AttemptAttributes).claim_digest,
        lease_ms=lease_ms,
        lease_expires_at=work.accepted_at + lease_ms * 1000,
    )
    placed = completed(work, draft, run, by_worker=False)
    return structs.replace(
        placed, attempt_generation=run.generation + 1, native_task_id=native_task_id, attributes=attributes
    )  # fmt: skip


def renew(work: Work) -> Rejected | None:
    """Extends the lease of the attempt that the principal holds. A lapsed lease is not revived."""
    report = work.command.report
    if report is None or report.native_task_id is None:
        return Rejected(refusals.INVALID, "report: generation and native_task_id are required")
    run = run_of(work, report.run_id)
    if run is None:
        return Rejected(refusals.NOT_FOUND, "report: run_id")
    attempt = holder(work, run)
    if isinstance(attempt, Rejected):
        return attempt
    lease_ms = _lease_ms(work, attempt.lease_ms)
    if isinstance(lease_ms, Rejected):
        return lease_ms
    renewed = structs.replace(attempt, lease_ms=lease_ms, lease_expires_at=work.accepted_at + lease_ms * 1000)
    work.put(((("attempt", run.run_id), renewed),))
    work.told = run.run_id
    return None
