"""The transport over REST: what an import needs, said with the client, and its errors in the service's own words."""

from typing import TypeVar

import msgspec
from msgspec import Raw

from connectors.sources.transport import Appended, DeadLetterBody, EventPage, SessionBody, SessionRow
from session_streams import (
    Answer,
    ApiError,
    AsyncClient,
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    RateLimited,
    Retries,
    Unauthenticated,
    Unavailable,
)
from streams import errors
from streams.session.outcomes import Rejected

T = TypeVar("T")

_SESSIONS = "/v1/sessions"
_NDJSON = {"content-type": "application/x-ndjson"}
_JSON = {"content-type": "application/json"}


class RestTransport:
    """A `connectors.sources.transport.Transport`. Belongs to one event loop; `close` it, or use it as a context."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    @classmethod
    def connect(cls, url: str, api_key: str) -> "RestTransport":
        # The import itself is patient; the client need not be.
        return cls(AsyncClient(url, api_key, retries=Retries(total_s=5.0)))

    async def open_session(self, key: str, *, subject: str | None, metadata: Raw) -> SessionRow:
        body = msgspec.json.encode(SessionBody("imported", metadata, subject))
        try:
            answer = await self._client.request("POST", _SESSIONS, body, key=key, headers=_JSON)
        except Conflict as refused:
            # Made so long ago that its key is forgotten; the session is the same.
            if refused.code != "runtime.already_exists" or refused.session_id is None:
                raise _translated(refused) from refused
            return await self._row(refused.session_id)
        except (ApiError, ConnectionFailed) as failed:
            raise _translated(failed) from failed
        opened = _decoded(answer, SessionRow)
        return await self._row(opened.session_id) if answer.repeated else opened

    async def append(self, session_id: str, key: str, body: bytes, *, expected_sequence: int) -> Appended | Rejected:
        headers = {**_NDJSON, "session-streams-expected-sequence": str(expected_sequence)}
        try:
            answer = await self._client.request("POST", f"{_SESSIONS}/{session_id}/events", body, key=key, headers=headers)
        except Conflict as refused:
            if not refused.code.startswith("runtime."):
                raise _translated(refused) from refused
            return Rejected(refused.code, refused.detail, refused.actual_sequence, refused.actual_run_sequence)
        except (ApiError, ConnectionFailed) as failed:
            raise _translated(failed) from failed
        return _decoded(answer, Appended)

    async def events(self, session_id: str, *, after_sequence: int, limit: int) -> EventPage:
        params = {"after_sequence": str(after_sequence), "limit": str(limit)}
        return _decoded(await self._get(f"{_SESSIONS}/{session_id}/events", params), EventPage)

    async def dead_letter(self, session_id: str, key: str, letter: DeadLetterBody) -> None:
        body = msgspec.json.encode(letter)
        try:
            await self._client.request("POST", f"{_SESSIONS}/{session_id}/dead-letters", body, key=key, headers=_JSON)
        except (ApiError, ConnectionFailed) as failed:
            raise _translated(failed) from failed

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> "RestTransport":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _row(self, session_id: str) -> SessionRow:
        return _decoded(await self._get(f"{_SESSIONS}/{session_id}"), SessionRow)

    async def _get(self, path: str, params: dict[str, str] | None = None) -> Answer:
        try:
            return await self._client.request("GET", path, params=params)
        except (ApiError, ConnectionFailed) as failed:
            raise _translated(failed) from failed


def _decoded(answer: Answer, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise errors.StreamsError(f"an answer that is no {kind.__name__}: {error}") from error


def _translated(failed: ApiError | ConnectionFailed) -> errors.StreamsError:
    match failed:
        case ConnectionFailed():
            return errors.OutcomeUnknown(str(failed))
        case RateLimited() | Unavailable():
            return errors.Retriable(failed.detail, retry_after_s=float(failed.retry_after or 1), code=failed.code)
        case Unauthenticated() | Forbidden():
            return errors.NotPermitted(failed.detail, code=failed.code)
        case NotFound():
            return errors.NotFound(failed.detail, code=failed.code)
    return errors.Invalid(failed.detail, code=failed.code)
