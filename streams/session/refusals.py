"""Why a session refuses: every stable code of the core, and how a refusal is worded.

A detail holds ids that the session knows, numbers, and names of fields; nothing that a request brought in free text.
"""

from typing import Final

from streams.session.days import moment
from streams.session.outcomes import Rejected

REQUEST_EXPIRED: Final = "request.expired"
INVALID: Final = "request.invalid"
NOT_FOUND: Final = "resource.not_found"
SESSION_CLOSED: Final = "runtime.session_closed"
SEQUENCE_CONFLICT: Final = "runtime.sequence_conflict"
ATTEMPT_FENCED: Final = "runtime.attempt_fenced"
POSITION_CONFLICT: Final = "runtime.position_conflict"
ALREADY_EXISTS: Final = "runtime.already_exists"
ALREADY_SETTLED: Final = "runtime.already_settled"
TRANSITION_REFUSED: Final = "runtime.transition_refused"
"""Neither settled nor possible from where the thing stands now."""
RUN_UNAVAILABLE: Final = "runtime.run_unavailable"
"""Nobody may work on this Run: it is imported, or not offered."""
NOT_CLAIMABLE: Final = "runtime.attempt_not_claimable"
"""Somebody works on this Run."""
REPLACEMENT_UNAVAILABLE: Final = "runtime.replacement_unavailable"
CHECKPOINT_EXPIRED: Final = "runtime.checkpoint_expired"
"""Or erased: there is nothing to recover from, and nothing else is taken in its place."""
CHECKPOINT_BOUNDARY: Final = "runtime.checkpoint_boundary"
"""Not a position of the session, or not one that the next checkpoint may have."""
HISTORY_UNAVAILABLE: Final = "runtime.session_history_unavailable"
EFFECT_INDETERMINATE: Final = "runtime.effect_indeterminate"
EFFECT_IN_FLIGHT: Final = "runtime.effect_in_flight"
"""Its attempt may still report a receipt: only that attempt may settle it."""
APPROVAL_REQUIRED: Final = "runtime.approval_required"
APPROVAL_MISMATCH: Final = "runtime.approval_mismatch"
APPROVAL_EXPIRED: Final = "runtime.approval_expired"
APPROVAL_USED: Final = "runtime.approval_used"
WAIT_EXPIRED: Final = "runtime.wait_expired"
STEERING_UNAVAILABLE: Final = "runtime.steering_unavailable"
HANDOFF_UNAVAILABLE: Final = "runtime.handoff_unavailable"
LIMIT_REACHED: Final = "runtime.limit_reached"


def invalid(index: int, field: str) -> Rejected:
    """`field` of the `index`-th draft holds what it may not."""
    return Rejected(INVALID, f"draft {index}: {field}")


def not_found(index: int, field: str) -> Rejected:
    """`field` of the `index`-th draft names nothing that the session has."""
    return Rejected(NOT_FOUND, f"draft {index}: {field}")


def settled(item_id: str, status: str) -> Rejected:
    return Rejected(ALREADY_SETTLED, f"{item_id} is {status}")


def exists(item_id: str) -> Rejected:
    return Rejected(ALREADY_EXISTS, item_id)


def history_unavailable(ranges: tuple[str, ...]) -> Rejected:
    """`ranges` as `history.worded` has them, the first of them first: at least one."""
    return Rejected(HISTORY_UNAVAILABLE, f"first unavailable: {ranges[0]}", missing=ranges)


def fenced(run_id: str, generation: int, *, over: bool = False) -> Rejected:
    """`generation` is the Run's current one; `over`: it is the one that was named, and it has ended."""
    return Rejected(ATTEMPT_FENCED, f"{run_id}: generation {generation} is over" if over else f"{run_id} is at generation {generation}")


def expired(code: str, item_id: str, expires_at: int | None) -> Rejected:
    """`expires_at` in microseconds since the epoch, where the thing has one."""
    return Rejected(code, f"{item_id} expired" if expires_at is None else f"{item_id} expired at {moment(expires_at)}")
