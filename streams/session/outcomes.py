"""Outcomes: what a command led to. A rejection is a value, not an exception: it is recorded and told again."""

from typing import Final

from msgspec import Struct

ACCEPTED: Final = "accepted"
REJECTED: Final = "rejected"


class Unavailable(Struct, frozen=True, gc=False):
    """Positions between which content cannot be read (`reason`: content.expired, content.erased, content.omitted).

    `session_id` names the ancestor whose positions they are; None: the session's own.
    """

    first: int
    last: int
    reason: str
    session_id: str | None = None


class OpenEffect(Struct, frozen=True, gc=False):
    """An effect without a settlement: `status` is dispatched or indeterminate."""

    effect_id: str
    status: str
    action_digest: str
    request_digest: str


class Inputs(Struct, frozen=True, gc=False):
    """What the Run was accepted with; the content of its event `accepted_sequence` is what was asked."""

    accepted_sequence: int
    turn_id: str | None = None
    thread_id: str | None = None
    lane: str | None = None
    harness: str | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None


class Recovery(Struct, frozen=True, gc=False, kw_only=True):
    """From what a worker goes on (design 02, "Recovery"): history, files and native state are told apart.

    `through_sequence` is the boundary of the checkpoint, in `checkpoint_session_id`; 0 without one. `frontier_sequence` is the
    session's committed position with the grant. Nobody restores live processes.
    """

    mode: str
    reason: str | None
    checkpoint_id: str | None
    checkpoint_session_id: str | None
    through_sequence: int
    through_event_id: str | None
    complete: bool
    unavailable: tuple[Unavailable, ...]
    history: bool
    files: bool
    native_continuation: bool
    frontier_sequence: int
    pins: tuple[str, ...]
    open_waits: tuple[str, ...]
    open_effects: tuple[OpenEffect, ...]
    inputs: Inputs


class Grant(Struct, frozen=True, gc=False):
    """What a claim or a renewal gave. `run_sequence` is the Run position that the worker starts from; `recovery` is a claim's."""

    run_id: str
    generation: int
    native_task_id: str
    lease_expires_at: int
    run_sequence: int
    recovery: Recovery | None = None


class Rejected(Struct, frozen=True, gc=False):
    """Why a command was refused: a stable `code` of the interface, and a detail that holds ids and numbers only.

    `missing` names everything that is lacking, where that may be several things.
    """

    code: str
    detail: str
    actual_sequence: int | None = None
    actual_run_sequence: int | None = None
    missing: tuple[str, ...] = ()


class Outcome(Struct, frozen=True, gc=False, kw_only=True):
    """As `schemas/outcomes.v1.avsc`. `position_offset` is -1 where there is no event of the session to wait for.

    `decided_at` of an accepted command is when its events were accepted, which a clock that is set back does not lower. In microseconds
    since the epoch, UTC.
    """

    command_id: str
    correlation: int
    session_id: str
    status: str
    code: str | None = None
    detail: str | None = None
    first_sequence: int = 0
    last_sequence: int = 0
    position_offset: int = -1
    decided_at: int
    repeated: bool = False
    grant: Grant | None = None
    actual_run_sequence: int | None = None
    missing: tuple[str, ...] = ()
