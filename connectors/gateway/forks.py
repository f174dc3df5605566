"""Forks a session, by checkpoint or at an event: a session of its own whose past is that of its source, by reference.

The source's authority decides, and begins the child itself; the answer waits until the child can be read. A fork under the same
Idempotency-Key is the same child.
"""

import asyncio
import time
from typing import Final

from msgspec import structs

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent, SessionFacts
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Changed
from connectors.gateway.answers import Sequence as Position
from connectors.gateway.boundaries import event_at, outside
from connectors.gateway.call import Call
from connectors.gateway.changes import append_one
from connectors.gateway.checkpoints import checkpoint_of
from connectors.gateway.recovery_views import Restores
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.errors import ContentUnavailable, Invalid, NotFound, ProjectionBehind, StreamsError
from streams.projections.checkpoints import CheckpointRow
from streams.session import refusals
from streams.session.commands import Kind
from streams.session.events import Event, SessionAttributes
from streams.session.words import NATIVE, NO_SNAPSHOT

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.2


class Forked(Changed, kw_only=True, forbid_unknown_fields=True):
    """`session_id` is the child, `sequence` and `position` are of the source. The child is there to be read and written."""

    fork_id: f.ForkId
    source_session_id: f.SessionId
    through_sequence: Position
    through_event_id: f.EventId
    restores: Restores


async def fork(gateway: Gateway, call: Call, body: bodies.ForkSession) -> Answer:
    if (body.checkpoint_id is None) == (body.at_event is None):
        raise Invalid("exactly one of checkpoint_id and at_event is required")
    source_id = call.path["session_id"]
    facts = await gateway.facts_of(call, source_id)
    await _require_not_erased(gateway, facts, body)
    checkpoint = None
    if body.checkpoint_id is not None:
        checkpoint = await checkpoint_of(gateway, call, source_id, body.checkpoint_id)
    through = await _through(gateway, call, source_id, body, checkpoint)
    policy = gateway.policies.of(facts.workspace_id)

    def event(naming: Naming) -> NewEvent:
        attributes = SessionAttributes(
            fork_id=naming.of("fork"),
            checkpoint_id=body.checkpoint_id,
            through_sequence=through.sequence,
            through_event_id=through.event_id,
            source_hash=through.hash.hex(),
            policy_mode=policy.mode,
            content_window_days=policy.content_window_days,
            checkpoint_window_s=policy.checkpoint_window_s,
        )
        return NewEvent(type="session.forked", attributes=attributes)

    done = await append_one(gateway, call, event, kind=Kind.FORK)
    child_id = done.naming.of("sess")
    await _readable(gateway, call, child_id)
    return structs.replace(done, facts=structs.replace(facts, session_id=child_id)).told(
        201,
        Forked,
        fork_id=done.naming.of("fork"),
        source_session_id=source_id,
        through_sequence=through.sequence,
        through_event_id=through.event_id,
        restores=_restores(checkpoint),
    )


async def _through(gateway: Gateway, call: Call, source_id: str, body: bodies.ForkSession, checkpoint: CheckpointRow | None) -> Event:
    """The last event that the child has from its source. Raises `Invalid`, `NotFound`, and what `event_at` raises."""
    if checkpoint is not None:
        own = checkpoint.origin_session_id == source_id
        # One that a fork brought along stands for everything up to where the session tells of it.
        sequence = checkpoint.through_sequence if own else checkpoint.sequence
        if body.through_sequence not in (None, sequence):
            raise outside(f"through_sequence: {checkpoint.checkpoint_id} is at {sequence}")
        return await event_at(gateway, call, source_id, sequence)
    assert body.at_event is not None
    through_sequence = body.through_sequence
    if through_sequence is None:
        principal = call.principal
        through_sequence = await gateway.owners.event_named(
            principal.workspace_id, source_id, body.at_event, subject_id=principal.subject_id,
            position=call.position(), wait_s=gateway.limits.position_wait_s,
        )  # fmt: skip
    found = await event_at(gateway, call, source_id, through_sequence)
    if found.event_id != body.at_event:
        raise outside(f"at_event: {found.event_id} stands at {through_sequence}")
    return found


def _restores(checkpoint: CheckpointRow | None) -> Restores:
    if checkpoint is None:
        return Restores(history=True, files=False, native_continuation=False)
    native = checkpoint.continuation_kind == NATIVE
    # Who goes on natively need not read what lies before, so nobody has looked whether it can be read: the child's claim says.
    return Restores(history=None if native else True, files=checkpoint.snapshot_kind != NO_SNAPSHOT, native_continuation=native)


async def _require_not_erased(gateway: Gateway, facts: SessionFacts, body: bodies.ForkSession) -> None:
    """The authority says the same once it is told of an erasure, a moment later. Raises `StreamsError`, `KeyringUnavailable`."""
    try:
        await gateway.require_not_erased(facts, (facts.session_id,))
    except ContentUnavailable as error:
        code = refusals.HISTORY_UNAVAILABLE if body.checkpoint_id is None else refusals.CHECKPOINT_EXPIRED
        raise StreamsError(f"{facts.session_id}: {error.detail}", code=code) from None


async def _readable(gateway: Gateway, call: Call, child_id: str) -> None:
    """Raises `ProjectionBehind` where the child is not there in time: the fork stands, and the same request finds it."""
    principal = call.principal
    until_s = time.monotonic() + gateway.limits.position_wait_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            await gateway.owners.session(principal.workspace_id, child_id, subject_id=principal.subject_id)
            return
        except NotFound:
            if time.monotonic() + pause_s >= until_s:
                raise ProjectionBehind(f"{child_id} cannot be read yet", retry_after_s=1) from None
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


ROUTES = (
    Route(
        method="POST", path="/v1/sessions/{session_id}/forks", name="fork_session", summary="Fork a session, by checkpoint or at an event",
        handler=fork, scope="sessions:write", body=bodies.ForkSession, answer=Forked, status=201, change=True,
        refusals=(
            "runtime.checkpoint_expired", "runtime.checkpoint_boundary", "runtime.session_history_unavailable", "runtime.limit_reached",
        ),
    ),
)  # fmt: skip
