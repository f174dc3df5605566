"""Decides a command: whole or not at all, from the items of its session, the time, and nothing else.

Called by the authority for each command in the order of its partition; what it answers is a pure function of its
arguments. It never raises for a command of these types, and a refusal leaves no trace in what it was given.

    command -> expired? -> identifiers -> session: there, ours, open, at the expected sequence -> report -> KINDS
    append  -> each draft: its own form -> its type's rule -> accepted with its consequences -> its content

A new kind of command finds its place in `KINDS`, a new type of event in `RULES` and `folds.FOLDS`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from streams.session import consequences, refusals, vocabulary
from streams.session.commands import DRAFTLESS, Command, Kind
from streams.session.events import NONE, SEALED, Draft, KeyReference
from streams.session.folds import FOLDS
from streams.session.history import place_of
from streams.session.items import Items
from streams.session.lifecycles import CLOSED
from streams.session.outcomes import Rejected
from streams.session.rules import capsules, checkpoints, claims, custodian, effects, forks, interactions, reports, runs, sessions
from streams.session.words import ZDR
from streams.session.work import AUTHORITY, Decision, Work

__all__ = ["AUTHORITY", "KINDS", "RULES", "Decision", "decide"]

Rule = Callable[[Work, Draft], Draft | Rejected]

RULES: Final[Mapping[str, Rule]] = {
    **sessions.RULES,
    **runs.RULES,
    **interactions.RULES,
    **effects.RULES,
    **checkpoints.RULES,
    **capsules.RULES,
}
"""Types whose events change more than the counters; the others stand where `reports.plain` lets them."""
PLAIN: Final = frozenset(FOLDS) - frozenset(RULES)
FIRST: Final = frozenset({"session.created", "thread.opened", "turn.started"})
"""Types that make the place they name."""


_BEGINNING: Final = frozenset({Kind.APPEND, Kind.CHILD})
"""Kinds that may begin a session."""
_ONLY_DRAFT: Final = {Kind.CLAIM: "attempt.started", Kind.REPLACE: "attempt.started", Kind.FORK: "session.forked"}
"""Kinds that are one draft, and its type."""
_OF_CLOSED: Final = frozenset({Kind.ERASE, Kind.DISINHERIT})
_CHILD_DRAFTS: Final = (["session.created"], ["session.created", "checkpoint.created"])


def decide(items: Items, command: Command, now: int, command_offset: int, took_over_at: int = 0) -> Decision | Rejected:
    """Accepts the command, or says why not.

    `now` is the authority's clock, `took_over_at` the time since which it has held the partition (microseconds since the
    epoch): every lease is granted its length once more from then. `command_offset` is the command's in its partition.
    """
    if now > command.not_after:
        return Rejected(refusals.REQUEST_EXPIRED, f"not after {command.not_after}, decided at {now}")
    if not vocabulary.COMMAND_ID(command.command_id) or not vocabulary.SESSION_ID(command.session_id):
        return Rejected(refusals.INVALID, "command_id, session_id")
    work = Work(items, command, now, command_offset, took_over_at)
    refused = _session(work) or _form(command)
    # The report of a command without drafts is judged by its kind.
    if refused is None and command.drafts:
        refused = reports.verify(work)
    refused = refused or KINDS[command.kind](work)
    return work.decision() if refused is None else refused


def _session(work: Work) -> Rejected | None:
    command, header = work.command, work.header
    sequence = 0
    if header is None:
        if not command.drafts or command.kind not in _BEGINNING or command.drafts[0].type != "session.created":
            return Rejected(refusals.NOT_FOUND, command.session_id)
    else:
        if header.workspace_id != command.workspace_id:
            return Rejected(refusals.NOT_FOUND, command.session_id)
        # What is erased does not ask whether a session goes on.
        if header.status == CLOSED and command.kind not in _OF_CLOSED:
            return Rejected(refusals.SESSION_CLOSED, command.session_id, actual_sequence=header.sequence)
        sequence = header.sequence
    if command.expected_sequence is not None and command.expected_sequence != sequence:
        return Rejected(refusals.SEQUENCE_CONFLICT, f"{command.session_id} is at {sequence}", actual_sequence=sequence)
    return None


def _form(command: Command) -> Rejected | None:
    """Judges how many drafts the command brings, and that they are its own."""
    kind = command.kind
    if kind is Kind.APPEND:
        return None if command.drafts else Rejected(refusals.INVALID, "drafts: none")
    if kind in DRAFTLESS:
        return Rejected(refusals.INVALID, f"drafts: a command of kind {kind} has none") if command.drafts else None
    only = _ONLY_DRAFT.get(kind)
    if only is not None:
        one = len(command.drafts) == 1 and command.drafts[0].type == only
        return None if one and command.report is None else Rejected(refusals.INVALID, f"a {kind} is one {only}, without report")
    if [draft.type for draft in command.drafts] not in _CHILD_DRAFTS:
        return Rejected(refusals.INVALID, "drafts: a child begins, and brings along at most a checkpoint")
    return None


def _append(work: Work) -> Rejected | None:
    scope: tuple[str | int | None, ...] | None = None
    under: KeyReference | None = None
    since = until = 0
    for index, draft in enumerate(work.command.drafts):
        work.index = index
        refused = _own(work, draft)
        if refused is not None:
            return refused
        if draft.type in PLAIN:
            here = (draft.thread_id, draft.turn_id, draft.run_id, draft.attempt_generation, draft.native_task_id)
            # What stood there just now still may, until something other than the counters has changed.
            if here != scope:
                refused = reports.plain(work, draft)
                if refused is not None:
                    return refused
                scope = here
            at = work.append_plain(draft, index)
            content = draft.content
            state = content.state
            if state == NONE:
                continue
            if state == SEALED:
                # What holds of one content holds of the next under the same keys.
                if under is not None and content.key_reference == under and content.ciphertext is not None and content.digest is not None:
                    until = at
                    continue
                refused = _content(work, draft)
                if refused is not None:
                    return refused
                if under is not None:
                    work.note(under.expiry_day, since, until)
                under, since, until = content.key_reference, at, at
            else:
                work.note(place_of(content), at, at)
        else:
            scope = None
            if under is not None:
                work.note(under.expiry_day, since, until)
                under = None
            judged = _judged(work, draft)
            if isinstance(judged, Rejected):
                return judged
            # The worker must learn which native task serves its attempt from now on.
            if judged.type == "attempt.ready" and work.reported == judged.run_id:
                work.told = judged.run_id
            consequences.append(work, judged, index if judged is draft else AUTHORITY)
            if draft.content.state == SEALED:
                refused = _content(work, draft)
                if refused is not None:
                    return refused
    if under is not None:
        work.note(under.expiry_day, since, until)
    return None


def _claim(work: Work) -> Rejected | None:
    return _only_draft(work) or claims.claim(work)


def _fork(work: Work) -> Rejected | None:
    return _only_draft(work) or forks.fork(work)


def _only_draft(work: Work) -> Rejected | None:
    draft = work.command.drafts[0]
    refused = _own(work, draft) or _well_formed(work, draft)
    return _content(work, draft) if refused is None and draft.content.state == SEALED else refused


def _own(work: Work, draft: Draft) -> Rejected | None:
    """The draft is this command's, in its place, of this session and its subject."""
    command, header = work.command, work.header
    if draft.event_id != work.event_id(work.index):
        return refusals.invalid(work.index, "event_id")
    if draft.command_id != command.command_id:
        return refusals.invalid(work.index, "command_id")
    if draft.session_id != command.session_id:
        return refusals.invalid(work.index, "session_id")
    if draft.workspace_id != command.workspace_id:
        return refusals.invalid(work.index, "workspace_id")
    if header is not None:
        if draft.subject_id is not None and draft.subject_id != header.subject_id:
            return refusals.invalid(work.index, "subject_id")
        if header.status == CLOSED:
            return Rejected(refusals.SESSION_CLOSED, command.session_id)
    return None


