"""The REST transport: its requests, and the service's refusals in the service's own words."""

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from msgspec import Raw

from connectors.sources.rest import RestTransport
from connectors.sources.transport import Appended, Cursor, DeadLetterBody, SessionRow
from session_streams import AsyncClient, Retries
from streams.errors import Invalid, NotFound, NotPermitted, OutcomeUnknown, Retriable, StreamsError
from streams.session.outcomes import Rejected

SESSION = "sess_" + "7" * 32
ROW = {"session_id": SESSION, "sequence": 9, "source": {"kind": "claude-code", "index": 4, "digest": "sha256:ab"}, "status": "open"}

Handler = Callable[[httpx.Request], httpx.Response]


def run(handler: Handler, call: Callable[[RestTransport], Coroutine[Any, Any, Any]]) -> Any:
    async def scenario() -> Any:
        client = AsyncClient("http://service", "sks_key", retries=Retries(total_s=0), transport=httpx.MockTransport(handler))
        async with RestTransport(client) as transport:
            return await call(transport)

    return asyncio.run(scenario())


def problem(status: int, code: str, **more: object) -> httpx.Response:
    return httpx.Response(status, json={"code": code, "detail": "why", "status": status, **more})


def opened(transport: RestTransport) -> Coroutine[Any, Any, SessionRow]:
    return transport.open_session("import:k", subject="mia_li_3668", metadata=Raw(b'{"n":9007199254740993}'))


def appended(transport: RestTransport) -> Coroutine[Any, Any, Appended | Rejected]:
    return transport.append(SESSION, "import:k", b'{"type":"artifact.recorded"}\n', expected_sequence=9)


def test_a_new_session_is_opened_as_imported_and_needs_no_second_look() -> None:
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(201, json={"session_id": SESSION, "sequence": 1, "position": "t:0:1"})

    assert run(handler, opened) == SessionRow(session_id=SESSION, sequence=1)
    (request,) = asked
    assert request.headers["idempotency-key"] == "import:k"
    assert b'"metadata":{"n":9007199254740993}' in request.content
    assert json.loads(request.content) == {"origin": "imported", "subject": "mia_li_3668", "metadata": {"n": 9007199254740993}}


@pytest.mark.parametrize("repeated", [True, False])
def test_a_session_that_is_there_is_read_for_its_cursor(repeated: bool) -> None:
    """Its key is remembered, or was forgotten long ago: either way the same session is gone on with."""

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            assert request.url.path == f"/v1/sessions/{SESSION}"
            return httpx.Response(200, json=ROW)
        if repeated:
            made = {"session_id": SESSION, "sequence": 1, "position": "t:0:1"}
            return httpx.Response(201, json=made, headers={"session-streams-repeated": "true"})
        return problem(409, "runtime.already_exists", session_id=SESSION)

    assert run(handler, opened) == SessionRow(session_id=SESSION, sequence=9, source=Cursor("claude-code", 4, "sha256:ab"))


def test_an_append_names_the_sequence_that_it_expects() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["session-streams-expected-sequence"] == "9"
        assert request.headers["content-type"] == "application/x-ndjson"
        ids = ["evt_" + "1" * 32]
        return httpx.Response(200, json={"first_sequence": 10, "last_sequence": 11, "event_ids": ids, "sequence": 11, "position": "p"})

    assert run(handler, appended) == Appended(last_sequence=11, event_ids=("evt_" + "1" * 32,))


def test_what_the_session_refuses_is_a_value_with_where_it_stands() -> None:
    answer = run(lambda _: problem(409, "runtime.sequence_conflict", actual_sequence=12), appended)
    assert answer == Rejected("runtime.sequence_conflict", "why", 12, None)


@pytest.mark.parametrize("call", [opened, appended])
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "request.malformed", Invalid),
        (401, "auth.invalid", NotPermitted),
        (403, "auth.scope", NotPermitted),
        (404, "resource.not_found", NotFound),
        (409, "request.idempotency_mismatch", Invalid),
        (413, "request.too_large", Invalid),
        (422, "request.invalid", Invalid),
        (429, "request.rate_limited", Retriable),
        (500, "service.internal", Retriable),
        (503, "service.overloaded", Retriable),
    ],
)
def test_a_refusal_is_the_error_that_the_service_raised(
    call: Callable[[RestTransport], Coroutine[Any, Any, Any]], status: int, code: str, kind: type[StreamsError]
) -> None:
    with pytest.raises(kind) as refused:
        run(lambda _: problem(status, code), call)
    assert (refused.value.code, refused.value.detail) == (code, "why")


def test_no_answer_is_an_unknown_outcome() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("late")

    with pytest.raises(OutcomeUnknown):
        run(handler, appended)


def test_events_come_with_their_content_as_text() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert dict(request.url.params) == {"after_sequence": "3", "limit": "500"}
        event = b'{"event_id":"e","sequence":4,"type":"message.appended","hash":"00","content":{"n":1.00,"big":9007199254740993}}'
        return httpx.Response(200, content=b'{"events":[' + event + b'],"next_after_sequence":4,"end_sequence":9,"gaps":[]}')

    page = run(handler, lambda transport: transport.events(SESSION, after_sequence=3, limit=500))
    assert page.next_after_sequence == 4
    assert bytes(page.events[0].content) == b'{"n":1.00,"big":9007199254740993}'


def test_a_dead_letter_carries_the_line_as_bytes() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert base64.b64decode(body["record"]) == b"\xff"
        assert (body["reason"], body["source_index"], body["place"]) == ("not_utf8", 3, "/home/mia/x:4")
        return httpx.Response(201, json={})

    letter = DeadLetterBody(source_kind="claude-code", reason="not_utf8", place="/home/mia/x:4", record=b"\xff", source_index=3)
    run(handler, lambda transport: transport.dead_letter(SESSION, "import:k", letter))


def test_an_answer_of_another_shape_is_an_error_of_the_service() -> None:
    with pytest.raises(StreamsError, match="no Appended"):
        run(lambda _: httpx.Response(200, text="<html>"), appended)
