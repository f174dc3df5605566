"""Appending: one event or many, all or nothing, repeated without effect, content as it came."""

import json

import httpx
import pytest

from streams.session.events import Link
from tests.support.gateway import World, key, message, ndjson, new_session, post

NDJSON = {"content-type": "application/x-ndjson"}


def events_of(client: httpx.Client, session_id: str) -> list[dict]:  # type: ignore[type-arg]
    return client.get(f"/v1/sessions/{session_id}/events").json()["events"]  # type: ignore[no-any-return]


def test_one_event_is_appended_and_read_back_with_its_content(client: httpx.Client) -> None:
    session = new_session(client)
    answer = post(client, f"/v1/sessions/{session}/events", message("hi", occurred_at="2026-01-02T03:04:05.678901+02:00"))
    event = events_of(client, session)[1]
    assert (answer["first_sequence"], answer["last_sequence"], answer["event_ids"]) == (2, 2, [event["event_id"]])
    assert event["content"] == {"text": "hi"}
    assert event["attributes"] == {"role": "user"}
    assert event["occurred_at"] == "2026-01-02T01:04:05.678901Z"
    assert event["position"] == answer["position"]


def test_the_answer_carries_sequence_and_position_in_a_header_too(client: httpx.Client) -> None:
    session = new_session(client)
    response = client.post(f"/v1/sessions/{session}/events", json=message(), headers=key())
    assert response.headers["session-streams-position"] == response.json()["position"]
    assert "session-streams-repeated" not in response.headers


def test_many_events_as_ndjson_are_one_command(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    before = len(shared.log.commands)
    body = ndjson(*(message(str(number)) for number in range(300)))
    answer = client.post(f"/v1/sessions/{session}/events", content=body, headers={**NDJSON, **key()}).json()
    assert (answer["first_sequence"], answer["last_sequence"]) == (2, 301)
    assert len(shared.log.commands) == before + 1
    assert [event["content"]["text"] for event in client.get(f"/v1/sessions/{session}/events?limit=1000").json()["events"][1:]] == [
        str(number) for number in range(300)
    ]


def test_blank_lines_and_carriage_returns_between_ndjson_lines_do_not_matter(client: httpx.Client) -> None:
    session = new_session(client)
    body = b"\n" + ndjson(message("a")).replace(b"\n", b"\r\n") + b"\n\n" + ndjson(message("b")).rstrip()
    answer = client.post(f"/v1/sessions/{session}/events", content=body, headers={**NDJSON, **key()})
    assert answer.json()["last_sequence"] == 3


def test_a_link_may_name_an_event_of_the_same_request_by_its_place(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    body = ndjson(message("parent"), message("child", links=[{"relation": "parent_event", "id": "$0"}]))
    answer = client.post(f"/v1/sessions/{session}/events", content=body, headers={**NDJSON, **key()}).json()
    assert shared.log.commands[-1].drafts[1].links == (Link("parent_event", answer["event_ids"][0]),)
    assert events_of(client, session)[2]["links"] == [{"relation": "parent_event", "id": answer["event_ids"][0]}]


def test_a_link_to_a_place_that_the_request_does_not_have_is_refused(client: httpx.Client) -> None:
    session = new_session(client)
    problem = post(client, f"/v1/sessions/{session}/events", message(links=[{"relation": "cause", "id": "$1"}]), status=422)
    assert problem["code"] == "request.invalid"


@pytest.mark.parametrize(
    "text",
    [
        b'{"n": 123456789012345678901234567890.12345678901234567890, "e": 1E+400}',
        b'"\\u0000 and \\u00e9 and \\ud83d\\ude00"',
        b'{"a":1,"a":2}',
        b"[ 1,\t2 ]",
        b'"\\\\ud800 is text, not a surrogate"',
        b"null",
        b'""',
    ],
)
def test_content_comes_back_as_the_text_that_it_came_as(client: httpx.Client, text: bytes) -> None:
    session = new_session(client)
    body = b'{"type":"message.appended","content":' + text + b"}"
    assert client.post(f"/v1/sessions/{session}/events", content=body, headers={"content-type": "application/json", **key()}).is_success
    assert b'"content":' + text + b"," in client.get(f"/v1/sessions/{session}/events?after_sequence=1").content


def test_a_repeat_under_the_same_key_is_answered_with_the_recorded_outcome(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    headers = key()
    first = client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers)
    again = client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers)
    assert again.json() == first.json()
    assert again.headers["session-streams-repeated"] == "true"
    assert len(shared.log.events[session]) == 2


def test_the_same_key_with_another_body_is_refused(client: httpx.Client) -> None:
    session = new_session(client)
    headers = key()
    client.post(f"/v1/sessions/{session}/events", json=message("a"), headers=headers)
    problem = post(client, f"/v1/sessions/{session}/events", message("b"), status=409, **headers)
    assert problem["code"] == "request.idempotency_mismatch"


def test_a_rejection_is_repeated_as_well(client: httpx.Client) -> None:
    session = new_session(client)
    headers = {**key(), "session-streams-expected-sequence": "7"}
    responses = [client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers) for _ in range(2)]
    assert [response.status_code for response in responses] == [409, 409]
    assert responses[0].json()["actual_sequence"] == 1
    assert responses[0].json()["code"] == "runtime.sequence_conflict"
    assert responses[1].headers["session-streams-repeated"] == "true"