def _well_formed(work: Work, draft: Draft) -> Rejected | None:
    """Ids and words of a draft that may come to stand in an item."""
    name = vocabulary.misplaced(draft)
    if name is None and draft.attributes is not None:
        name = vocabulary.misplaced_attribute(draft.type, draft.attributes)
    return None if name is None else refusals.invalid(work.index, name)


def _judged(work: Work, draft: Draft) -> Draft | Rejected:
    rule = RULES.get(draft.type)
    if rule is None:
        return refusals.invalid(work.index, "type")
    refused = _well_formed(work, draft)
    if refused is None and draft.type not in FIRST:
        refused = reports.place(work, draft, open_turn=draft.run_id is None or draft.type == "run.accepted")
    return refused or rule(work, draft)


def _content(work: Work, draft: Draft) -> Rejected | None:
    """Sealed for this session and its subject, with a day that the session's pinned policy allows."""
    content, header = draft.content, work.header
    reference = content.key_reference
    if header is None or reference is None or content.ciphertext is None or content.digest is None:
        return refusals.invalid(work.index, "content")
    if header.policy_mode == ZDR:
        return refusals.invalid(work.index, "content.state: this session keeps none")
    if reference.session_id != header.session_id or reference.subject_id != header.subject_id:
        return refusals.invalid(work.index, "content.key_reference")
    if reference.expiry_day not in work.days(header.content_window_days):
        return refusals.invalid(work.index, "content.key_reference.expiry_day")
    return None


KINDS: Final[Mapping[Kind, Callable[[Work], Rejected | None]]] = {
    Kind.APPEND: _append,
    Kind.CLAIM: _claim,
    Kind.REPLACE: _claim,
    Kind.RENEW: claims.renew,
    Kind.LAPSE: custodian.lapse,
    Kind.FORK: _fork,
    Kind.CHILD: _append,
    Kind.ERASE: custodian.erase,
    Kind.DISINHERIT: custodian.disinherit,
}
