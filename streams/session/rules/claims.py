"""Claims, replacements and renewals: how a worker comes to hold a Run, and keeps it.

A claim is a command of one draft, `attempt.started`, that names the Run and, in `claim_digest`, the claim itself; the
authority fills in generation, native task, holder, lease, and from what the worker goes on (`streams.session.recovery`). A
replacement is a claim of a Run whose attempt was ready: it brings its evidence, and is refused with everything that is missing.
A renewal is a command without drafts whose report names the attempt; it changes the lease in the authority's state and appends
nothing.
"""

from typing import Final

from msgspec import structs

from streams.session import consequences, history, recovery, refusals
from streams.session.commands import Kind
from streams.session.events import AttemptAttributes, CheckpointAttributes, Draft, Link, read
from streams.session.ids import derive_from_command
from streams.session.items import AttemptState, RunState, attempt_of, run_of
from streams.session.lifecycles import ATTEMPT, LIVE_ATTEMPT, SETTLED_RUN
from streams.session.limits import DEFAULT_LEASE_MS, LONGEST_LEASE_MS, OLDEST_VERIFICATION_US, SHORTEST_LEASE_MS
from streams.session.outcomes import Recovery, Rejected
from streams.session.rules.reports import completed, holder, place
from streams.session.words import IMPORTED
from streams.session.work import AUTHORITY, Work

RETAINED_BYTES: Final = "retained_bytes"
COMPATIBILITY: Final = "compatibility"
FRONTIER: Final = "recovery_frontier"
VERIFICATION: Final = "verification"
_BY_REPLACE: Final = "POST .../replace takes it, with harness_revision, environment_revision, replaces and frontier_sequence"
"""A plain claim cannot bring what is missing."""


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
    asked = read(draft, AttemptAttributes)
    found = recovery.recovery_for(work, run, harness_revision=asked.harness_revision, environment_revision=asked.environment_revision)
    attempt = attempt_of(work, run.run_id)
    if attempt is not None:
        if attempt.status in LIVE_ATTEMPT and not work.lapsed(attempt):
            if _same_claim(work, asked, attempt):
                work.told, work.recovery = run.run_id, found
                return None
            return Rejected(refusals.NOT_CLAIMABLE, f"{run.run_id} is held at generation {attempt.generation}")
        if attempt.was_ready:
            missing = _missing(work, run, attempt, asked, found)
            if missing:
                detail = f"{run.run_id}: generation {attempt.generation} was ready; missing: {', '.join(missing)}"
                if work.command.kind is not Kind.REPLACE:
                    detail += f"; {_BY_REPLACE}"
                return Rejected(refusals.REPLACEMENT_UNAVAILABLE, detail, actual_run_sequence=run.sequence, missing=missing)
    if not found.complete and not asked.incomplete_ok:
        return refusals.history_unavailable(history.worded(found.unavailable))
    if attempt is not None:
        _end(work, run, attempt)
    if attempt is None or not attempt.was_ready:
        # Nobody has judged the evidence: none was needed.
        asked = structs.replace(asked, replaces=None, frontier_sequence=None, verification_digest=None, verified_at=None)
    started = _started(work, draft, run, asked, lease_ms, found)
    if isinstance(started, Rejected):
        return started
    consequences.append(work, started)
    if found.checkpoint_id is not None:
        work.append(_consumed(work, run, started, found), AUTHORITY)
    # The end of the attempt before may have left effects indeterminate.
    work.told, work.recovery = run.run_id, structs.replace(found, open_effects=recovery.open_effects(work, run))
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


def _same_claim(work: Work, asked: AttemptAttributes, attempt: AttemptState) -> bool:
    digest = asked.claim_digest
    return digest is not None and digest == attempt.claim_digest and attempt.principal_id == work.command.principal_id


