"""Effects, and the actions and requests that they are about."""

from typing import Final

from msgspec import structs

from streams.session import lifecycles as life
from streams.session.events import Draft, EffectAttributes, read
from streams.session.folds.common import Fold, known, moved, the_action, the_run, with_id, without_id
from streams.session.items import Changes, EffectState, Items, approval_of, effect_of, run_of


def action_digest(attributes: EffectAttributes) -> str:
    """What an effect does: its frozen action, or, where none is named, its request."""
    return attributes.action_digest or attributes.request_digest or ""


def _effect_dispatched(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, EffectAttributes)
    effect_id, digest = known(attributes.effect_id, draft), action_digest(attributes)
    run = the_run(items, draft)
    effect = EffectState(
        effect_id=effect_id,
        run_id=run.run_id,
        attempt_generation=run.generation,
        status=life.DISPATCHED,
        action_digest=digest,
        request_digest=attributes.request_digest or "",
        sequence=sequence,
    )
    about = {each.action_digest: each for each in (the_action(items, digest), the_action(items, effect.request_digest or digest))}
    changes: Changes = (
        (("effect", effect_id), effect),
        *((("action", key), structs.replace(action, effect_id=effect_id)) for key, action in about.items()),
        (("run", run.run_id), structs.replace(run, open_effects=with_id(run.open_effects, effect_id), sequence=sequence)),
    )
    if attributes.approval_id is None:
        return changes
    approval = known(approval_of(items, attributes.approval_id), draft)
    used = structs.replace(approval, effect_id=effect_id, sequence=sequence)
    return (*changes, (("approval", approval.approval_id), used))


def _effect_moved(items: Items, draft: Draft, sequence: int, accepted_at: int) -> Changes:
    attributes = read(draft, EffectAttributes)
    effect = known(effect_of(items, known(attributes.effect_id, draft)), draft)
    status = moved(life.EFFECT, draft, effect.status)
    if status != life.SETTLED:
        return ((("effect", effect.effect_id), structs.replace(effect, status=status, sequence=sequence)),)
    # A receipt that says nothing else is one of success.
    settled = structs.replace(effect, status=status, outcome=attributes.outcome or "succeeded", sequence=sequence)
    run = known(run_of(items, effect.run_id or ""), draft)
    less = structs.replace(run, open_effects=without_id(run.open_effects, effect.effect_id), sequence=sequence)
    return ((("effect", effect.effect_id), settled), (("run", run.run_id), less))


FOLDS: Final[dict[str, Fold | None]] = {
    "effect.dispatched": _effect_dispatched,
    "effect.receipt_accepted": _effect_moved,
    "effect.indeterminate": _effect_moved,
    "effect.reconciled": _effect_moved,
}
