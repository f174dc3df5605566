"""What the facts of recovery tell of the graph: attempts and what they replace and go on from, checkpoints, forks.

Only what a fact says: which checkpoint an attempt restored, that it was rebuilt from the log and why, what it replaces. That
two things lie near each other, in time or in order, says nothing (seed *Session execution graph*).
"""

from typing import Final

from streams.graph.items import (
    ATTEMPT,
    ATTEMPT_OF,
    CHECKPOINT,
    CONSUMED,
    FORKED_FROM,
    PRODUCED,
    REBUILT_FROM,
    REPLACES,
    SESSION,
    attempt_id,
)
from streams.graph.telling import ELSEWHERE, ENDPOINT_MISSING, HISTORY_UNAVAILABLE, NODE_MISSING, Telling, Tells
from streams.session import lifecycles as life
from streams.session.events import AttemptAttributes, CheckpointAttributes, SessionAttributes
from streams.session.words import REBUILD

ENDED: Final = (life.FAILED, life.FENCED, life.REPLACED)


def session_forked(telling: Telling) -> None:
    """Told in the source. The fork's own facts are in its own graph."""
    event, attributes = telling.event, telling.read(SessionAttributes)
    child = attributes.child_session_id
    if child is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(child, SESSION, fork_id=attributes.fork_id)
    telling.miss(ELSEWHERE, child, at=child)
    telling.draw(FORKED_FROM, child, event.session_id, **boundary(attributes))
    if attributes.checkpoint_id is not None:
        telling.draw(FORKED_FROM, child, attributes.checkpoint_id, **boundary(attributes))


def boundary(attributes: SessionAttributes | CheckpointAttributes) -> dict[str, int | str | None]:
    return {"through_sequence": attributes.through_sequence, "through_event_id": attributes.through_event_id}


def _attempt(telling: Telling) -> str | None:
    event = telling.event
    if event.run_id is None or event.attempt_generation is None:
        return None
    return attempt_id(event.run_id, event.attempt_generation)


def attempt_started(telling: Telling) -> None:
    event, identifier, attributes = telling.event, _attempt(telling), telling.read(AttemptAttributes)
    if identifier is None or event.run_id is None or event.attempt_generation is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(
        identifier,
        ATTEMPT,
        state=life.STARTED,
        kind=attributes.recovery_mode,
        harness_revision=attributes.harness_revision,
        environment_revision=attributes.environment_revision,
        digest=attributes.verification_digest,
    )
    telling.draw(ATTEMPT_OF, identifier, event.run_id)
    _replaced(telling, identifier, event.run_id, event.attempt_generation, attributes)
    if attributes.recovery_mode == REBUILD:
        telling.draw(REBUILT_FROM, identifier, event.session_id, reason=attributes.recovery_reason)
    if attributes.complete is False:
        telling.miss(HISTORY_UNAVAILABLE, at=identifier)


def _replaced(telling: Telling, identifier: str, run_id: str, generation: int, attributes: AttemptAttributes) -> None:
    """A replacement names what it replaces. Where none is named, the generation before is replaced once a fact has said that it
    ended: one that never was ready is replaced freely (design 02)."""
    if attributes.replaces is not None:
        replaced = attempt_id(run_id, attributes.replaces)
        telling.draw(REPLACES, identifier, replaced, through_sequence=attributes.frontier_sequence)
    elif generation > 1:
        before = telling.rows.node(attempt_id(run_id, generation - 1))
        if before is None:
            telling.miss(ENDPOINT_MISSING, attempt_id(run_id, generation - 1))
        elif before.state in ENDED:
            telling.draw(REPLACES, identifier, before.id)


def attempt_moved(state: str) -> Tells:
    def tell(telling: Telling) -> None:
        reason, task = telling.read(AttemptAttributes).reason, telling.event.native_task_id
        changed = {name: value for name, value in (("reason", reason), ("native_task_id", task)) if value is not None}
        telling.change(_attempt(telling), state=state, **changed)

    return tell


def checkpoint_created(telling: Telling) -> None:
    """One that its own attempt leaves, or one that a fork brought along from where it was made."""
    event, attributes = telling.event, telling.read(CheckpointAttributes)
    checkpoint_id = attributes.checkpoint_id
    if checkpoint_id is None:
        telling.miss(NODE_MISSING)
        return
    telling.make(
        checkpoint_id,
        CHECKPOINT,
        kind=attributes.continuation_kind,
        harness_revision=attributes.harness_revision,
        environment_revision=attributes.environment_revision,
        expires_at=attributes.expires_at,
        **boundary(attributes),
    )
    origin = attributes.origin_session_id
    if origin is None:
        telling.attach(PRODUCED, telling.worker, checkpoint_id)
    else:
        telling.name_session(origin)
        telling.draw(PRODUCED, origin, checkpoint_id)
    if attributes.fork_id is not None:
        telling.draw(FORKED_FROM, event.session_id, checkpoint_id, **boundary(attributes))


def checkpoint_consumed(telling: Telling) -> None:
    """By an attempt that restores it, or by the fork that its cause tells of."""
    attributes = telling.read(CheckpointAttributes)
    checkpoint_id = attributes.checkpoint_id
    if not telling.change(checkpoint_id) or checkpoint_id is None:
        return
    forks = [made for cause in telling.linked("cause") if (made := telling.rows.made_by(cause)) is not None]
    consumer = telling.worker if attributes.fork_id is None else next(iter(forks), None)
    if consumer is None:
        telling.miss(ENDPOINT_MISSING, attributes.fork_id)
    else:
        telling.draw(CONSUMED, consumer, checkpoint_id, **boundary(attributes))
