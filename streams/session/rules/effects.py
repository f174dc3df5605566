"""Provider effects: what may have happened outside, told before it is sent and settled on evidence.

- An effect is dispatched under an identity of its own, by the attempt that holds its Run.
- While it is unsettled, neither the same frozen action nor the same request is dispatched under another identity: it might
  happen twice.
- Where it was abandoned, nobody knows whether it happened: the same goes again only on an approval that was granted since, a
  decision that says so (seed *Checkpoints*: no blind duplicate under a fresh identity).
- Where an approval was asked for an action, the dispatch names one that was granted for that very action, and the decision
  on it that came last is no denial. An approval is used up by an effect, unless the provider is known not to have done it.
- While its own attempt may still report, nobody else settles it: the request may yet arrive. Afterwards it is settled
  by a receipt that a later attempt of the Run reports, or by a reconciliation that names its evidence.
"""

from typing import Final

from streams.session import refusals
from streams.session.digests import same
from streams.session.events import Draft, EffectAttributes, read
from streams.session.folds.effects import action_digest
from streams.session.items import (
    ApprovalState,
    EffectState,
    RunState,
    actions_of,
    approval_of,
    attempt_of,
    effect_of,
    run_of,
)
from streams.session.lifecycles import DENIED, DISPATCHED, GRANTED, INDETERMINATE, LIVE_ATTEMPT, RUNNING, SETTLED, SETTLED_RUN, WAITING
from streams.session.outcomes import Rejected
from streams.session.rules.reports import completed, standing
from streams.session.words import IMPORTED
from streams.session.work import Work

OPEN_EFFECTS_LIMIT: Final = 128
"""Of one Run at a time: they stand in its item, which every event of the Run writes again."""
NOT_DONE: Final = frozenset({"failed", "not_performed"})
"""Outcomes after which the provider is known not to have done it."""
RECEIPT_OUTCOMES: Final = frozenset({None, "succeeded", "failed"})
ABANDONED: Final = "abandoned"


def effect_dispatched(work: Work, draft: Draft) -> Draft | Rejected:
    attributes = read(draft, EffectAttributes)
    for name in ("effect_id", "provider", "request_digest"):
        if getattr(attributes, name) is None:
            return refusals.invalid(work.index, f"attributes.{name}")
    run = standing(work, draft, draft.run_id, by_worker=True)
    if isinstance(run, Rejected):
        return run
    if run.status not in (RUNNING, WAITING):
        return Rejected(refusals.TRANSITION_REFUSED, f"{run.run_id} is {run.status}")
    known = effect_of(work, attributes.effect_id or "")
    if known is not None:
        return _again(known)
    before = _before(work, attributes)
    refused = _blind_duplicate(before) or _unauthorised(work, run, attributes) or _given_up(work, before, attributes.approval_id)
    if refused is not None:
        return refused
    if len(run.open_effects) >= OPEN_EFFECTS_LIMIT:
        return Rejected(refusals.LIMIT_REACHED, f"{run.run_id} has {len(run.open_effects)} open effects")
    return completed(work, draft, run, by_worker=True)


def _again(effect: EffectState) -> Rejected:
    if effect.status == SETTLED:
        return refusals.settled(effect.effect_id, effect.outcome or effect.status)
    if effect.status == INDETERMINATE:
        return Rejected(refusals.EFFECT_INDETERMINATE, f"{effect.effect_id} is to be reconciled")
    return refusals.exists(effect.effect_id)


def _before(work: Work, attributes: EffectAttributes) -> list[EffectState]:
    """The effects that did the same action last, or sent the same request."""
    about = [*actions_of(work, action_digest(attributes)), *actions_of(work, attributes.request_digest or "")]
    effects = [effect_of(work, effect_id) for effect_id in dict.fromkeys(each.effect_id for each in about) if effect_id is not None]
    return [effect for effect in effects if effect is not None]


def _blind_duplicate(before: list[EffectState]) -> Rejected | None:
    for effect in before:
        if effect.status != SETTLED:
            return Rejected(refusals.EFFECT_INDETERMINATE, f"{effect.effect_id} of the same action or request is {effect.status}")
    return None


def _given_up(work: Work, before: list[EffectState], approval_id: str | None) -> Rejected | None:
    approval = None if approval_id is None else approval_of(work, approval_id)
    for effect in before:
        if effect.outcome == ABANDONED and (approval is None or approval.sequence < effect.sequence):
            return Rejected(refusals.APPROVAL_REQUIRED, f"{effect.effect_id} was abandoned: an approval that is granted since then")
    return None