def test_an_expected_sequence_that_fits_is_accepted(client: httpx.Client) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message(), session_streams_expected_sequence="1")


def test_outside_ids_of_people_never_reach_the_log_in_clear(client: httpx.Client, shared: World) -> None:
    """Subject, actor and words of a person: in the bytes of no command, and in no answer that was not given them."""
    session = new_session(client, subject="mia_li_3668", metadata={"note": "likes fjords"})
    post(client, f"/v1/sessions/{session}/events", message("my secret words", actor="agent_smith_77"))
    sent = b"".join(shared.log.values)
    for name in (b"mia_li_3668", b"agent_smith_77", b"my secret words", b"fjords"):
        assert name not in sent
    event = events_of(client, session)[1]
    assert event["actor_id"].startswith("actr_")
    assert event["subject_id"].startswith("subj_")


def test_the_same_outside_id_is_the_same_pseudonym(client: httpx.Client) -> None:
    sessions = [post(client, "/v1/sessions", {"subject": "noah_1"}, status=201) for _ in range(2)]
    assert sessions[0]["subject_id"] == sessions[1]["subject_id"]
    assert sessions[0]["session_id"] != sessions[1]["session_id"]


def test_lifecycle_types_need_their_route_or_the_scope_of_an_importer(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    writer = shared.client("sessions:write")
    body = {"type": "turn.started", "turn_id": "turn_" + "1" * 32}
    assert post(writer, f"/v1/sessions/{session}/events", body, status=403)["code"] == "auth.scope"
    importer = shared.client("sessions:write", "sessions:import")
    post(importer, f"/v1/sessions/{session}/events", body)


def test_a_report_is_never_an_import_whatever_the_key_may_do(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    run = post(client, f"/v1/sessions/{session}/runs", status=201)["run_id"]
    grant = post(client, f"/v1/sessions/{session}/runs/{run}/claim")
    report = f"{run};{grant['generation']};{grant['native_task_id']};{grant['run_sequence']}"
    answer = post(client, f"/v1/sessions/{session}/events", message(run_id=run), session_streams_report=report)
    assert not shared.log.commands[-1].importing
    assert answer["run_sequence"] == answer["last_sequence"]


def test_an_event_of_a_megabyte_passes(client: httpx.Client) -> None:
    session = new_session(client)
    text = "x" * 1_000_000
    post(client, f"/v1/sessions/{session}/events", message(text))
    assert events_of(client, session)[1]["content"]["text"] == text


def test_attributes_are_typed_by_family_and_times_are_rfc_3339(client: httpx.Client) -> None:
    session = new_session(client)
    wait = {"wait_id": "wait_" + "2" * 32, "kind": "human", "expires_at": "2030-01-01T00:00:00Z"}
    post(client, f"/v1/sessions/{session}/events", {"type": "wait.opened", "attributes": wait})
    assert events_of(client, session)[1]["attributes"] == wait


def test_what_is_appended_is_json_of_one_line_each(client: httpx.Client) -> None:
    session = new_session(client)
    body = json.dumps(message(), indent=1).encode()
    refused = client.post(f"/v1/sessions/{session}/events", content=body, headers={**NDJSON, **key()})
    assert (refused.status_code, refused.json()["code"]) == (400, "request.malformed")
    accepted = client.post(f"/v1/sessions/{session}/events", content=body, headers={"content-type": "application/json", **key()})
    assert accepted.is_success
