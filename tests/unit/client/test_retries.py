"""What is tried again, how often, and under which key. The service is a function; time does not pass by itself."""

import json
from collections.abc import Callable

import httpx
import pytest

from session_streams import ApiError, Client, Conflict, ConnectionFailed, Invalid, RateLimited, Retries, Unavailable
from session_streams.retries import Attempts

SESSION = "sess_" + "1" * 32
ACCEPTED = {"session_id": SESSION, "sequence": 2, "position": "c:0:1", "first_sequence": 2, "last_sequence": 2, "event_ids": ["evt_1"]}
Step = httpx.Response | Exception


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"type": "t", "title": "t", "status": status, "code": code, "detail": "d", "session_id": SESSION, "actual_sequence": 7}
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


class Service:
    """Answers the steps in turn; the last one for ever. `clock` moves when the client sleeps."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step.status_code, headers=step.headers, content=step.content)

    def client(self, **more: object) -> Client:
        return Client("http://gateway", "sks_x", transport=httpx.MockTransport(self), sleep=self.slept.append, **more)  # type: ignore[arg-type]


def append(service: Service, **more: object) -> object:
    with service.client(**more) as client:
        return client.append(SESSION, {"type": "message.appended"})


@pytest.mark.parametrize(
    "failure",
    [
        problem(503, "service.outcome_unknown", retry_after="1"),
        problem(429, "request.rate_limited", retry_after="1"),
        problem(408, "request.timeout"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut off"),
        httpx.WriteError("reset"),
    ],
    ids=str,
)
def test_what_may_pass_is_sent_again_under_the_same_key_with_the_same_body(failure: Step) -> None:
    service = Service(failure, failure, httpx.Response(200, json=ACCEPTED))
    append(service)
    assert len({request.headers["idempotency-key"] for request in service.requests}) == 1
    assert len({request.content for request in service.requests}) == 1
    assert len(service.slept) == 2


def test_the_service_says_how_long_to_wait() -> None:
    service = Service(problem(503, "service.overloaded", retry_after="3"), httpx.Response(200, json=ACCEPTED))
    append(service)
    assert 3 <= service.slept[0] < 4


def test_pauses_grow_and_differ() -> None:
    service = Service(*[httpx.ConnectError("away")] * 6, httpx.Response(200, json=ACCEPTED))
    append(service)
    assert len(set(service.slept)) == 6
    assert service.slept[5] > service.slept[0]
    assert all(0.05 <= pause <= 5 for pause in service.slept)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (409, "runtime.sequence_conflict", Conflict),
        (422, "request.invalid", Invalid),
        (415, "x", Invalid),
        (500, "service.internal", Unavailable),
    ],
)
def test_what_is_refused_is_raised_at_once(status: int, code: str, kind: type[ApiError]) -> None:
    service = Service(problem(status, code))
    with pytest.raises(kind) as refused:
        append(service)
    assert len(service.requests) == 1
    error = refused.value
    assert (error.status, error.code, error.session_id, error.actual_sequence) == (status, code, SESSION, 7)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx.ConnectError("refused"), ConnectionFailed),
        (problem(503, "service.unavailable"), Unavailable),
        (problem(429, "request.rate_limited"), RateLimited),
    ],
    ids=str,
)
def test_all_attempts_together_are_bounded(failure: Step, kind: type[Exception]) -> None:
    service = Service(failure)
    with pytest.raises(kind):
        append(service, retries=Retries(total_s=0))
    assert len(service.requests) == 1


def clocked(retries: Retries, moves: Callable[[float], float]) -> list[float]:
    now = 0.0
    attempts = Attempts(retries, clock=lambda: now, chance=lambda: 1.0)
    pauses = []
    while (pause := attempts.pause_s()) is not None:
        pauses.append(pause)
        now += moves(pause)
    return pauses


def test_no_pause_leads_beyond_the_end() -> None:
    pauses = clocked(Retries(total_s=10, first_pause_s=1, longest_pause_s=4), lambda pause: pause)
    assert pauses == [1, 2, 4]


def test_a_pause_that_the_service_asks_for_counts_too() -> None:
    attempts = Attempts(Retries(total_s=10), clock=lambda: 0.0)
    assert attempts.pause_s("30") is None
    assert Attempts(Retries(total_s=60), clock=lambda: 0.0).pause_s("30") is not None
    assert Attempts(Retries(total_s=60), clock=lambda: 0.0).pause_s("Wed, 21 Oct 2026 07:28:00 GMT") is not None


def test_an_error_page_of_something_in_between_keeps_its_status() -> None:
    service = Service(httpx.Response(502, text="<html>bad gateway</html>"))
    with pytest.raises(Unavailable) as refused:
        append(service)
    assert (refused.value.status, refused.value.code) == (502, "unknown")


def test_reads_after_a_change_wait_for_it_and_others_do_not() -> None:
    accepted = httpx.Response(200, json=ACCEPTED, headers={"session-streams-position": "c:0:1"})
    page = httpx.Response(200, json={"events": [], "gaps": [], "next_after_sequence": None, "end_sequence": 2})
    service = Service(accepted, page, page)
    with service.client() as client:
        client.append(SESSION, {"type": "message.appended"})
        list(client.events(SESSION))
        list(client.events("sess_" + "2" * 32))
    assert [request.headers.get("session-streams-position") for request in service.requests] == [None, "c:0:1", None]


def test_a_key_that_is_given_is_used() -> None:
    service = Service(httpx.Response(200, json=ACCEPTED))
    with service.client() as client:
        client.append(SESSION, {"type": "message.appended"}, key="mine")
        client.request("POST", f"/v1/sessions/{SESSION}/close", {}, key="mine-too")
        client.request("GET", f"/v1/sessions/{SESSION}")
    assert [request.headers.get("idempotency-key") for request in service.requests] == ["mine", "mine-too", None]


def test_lines_are_json_each_and_bytes_are_taken_as_they_are() -> None:
    service = Service(httpx.Response(200, json=ACCEPTED))
    with service.client() as client:
        client.append_many(SESSION, [{"type": "message.appended", "content": "ä\n"}, b'{"type":"message.appended","content":1e999}'])
    lines = service.requests[0].content.split(b"\n")
    assert service.requests[0].headers["content-type"] == "application/x-ndjson"
    assert json.loads(lines[0]) == {"type": "message.appended", "content": "ä\n"}
    assert lines[1:] == [b'{"type":"message.appended","content":1e999}', b""]


def test_what_json_has_no_form_for_is_an_error_of_the_caller() -> None:
    service = Service(httpx.Response(200, json=ACCEPTED))
    with service.client() as client, pytest.raises(ValueError, match="JSON"):
        client.append(SESSION, {"type": "message.appended", "content": float("nan")})
    assert service.requests == []
