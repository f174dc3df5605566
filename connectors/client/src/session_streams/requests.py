"""What both clients send: one place where calls become requests. Remembers the positions that reads have to wait for."""

import re
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from session_streams.models import Answer, Body, Report, encoded, encoded_lines

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"
_SESSION: Final = re.compile(r"/v1/sessions/([^/?]+)")
_POSITIONS_MAX: Final = 10_000


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    waits_s: float = 0.0
    """How long the service may take beside what an attempt may take."""
    once: bool = False
    """An attempt that something may have come of is not followed by another."""


class Positions:
    """The position of the last change of each session, as far as this client made it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, str] = OrderedDict()

    def learn(self, request: Request, answer: Answer) -> None:
        position = answer.headers.get("session-streams-position")
        if request.method == "GET" or position is None:
            return
        match = _SESSION.match(request.path)
        session_id = match[1] if match is not None else answer.json().get("session_id")
        if isinstance(session_id, str):
            self._entries[session_id] = position
            self._entries.move_to_end(session_id)
            while len(self._entries) > _POSITIONS_MAX:
                self._entries.popitem(last=False)

    def headers_for(self, path: str) -> dict[str, str]:
        match = _SESSION.match(path)
        position = None if match is None else self._entries.get(match[1])
        return {} if position is None else {"session-streams-position": position}


def new_key() -> str:
    return uuid.uuid4().hex


def change(path: str, body: Body, *, key: str | None, expected_sequence: int | None = None, report: Report | None = None) -> Request:
    return Request("POST", path, _change_headers(key, JSON, expected_sequence, report), {}, encoded(body))


def append(session_id: str, event: Body, *, key: str | None, expected_sequence: int | None, report: Report | None) -> Request:
    return change(events_path(session_id), event, key=key, expected_sequence=expected_sequence, report=report)


def append_many(
    session_id: str, events: Iterable[Body | bytes], *, key: str | None, expected_sequence: int | None, report: Report | None
) -> Request:
    return Request("POST", events_path(session_id), _change_headers(key, NDJSON, expected_sequence, report), {}, encoded_lines(events))


def create_session(subject: str | None, metadata: Any, origin: str | None, *, key: str | None) -> Request:
    given = {"subject": subject, "metadata": metadata, "origin": origin}
    return change("/v1/sessions", {name: value for name, value in given.items() if value is not None}, key=key)


def page(session_id: str, after_sequence: int, limit: int) -> Request:
    return Request("GET", events_path(session_id), {}, {"after_sequence": str(after_sequence), "limit": str(limit)})


def listing(cursor: str | None, limit: int, subject_id: str | None) -> Request:
    given = {"cursor": cursor, "limit": str(limit), "subject_id": subject_id}
    return Request("GET", "/v1/sessions", {}, {name: value for name, value in given.items() if value is not None})


def stream(session_id: str, after_sequence: int, replay_only: bool) -> Request:
    """Resumes behind `after_sequence`."""
    params = {"replay_only": "true"} if replay_only else {}
    return Request("GET", events_path(session_id), {"accept": EVENT_STREAM, "last-event-id": str(after_sequence)}, params)


def general(
    method: str,
    path: str,
    body: Body | bytes | None,
    *,
    key: str | None,
    params: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
) -> Request:
    """Any route. A change gets a key where none is given; bytes go as they are and need a content-type in `headers`."""
    content = body if isinstance(body, bytes) or body is None else encoded(body)
    given = {} if content is None or isinstance(body, bytes) else {"content-type": JSON}
    if method != "GET":
        given["idempotency-key"] = key or new_key()
    path, _, query = path.partition("?")  # the HTTP client would drop it where there are parameters of ours
    named = {name.lower(): value for name, value in (headers or {}).items()}
    return Request(method, path, {**given, **named}, {**dict(parse_qsl(query, keep_blank_values=True)), **(params or {})}, content)


def session_path(session_id: str) -> str:
    return f"/v1/sessions/{quote(session_id, safe='')}"


def events_path(session_id: str) -> str:
    return session_path(session_id) + "/events"


def _change_headers(key: str | None, content_type: str, expected_sequence: int | None, report: Report | None) -> dict[str, str]:
    headers = {"content-type": content_type, "idempotency-key": key or new_key()}
    if expected_sequence is not None:
        headers["session-streams-expected-sequence"] = str(expected_sequence)
    if report is not None:
        headers["session-streams-report"] = report.header()
    return headers
