"""What can go wrong, by what the caller does next.

SessionStreamsError
  ConnectionFailed     no answer within the time for retries; a change may have taken effect: same key again
  ApiError             the service refused
    Unauthenticated    401  another key
    Forbidden          403  a key with more scopes
    NotFound           404  nothing there, or nothing for this key
    Conflict           409  the session refuses: look at `code` and the actual positions
    TooLarge           413  less at once
    Invalid            400, 415, 422 and other 4xx  change the request
    RateLimited        429  slower; raised once the time for retries is over
    Unavailable        5xx  later; raised once the time for retries is over
  ExportChanged        what comes does not continue the export that was begun: begin it anew
  DigestMismatch       what was downloaded is not what was expected: throw it away
  KeptElsewhere        a provider keeps the snapshot: ask it for `reference`
  ErasureTakesLonger   an erasure goes on after you stopped waiting: look again later
"""

import json
from collections.abc import Mapping


class SessionStreamsError(Exception):
    """Base of everything that this package raises on purpose."""


class ConnectionFailed(SessionStreamsError):
    """The service did not answer. Whether a change took effect is not known; the same key finds out."""


class ExportChanged(SessionStreamsError):
    """An export is not continued as it was begun, or what came is none."""


class DigestMismatch(SessionStreamsError):
    """What was downloaded has another digest than the one that was expected."""


class KeptElsewhere(SessionStreamsError):
    """The snapshot is not with the service: `provider` keeps it under `reference`."""

    def __init__(self, provider: str, reference: str) -> None:
        super().__init__(f"{provider} keeps the snapshot")
        self.provider, self.reference = provider, reference


class ErasureTakesLonger(SessionStreamsError):
    """It goes on all the same. `awaited` has the holders that have not confirmed."""

    def __init__(self, erasure_id: str, status: str, awaited: tuple[str, ...]) -> None:
        rest = f", awaiting {', '.join(awaited)}" if awaited else ""
        super().__init__(f"{erasure_id} is {status}{rest}")
        self.erasure_id, self.status, self.awaited = erasure_id, status, awaited


class ApiError(SessionStreamsError):
    """A refusal. `code` is stable; the positions are there where they help; `missing` names everything that is lacking, where that may
    be several things."""

    def __init__(self, status: int, problem: Mapping[str, object]) -> None:
        self.status = status
        self.code = str(problem.get("code", "unknown"))
        self.detail = str(problem.get("detail", ""))
        self.session_id = _text(problem.get("session_id"))
        self.actual_sequence = _number(problem.get("actual_sequence"))
        self.actual_run_sequence = _number(problem.get("actual_run_sequence"))
        self.retry_after = _number(problem.get("retry_after"))
        self.actual_state_hash = _text(problem.get("actual_state_hash"))
        missing = problem.get("missing")
        self.missing = tuple(map(str, missing)) if isinstance(missing, list) else ()
        super().__init__(f"{status} {self.code}: {self.detail}")


class Unauthenticated(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class TooLarge(ApiError):
    pass


class Invalid(ApiError):
    pass


class RateLimited(ApiError):
    pass


class Unavailable(ApiError):
    pass


_BY_STATUS = {401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 413: TooLarge, 429: RateLimited}


def error_of(status: int, body: bytes) -> ApiError:
    """The error that an answer of 400 and above stands for; one that is of neither form keeps its status."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    kind = _BY_STATUS.get(status, Invalid if status < 500 else Unavailable)
    return kind(status, _flat(problem) if isinstance(problem, dict) else {})


def _flat(problem: dict[str, object]) -> dict[str, object]:
    """Agent checkpoints refuse with {"error": {"code", "message"}, "meta"}, everything else with a problem+json."""
    told, meta = problem.get("error"), problem.get("meta")
    if not isinstance(told, dict):
        return problem
    return {**(meta if isinstance(meta, dict) else {}), **told, "detail": told.get("message", "")}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
