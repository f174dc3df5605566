"""Outcomes: what a command led to. A rejection is a value, not an exception: it is recorded and told again."""

from typing import Final

from msgspec import Struct

ACCEPTED: Final = "accepted"
REJECTED: Final = "rejected"


class Grant(Struct, frozen=True, gc=False):
    """What a claim or a renewal gave. `run_sequence` is the Run position that the worker starts from."""

    run_id: str
    generation: int
    native_task_id: str
    lease_expires_at: int
    run_sequence: int


class Rejected(Struct, frozen=True, gc=False):
    """Why a command was refused: a stable `code` of the interface, and a detail that holds ids and numbers only."""

    code: str
    detail: str
    actual_sequence: int | None = None
    actual_run_sequence: int | None = None


class Outcome(Struct, frozen=True, gc=False, kw_only=True):
    """As `schemas/outcomes.v1.avsc`. `position_offset` is -1 where there is no event of the session to wait for."""

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
