"""What the authority appends itself, at once after the event that it follows from.

attempt.started, of a Run that was only accepted     => run.started
wait.opened, of a running Run                        => run.waiting
wait.answered | wait.expired, the Run's last open    => run.resumed
attempt.failed | replaced | fenced,
run.completed | failed | cancelled                   => effect.indeterminate, for each effect without a receipt:
                                                        nobody is left who could report one
"""

from collections.abc import Callable, Iterator
from typing import Final

from streams.session.events import Draft, EffectAttributes, Link
from streams.session.items import RunState, attempt_of, effect_of, run_of
from streams.session.lifecycles import ACCEPTED, DISPATCHED, RUNNING, WAITING
from streams.session.work import AUTHORITY, Work

Consequence = Callable[[Work, Draft, RunState], Iterator[Draft]]


def append(work: Work, draft: Draft, origin: int = AUTHORITY) -> None:
    """Accepts a draft and what follows from it."""
    work.append(draft, origin)
    consequence = AFTER.get(draft.type)
    if consequence is None or draft.run_id is None:
        return
    run = run_of(work, draft.run_id)
    if run is not None:
        # Collected before the first is accepted: they follow from the draft, not from each other.
        for following in tuple(consequence(work, draft, run)):
            append(work, following)


def _run_started(work: Work, draft: Draft, run: RunState) -> Iterator[Draft]:
    if run.status == ACCEPTED:
        attempt = attempt_of(work, run.run_id)
        native_task_id = None if attempt is None else attempt.native_task_id or None
        links = (Link("cause", draft.event_id),)
        yield work.make("run.started", run, links=links, generation=run.generation, native_task_id=native_task_id)


def _run_waiting(work: Work, draft: Draft, run: RunState) -> Iterator[Draft]:
    if run.status == RUNNING:
        yield work.make("run.waiting", run, links=(Link("cause", draft.event_id), *_waits(run)))


def _run_resumed(work: Work, draft: Draft, run: RunState) -> Iterator[Draft]:
    if run.status == WAITING and not run.open_waits:
        yield work.make("run.resumed", run, links=(Link("cause", draft.event_id),))


def _waits(run: RunState) -> tuple[Link, ...]:
    return tuple([Link("wait", wait_id) for wait_id in run.open_waits])


def _effects_indeterminate(work: Work, draft: Draft, run: RunState) -> Iterator[Draft]:
    for effect_id in run.open_effects:
        effect = effect_of(work, effect_id)
        if effect is not None and effect.status == DISPATCHED:
            yield work.make(
                "effect.indeterminate",
                run,
                EffectAttributes(effect_id=effect_id, action_digest=effect.action_digest),
                links=(Link("cause", draft.event_id), Link("effect", effect_id)),
                generation=effect.attempt_generation,
            )


AFTER: Final[dict[str, Consequence]] = {
    "attempt.started": _run_started,
    "attempt.failed": _effects_indeterminate,
    "attempt.replaced": _effects_indeterminate,
    "attempt.fenced": _effects_indeterminate,
    "run.completed": _effects_indeterminate,
    "run.failed": _effects_indeterminate,
    "run.cancelled": _effects_indeterminate,
    "wait.opened": _run_waiting,
    "wait.answered": _run_resumed,
    "wait.expired": _run_resumed,
}
