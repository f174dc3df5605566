"""What goes wrong on these routes, in the words of their contract (page 06, 1.4)."""

from typing import Any

from streams.errors import ContentUnavailable, Invalid, NotFound, NotPermitted, Retriable, StreamsError


class Failure(Exception):
    """Answered as `{"error":{"code","message"},"meta":{"request_id", **meta}}`."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: list[tuple[bytes, bytes]] | None = None, meta: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers, self.meta = headers or [], meta or {}


def invalid(message: str) -> Failure:
    return Failure(400, "VALIDATION_ERROR", message)


def unauthenticated() -> Failure:
    return Failure(401, "UNAUTHENTICATED", "Credential is missing or invalid.")


def not_found() -> Failure:
    """Alike for what never was, expired, is erased, or is somebody else's."""
    return Failure(404, "NOT_FOUND", "Resource was not found.")


def keeps_no_content() -> Failure:
    """A state is content, and a workspace under zero data retention takes none in (design 04, "Policies")."""
    return Failure(403, "FORBIDDEN", "This workspace keeps no content, so it keeps no state of agents.")


def no_such_route() -> Failure:
    return Failure(404, "NOT_FOUND", "Unknown endpoint.")


def no_such_method(allowed: list[str]) -> Failure:
    return Failure(405, "METHOD_NOT_ALLOWED", f"Allowed methods: {', '.join(sorted(allowed))}.")


def internal() -> Failure:
    return Failure(500, "INTERNAL", "Request could not be completed.")


def of_error(error: StreamsError) -> Failure:
    """Ours told as theirs. What they have no word for keeps its status and says what to do."""
    if isinstance(error, Retriable):
        headers = [(b"retry-after", str(max(1, round(error.retry_after_s + 0.5))).encode())]
        if error.code == "request.rate_limited":
            return Failure(429, "RATE_LIMITED", "Too many requests.", headers=headers)
        return Failure(503, "UNAVAILABLE", "Storage is unavailable.", headers=headers)
    if isinstance(error, Invalid) and error.code in _UNREAD:
        # The rest of the body is not read, so the connection cannot carry another request.
        return Failure(*_UNREAD[error.code], headers=[(b"connection", b"close")])
    if isinstance(error, NotPermitted):
        return unauthenticated()
    if isinstance(error, (NotFound, ContentUnavailable)):
        return not_found()
    return internal()


_UNREAD = {
    "request.too_large": (413, "PAYLOAD_TOO_LARGE", "Request body is too large."),
    "request.timeout": (408, "REQUEST_TIMEOUT", "Request body did not arrive in time."),
}
