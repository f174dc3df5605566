"""What folds share: things that must be there, and statuses by the tables of `lifecycles`."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import structs

from streams.session import lifecycles as life
from streams.session.digests import canonical
from streams.session.events import Draft
from streams.session.items import ActionState, Changes, Items, RunState, actions_of, run_of

Fold = Callable[[Items, Draft, int, int], Changes]
"""Of the items as they are before the event, the event, its sequence, and when it was accepted (microseconds since the epoch)."""
T = TypeVar("T")


def known(item: T | None, draft: Draft) -> T:
    """Raises RuntimeError where no event has made it."""
    if item is None:
        raise RuntimeError(f"{draft.event_id}: {draft.type} of something that no event has made")
    return item


def moved(table: life.Transitions, draft: Draft, status: str) -> str:
    """The status after the event. Raises RuntimeError where there is none."""
    after = table[draft.type].get(status)
    if after is None:
        raise RuntimeError(f"{draft.event_id}: {draft.type} where the status is {status}")
    return after


def with_id(ids: tuple[str, ...], item_id: str) -> tuple[str, ...]:
    return (*ids, item_id)


def without_id(ids: tuple[str, ...], item_id: str) -> tuple[str, ...]:
    return tuple([other for other in ids if other != item_id])


def the_action(items: Items, digest: str) -> ActionState:
    """What is known under the digest, to be kept under its canonical spelling from now on."""
    known_so_far = actions_of(items, digest)
    return structs.replace(known_so_far[0] if known_so_far else ActionState(action_digest=digest), action_digest=canonical(digest))


def the_run(items: Items, draft: Draft) -> RunState:
    """The Run that the event names. Raises RuntimeError where there is none."""
    return known(run_of(items, known(draft.run_id, draft)), draft)
