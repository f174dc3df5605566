"""One table: stable codes -> HTTP status. Every refusal leaves as `application/problem+json` (RFC 9457).

A code that is not in the table is answered as 500 `service.internal`: whoever adds a code adds a line here.
"""

from typing import Final

import msgspec
from msgspec import Struct

from connectors.gateway.answers import Answer
from streams.errors import Retriable, StreamsError
from streams.session.outcomes import Outcome

MEDIA_TYPE: Final = "application/problem+json"

STATUS: Final[dict[str, int]] = {
    "request.malformed": 400,
    "auth.missing": 401,
    "auth.invalid": 401,
    "auth.not_yet_valid": 401,
    "auth.expired": 401,
    "auth.revoked": 401,
    "auth.forbidden": 403,
    "auth.scope": 403,
    "auth.subject": 403,
    "resource.not_found": 404,
    "request.method_not_allowed": 405,
    "request.timeout": 408,
    "request.idempotency_mismatch": 409,
    "runtime.session_closed": 409,
    "runtime.sequence_conflict": 409,
    "runtime.attempt_fenced": 409,
    "runtime.position_conflict": 409,
    "runtime.already_exists": 409,
    "runtime.already_settled": 409,
    "runtime.transition_refused": 409,
    "runtime.attempt_not_claimable": 409,
    "runtime.run_unavailable": 409,
    "runtime.replacement_unavailable": 409,
    "runtime.effect_indeterminate": 409,
    "runtime.effect_in_flight": 409,
    "runtime.approval_required": 409,
    "runtime.approval_mismatch": 409,
    "runtime.approval_expired": 409,
    "runtime.approval_used": 409,
    "runtime.wait_expired": 409,
    "runtime.steering_unavailable": 409,
    "runtime.handoff_unavailable": 409,
    "runtime.limit_reached": 409,
    "runtime.checkpoint_expired": 409,
    "runtime.checkpoint_boundary": 409,
    "runtime.session_history_unavailable": 409,
    "runtime.session_not_idle": 409,
    "runtime.wait_open": 409,
    "runtime.capsule_ineligible": 409,
    "runtime.secret_found": 409,
    "runtime.checkpoint_not_native": 409,
    # The session or its subject is erased: nothing may be sealed for it any more.
    "content.erased": 409,
    "content.expired": 409,
    "request.too_large": 413,
    "request.unsupported_media_type": 415,
    "request.invalid": 422,
    "graph.too_large": 422,
    "request.rate_limited": 429,
    "service.internal": 500,
    # Not decided in time, so nothing came of it: the same request may be sent again.
    "request.expired": 503,
    "service.unavailable": 503,
    "service.not_ready": 503,
    "service.broker_unavailable": 503,
    "service.not_owner": 503,
    "service.projection_behind": 503,
    "service.overloaded": 503,
    "service.keyring_unavailable": 503,
    "service.blob_store_unavailable": 503,
    "service.registry_unavailable": 503,
    "service.outcome_unknown": 503,
}

TITLES: Final = {
    400: "Malformed request",
    401: "Not authenticated",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timed out",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal error",
    503: "Try again",
}


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Why a request was refused. `code` is stable; `detail` is for people and holds ids, names and limits only. `missing` names
    everything that is lacking, where that may be several things: evidence of a replacement, ranges of a history, what is yet to settle."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    session_id: str | None = None
    actual_sequence: int | None = None
    actual_run_sequence: int | None = None
    retry_after: int | None = None
    missing: tuple[str, ...] = ()


class Lacking(StreamsError):
    """A refusal of the gateway's own that names everything that is missing."""

    def __init__(self, detail: str, *, code: str, missing: tuple[str, ...]) -> None:
        super().__init__(detail, code=code)
        self.missing = missing


def status_of(code: str) -> int:
    if code in STATUS:
        return STATUS[code]
    return 409 if code.startswith("runtime.") else 500


def answer_to(error: StreamsError) -> Answer:
    """The answer to an error of ours. Internal ones tell their code and nothing of their detail."""
    status = status_of(error.code)
    code, detail = (error.code, error.detail) if status != 500 else ("service.internal", "see the log of the service")
    wait_s = error.retry_after_s if isinstance(error, Retriable) else 1.0
    return _answer(status, code, detail, retry_after_s=wait_s, missing=error.missing if isinstance(error, Lacking) else ())


def answer_to_refusal(outcome: Outcome) -> Answer:
    """The answer to a recorded rejection."""
    code = outcome.code or "service.internal"
    return _answer(
        status_of(code),
        code,
        outcome.detail or "",
        session_id=outcome.session_id,
        actual_sequence=outcome.last_sequence if code == "runtime.sequence_conflict" else None,
        actual_run_sequence=outcome.actual_run_sequence,
        missing=outcome.missing,
        headers=[(b"session-streams-repeated", b"true")] if outcome.repeated else [],
    )


def _answer(
    status: int,
    code: str,
    detail: str,
    *,
    session_id: str | None = None,
    actual_sequence: int | None = None,
    actual_run_sequence: int | None = None,
    retry_after_s: float = 1.0,
    missing: tuple[str, ...] = (),
    headers: list[tuple[bytes, bytes]] | None = None,
) -> Answer:
    headers = list(headers or [])
    retry_after = None
    if status in (429, 503):
        retry_after = max(1, round(retry_after_s + 0.5))
        headers.append((b"retry-after", str(retry_after).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="session-streams"'))
    if status in (408, 413):
        # The rest of the body is not read, so the connection cannot carry another request.
        headers.append((b"connection", b"close"))
    problem = Problem(
        type=f"urn:session-streams:problem:{code}",
        title=TITLES.get(status, "Error"),
        status=status,
        code=code,
        detail=detail,
        session_id=session_id,
        actual_sequence=actual_sequence,
        actual_run_sequence=actual_run_sequence,
        retry_after=retry_after,
        missing=missing,
    )
    return Answer(status, msgspec.json.encode(problem), headers, MEDIA_TYPE)