def _missing(work: Work, run: RunState, attempt: AttemptState, asked: AttemptAttributes, found: Recovery) -> tuple[str, ...]:
    """What a replacement of an attempt that was ready lacks (seed *Checkpoints*, "Replacement attempts are evidence-gated").

    A plain claim brings no evidence, and so lacks all that only the worker can bring.
    """
    missing = []
    checkpoint, gone = recovery.latest(work, recovery.Place(work))
    # "Same durable Run, retained compatible bytes": another Run's snapshot is none of this one's.
    retained = checkpoint if checkpoint is not None and gone is None and checkpoint.run_id == run.run_id else None
    if retained is None:
        missing.append(RETAINED_BYTES)
    revisions = asked.harness_revision, asked.environment_revision
    if found.reason == recovery.INCOMPATIBLE or None in revisions or not (retained is None or recovery.proven(retained, run, *revisions)):
        missing.append(COMPATIBILITY)
    # No worker's word that it copes makes a history readable.
    if asked.replaces != attempt.generation or asked.frontier_sequence != run.sequence or not found.complete:
        missing.append(FRONTIER)
    if work.command.kind is not Kind.REPLACE or not _verified(work, asked):
        missing.append(VERIFICATION)
    return tuple(missing)


def _verified(work: Work, asked: AttemptAttributes) -> bool:
    if asked.verification_digest is None or asked.verified_at is None:
        return False
    # A gateway's clock may be a minute ahead.
    return -60_000_000 <= work.accepted_at - asked.verified_at <= OLDEST_VERIFICATION_US


def _end(work: Work, run: RunState, attempt: AttemptState) -> None:
    """The attempt before: failed where its lease is over, replaced where it was ready."""
    if attempt.status in LIVE_ATTEMPT:
        consequences.append(work, lapse_draft(work, run, attempt))
        attempt = attempt_of(work, run.run_id) or attempt
    if attempt.was_ready and attempt.status in ATTEMPT["attempt.replaced"]:
        task = attempt.native_task_id or None
        attributes = AttemptAttributes(principal_id=attempt.principal_id)
        replaced = work.make("attempt.replaced", run, attributes, generation=attempt.generation, native_task_id=task)
        consequences.append(work, replaced)


def lapse_draft(work: Work, run: RunState, attempt: AttemptState) -> Draft:
    """`attempt.failed` of an attempt whose lease is over."""
    attributes = AttemptAttributes(principal_id=attempt.principal_id, lease_expires_at=attempt.lease_expires_at, reason="lease_lapsed")
    task = attempt.native_task_id or None
    return work.make("attempt.failed", run, attributes, generation=attempt.generation, native_task_id=task)


def _started(work: Work, draft: Draft, run: RunState, asked: AttemptAttributes, lease_ms: int, found: Recovery) -> Draft | Rejected:
    """The claim's draft with what only the authority knows; what it says already must agree."""
    native_task_id = derive_from_command("task", work.command.command_id, 0)
    if draft.attempt_generation not in (None, run.generation + 1):
        return refusals.fenced(run.run_id, run.generation)
    if draft.native_task_id not in (None, native_task_id):
        return refusals.invalid(work.index, "native_task_id")
    attributes = structs.replace(
        asked,
        principal_id=work.command.principal_id,
        lease_ms=lease_ms,
        lease_expires_at=work.accepted_at + lease_ms * 1000,
        reason=None,
        recovery_mode=found.mode,
        recovery_reason=found.reason,
        checkpoint_id=found.checkpoint_id,
        through_sequence=found.through_sequence or None,
        complete=found.complete,
    )
    placed = completed(work, draft, run, by_worker=False)
    return structs.replace(placed, attempt_generation=run.generation + 1, native_task_id=native_task_id, attributes=attributes)


def _consumed(work: Work, run: RunState, started: Draft, found: Recovery) -> Draft:
    attributes = CheckpointAttributes(
        checkpoint_id=found.checkpoint_id,
        origin_session_id=found.checkpoint_session_id,
        through_sequence=found.through_sequence,
        through_event_id=found.through_event_id,
    )
    links = (Link("cause", started.event_id), Link("checkpoint", found.checkpoint_id or ""))
    return work.make(
        "checkpoint.consumed", run, attributes, links=links,
        generation=started.attempt_generation, native_task_id=started.native_task_id,
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
