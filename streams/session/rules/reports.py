"""Who may write into a Run (promise 4 of the log).

A report names the Run, the generation of its attempt, the native task that now serves it, and the Run position that
its worker has seen. It is good where the command's principal holds that very attempt, its lease lasts, and the Run has
moved no further. Then, and only then, may the command's drafts of a worker's types stand in that Run. Imported Runs
have no worker: the importer's scope stands in for the report, in them alone, and nothing there is too early or too late.
"""

from msgspec import structs

from streams.session import refusals
from streams.session.events import Draft
from streams.session.items import AttemptState, RunState, attempt_of, run_of, thread_of, turn_of
from streams.session.lifecycles import COMPLETED, LIVE_ATTEMPT, SETTLED_RUN
from streams.session.outcomes import Rejected
from streams.session.words import IMPORTED
from streams.session.work import Work


def holder(work: Work, run: RunState) -> AttemptState | Rejected:
    """The Run's attempt, if the command's report proves that its principal holds it."""
    report = work.command.report
    if report is None:
        return Rejected(refusals.INVALID, "report: required")
    attempt = attempt_of(work, run.run_id)
    if (
        attempt is None
        or report.run_id != run.run_id
        or report.generation != attempt.generation
        or report.native_task_id != attempt.native_task_id
        or work.command.principal_id != attempt.principal_id
        or attempt.status not in LIVE_ATTEMPT
    ):
        over = attempt is not None and attempt.status not in LIVE_ATTEMPT
        return refusals.fenced(run.run_id, run.generation, over=over and report.generation == run.generation)
    if run.status in SETTLED_RUN:
        return refusals.settled(run.run_id, run.status)
    return refusals.fenced(run.run_id, run.generation, over=True) if work.lapsed(attempt) else attempt


def verify(work: Work) -> Rejected | None:
    """Judges the command's report, if it has one, before any of its drafts."""
    report = work.command.report
    if report is None:
        return None
    run = run_of(work, report.run_id)
    if run is None:
        return Rejected(refusals.NOT_FOUND, "report: run_id")
    if report.native_task_id is None or report.expected_run_sequence is None:
        return Rejected(refusals.INVALID, "report: native_task_id and expected_run_sequence are required")
    attempt = holder(work, run)
    if isinstance(attempt, Rejected):
        return attempt
    if report.expected_run_sequence != run.sequence:
        return Rejected(
            refusals.POSITION_CONFLICT,
            f"{run.run_id} is at {run.sequence}",
            actual_sequence=None if work.header is None else work.header.sequence,
            actual_run_sequence=run.sequence,
        )
    work.reported = run.run_id
    return None


def standing(work: Work, draft: Draft, run_id: str | None, *, by_worker: bool, settled_ok: bool = False) -> RunState | Rejected:
    """The Run that the draft belongs to, if the command may write a draft of this kind into it now.

    `by_worker`: only the holder of its attempt may. `settled_ok`: also after the Run has ended, since the draft tells
    how something came out that the Run left open.
    """
    run = None if run_id is None else run_of(work, run_id)
    if run is None:
        return refusals.not_found(work.index, "run_id")
    if draft.run_id is not None and draft.run_id != run.run_id:
        return refusals.invalid(work.index, "run_id")
    if draft.turn_id is not None and run.turn_id is not None and draft.turn_id != run.turn_id:
        return refusals.invalid(work.index, "turn_id")
    settled = run.status in SETTLED_RUN
    if settled and not settled_ok:
        return refusals.settled(run.run_id, run.status)
    if run.origin == IMPORTED:
        if not work.command.importing:
            return Rejected(refusals.RUN_UNAVAILABLE, run.run_id)
        if draft.attempt_generation is not None and draft.attempt_generation != run.generation:
            return refusals.fenced(run.run_id, run.generation)
        return run
    if by_worker and not settled:
        attempt = _serving(work, run, draft)
        return attempt if isinstance(attempt, Rejected) else run
    # Nobody but its worker speaks for an attempt.
    if (draft.attempt_generation, draft.native_task_id) != (None, None):
        attempt = _serving(work, run, draft)
        return attempt if isinstance(attempt, Rejected) else run
    return run


def retold(work: Work, run_id: str | None) -> bool:
    """Whether the command tells what happened elsewhere: an importer's, in an imported Run, or outside of Runs in an imported session."""
    run = None if run_id is None else run_of(work, run_id)
    about = work.header if run_id is None else run
    return work.command.importing and about is not None and about.origin == IMPORTED


def _serving(work: Work, run: RunState, draft: Draft) -> AttemptState | Rejected:
    """The attempt that the command reports for, where the draft speaks for no other."""
    if work.command.report is None:
        return Rejected(refusals.INVALID, "report: required")
    attempt = attempt_of(work, run.run_id)
    if (
        attempt is None
        or work.reported != run.run_id
        or attempt.status not in LIVE_ATTEMPT
        or draft.attempt_generation not in (None, attempt.generation)
        or draft.native_task_id not in (None, attempt.native_task_id)
    ):
        return refusals.fenced(run.run_id, run.generation)
    return attempt


def place(work: Work, draft: Draft, *, open_turn: bool) -> Rejected | None:
    """Judges the thread and the Turn that a draft names. In a Run it is the Run, not the Turn, that must go on."""
    if draft.thread_id is not None and thread_of(work, draft.thread_id) is None:
        return refusals.not_found(work.index, "thread_id")
    if draft.turn_id is not None:
        turn = turn_of(work, draft.turn_id)
        if turn is None:
            return refusals.not_found(work.index, "turn_id")
        if open_turn and turn.status == COMPLETED:
            return refusals.settled(turn.turn_id, turn.status)
    return None


def plain(work: Work, draft: Draft) -> Rejected | None:
    """Judges where a message, a source record, a tool call or an artifact wants to stand."""
    refused = place(work, draft, open_turn=draft.run_id is None)
    if refused is not None:
        return refused
    if draft.run_id is not None:
        run = standing(work, draft, draft.run_id, by_worker=True)
        return run if isinstance(run, Rejected) else None
    if (draft.attempt_generation, draft.native_task_id) != (None, None):
        return refusals.invalid(work.index, "run_id")
    return None


def completed(work: Work, draft: Draft, run: RunState, *, by_worker: bool) -> Draft:
    """The draft with its Run, the Run's place, and the attempt that reports it, where it left them out."""
    attempt = attempt_of(work, run.run_id) if by_worker else None
    if attempt is not None and attempt.status not in LIVE_ATTEMPT:
        attempt = None
    native_task_id = draft.native_task_id or (None if attempt is None else attempt.native_task_id or None)
    generation = attempt.generation if attempt is not None and draft.attempt_generation is None else draft.attempt_generation
    fields = (run.run_id, draft.turn_id or run.turn_id, draft.thread_id or run.thread_id, generation, native_task_id)
    if fields == (draft.run_id, draft.turn_id, draft.thread_id, draft.attempt_generation, draft.native_task_id):
        return draft
    return structs.replace(
        draft, run_id=fields[0], turn_id=fields[1], thread_id=fields[2], attempt_generation=fields[3], native_task_id=fields[4]
    )
