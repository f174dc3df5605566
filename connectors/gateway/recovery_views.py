"""What a claim is answered with: the grant, and all that its worker goes on from. The words for it are `docs/recovery.md`'s."""

from msgspec import Struct, structs

from connectors.edge import fields as f
from connectors.gateway.answers import Answer
from connectors.gateway.answers import Sequence as Position
from connectors.gateway.changes import Done
from connectors.gateway.runs import AttemptGranted, granted_fields
from streams.session.outcomes import Recovery
from streams.session.pins import read_pin


class RunInputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the Run was accepted with. The content of its event at `accepted_sequence` is what was asked."""

    turn_id: f.TurnId | None
    thread_id: f.ThreadId | None
    lane: f.Name | None
    harness: f.Name | None
    harness_revision: f.Name | None
    environment_revision: f.Name | None
    accepted_sequence: Position


class PinnedContext(Struct, frozen=True, forbid_unknown_fields=True):
    """A recovery selects no newer context than this."""

    pin_kind: str
    revision: str | None
    digest: str | None


class UnavailableRange(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Between these positions content cannot be read. `session_id` names the ancestor whose they are; not given: the session's."""

    first_sequence: Position
    last_sequence: Position
    reason: str
    session_id: f.SessionId | None = None


class Restores(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each on its own: none of it stands for another. Nobody restores live processes. Null: not established here."""

    history: bool | None
    files: bool
    native_continuation: bool
    live_processes: bool = False


class RecoveryView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From what the worker goes on. `checkpoint_session_id`: of the session whose position `through_sequence` is."""

    mode: f.RecoveryMode
    reason: str | None
    checkpoint_id: f.CheckpointId | None
    checkpoint_session_id: f.SessionId | None
    through_sequence: Position
    through_event_id: f.EventId | None
    complete: bool
    unavailable: list[UnavailableRange]
    restores: Restores


class OpenEffectView(Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatched, or indeterminate, and without a settlement."""

    effect_id: f.EffectId
    status: str
    action_digest: f.Digest
    request_digest: f.Digest


class Claimed(AttemptGranted, kw_only=True, forbid_unknown_fields=True):
    """A grant with all that a worker goes on from. `frontier_sequence` is the session's committed position with the grant."""

    run: RunInputs
    pinned_context: list[PinnedContext]
    recovery: RecoveryView
    frontier_sequence: Position
    open_waits: list[f.WaitId]
    open_effects: list[OpenEffectView]


def claimed(done: Done) -> Answer:
    """Raises RuntimeError for a grant that tells of no recovery: the authority tells it with every claim."""
    grant = done.outcome.grant
    if grant is None or grant.recovery is None:
        raise RuntimeError(f"{done.outcome.command_id}: claimed without a recovery")
    found, inputs = grant.recovery, grant.recovery.inputs
    return done.told(
        200,
        Claimed,
        **granted_fields(grant),
        run=RunInputs(**structs.asdict(inputs)),
        pinned_context=[PinnedContext(*structs.astuple(read_pin(pin))) for pin in found.pins],
        recovery=_recovery(found),
        frontier_sequence=found.frontier_sequence,
        open_waits=list(found.open_waits),
        open_effects=[OpenEffectView(*structs.astuple(each)) for each in found.open_effects],
    )


def _recovery(found: Recovery) -> RecoveryView:
    return RecoveryView(
        mode=found.mode,
        reason=found.reason,
        checkpoint_id=found.checkpoint_id,
        checkpoint_session_id=found.checkpoint_session_id,
        through_sequence=found.through_sequence,
        through_event_id=found.through_event_id,
        complete=found.complete,
        unavailable=[
            UnavailableRange(first_sequence=each.first, last_sequence=each.last, reason=each.reason, session_id=each.session_id)
            for each in found.unavailable
        ],
        restores=Restores(history=found.history, files=found.files, native_continuation=found.native_continuation),
    )