def _unauthorised(work: Work, run: RunState, attributes: EffectAttributes) -> Rejected | None:
    digest = action_digest(attributes)
    newest_id = next((action.approval_id for action in actions_of(work, digest) if action.approval_id is not None), None)
    if attributes.approval_id is None:
        return None if newest_id is None else Rejected(refusals.APPROVAL_REQUIRED, f"{newest_id} was asked for this action")
    approval = approval_of(work, attributes.approval_id)
    if approval is None:
        return refusals.not_found(work.index, "attributes.approval_id")
    if not same(approval.action_digest, digest) or approval.run_id not in (None, run.run_id):
        return Rejected(refusals.APPROVAL_MISMATCH, f"{approval.approval_id} is for another action")
    if approval.status != GRANTED:
        return Rejected(refusals.APPROVAL_REQUIRED, f"{approval.approval_id} is {approval.status}")
    newest = None if newest_id is None else approval_of(work, newest_id)
    if newest is not None and newest.status == DENIED:
        return Rejected(refusals.APPROVAL_REQUIRED, f"{newest.approval_id} is {newest.status}, and was decided later")
    if approval.expires_at is not None and work.accepted_at >= approval.expires_at and run.origin != IMPORTED:
        return refusals.expired(refusals.APPROVAL_EXPIRED, approval.approval_id, approval.expires_at)
    return _used_up(work, approval)


def _used_up(work: Work, approval: ApprovalState) -> Rejected | None:
    effect = None if approval.effect_id is None else effect_of(work, approval.effect_id)
    if effect is None or effect.outcome in NOT_DONE:
        return None
    return Rejected(refusals.APPROVAL_USED, f"{approval.approval_id} authorised {effect.effect_id}")


def _open_effect(work: Work, attributes: EffectAttributes) -> EffectState | Rejected:
    if attributes.effect_id is None:
        return refusals.invalid(work.index, "attributes.effect_id")
    effect = effect_of(work, attributes.effect_id)
    if effect is None:
        return refusals.not_found(work.index, "attributes.effect_id")
    if effect.status == SETTLED:
        return refusals.settled(effect.effect_id, effect.outcome or effect.status)
    for name in ("request_digest", "action_digest"):
        named = getattr(attributes, name)
        if named is not None and not same(named, getattr(effect, name)):
            return refusals.invalid(work.index, f"attributes.{name}")
    return effect


def effect_reported(work: Work, draft: Draft) -> Draft | Rejected:
    """effect.receipt_accepted and effect.indeterminate, by the attempt that holds the Run now."""
    attributes = read(draft, EffectAttributes)
    effect = _open_effect(work, attributes)
    if isinstance(effect, Rejected):
        return effect
    run = standing(work, draft, effect.run_id, by_worker=True)
    if isinstance(run, Rejected):
        return run
    if draft.type == "effect.indeterminate":
        if effect.status != DISPATCHED:
            return Rejected(refusals.EFFECT_INDETERMINATE, f"{effect.effect_id} is {effect.status}")
    elif attributes.receipt_digest is None:
        return refusals.invalid(work.index, "attributes.receipt_digest")
    elif attributes.outcome not in RECEIPT_OUTCOMES:
        return refusals.invalid(work.index, "attributes.outcome")
    return completed(work, draft, run, by_worker=True)


def effect_reconciled(work: Work, draft: Draft) -> Draft | Rejected:
    """By whoever has the evidence; also after the Run is over."""
    attributes = read(draft, EffectAttributes)
    effect = _open_effect(work, attributes)
    if isinstance(effect, Rejected):
        return effect
    if attributes.evidence_kind is None:
        return refusals.invalid(work.index, "attributes.evidence_kind")
    if attributes.outcome is None:
        return refusals.invalid(work.index, "attributes.outcome")
    if attributes.evidence_kind == "accepted_receipt" and attributes.receipt_digest is None:
        return refusals.invalid(work.index, "attributes.receipt_digest")
    if attributes.evidence_kind == "accepted_receipt" and attributes.outcome not in RECEIPT_OUTCOMES:
        return refusals.invalid(work.index, "attributes.outcome: a receipt tells of what was performed")
    if attributes.outcome == ABANDONED and attributes.evidence_kind != "governed_decision":
        return refusals.invalid(work.index, "attributes.outcome: only a decision abandons")
    run = standing(work, draft, effect.run_id, by_worker=False, settled_ok=True)
    if isinstance(run, Rejected):
        return run
    if work.reported != run.run_id and run.origin != IMPORTED and _in_flight(work, effect):
        return Rejected(refusals.EFFECT_IN_FLIGHT, f"{effect.effect_id} may still be reported by its own attempt")
    return completed(work, draft, run, by_worker=False)


def _in_flight(work: Work, effect: EffectState) -> bool:
    run = run_of(work, effect.run_id or "")
    attempt = attempt_of(work, effect.run_id or "")
    return (
        effect.status == DISPATCHED
        and run is not None
        and run.status not in SETTLED_RUN
        and attempt is not None
        and attempt.status in LIVE_ATTEMPT
        and not work.lapsed(attempt)
    )


RULES: Final = {
    "effect.dispatched": effect_dispatched,
    "effect.receipt_accepted": effect_reported,
    "effect.indeterminate": effect_reported,
    "effect.reconciled": effect_reconciled,
}
