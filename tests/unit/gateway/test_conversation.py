"""The history that a worker is given: what stands in it, what it is short of, and who may read it."""

import json
from typing import Any

import httpx
import pytest

from streams.custody.keyring import SecretRef
from streams.errors import NotOwner
from tests.support.gateway import OTHER_WORKSPACE, World, message, new_session, post
from tests.support.workers import Worker, event_at, last_event, opened, worker_of


@pytest.fixture
def worker(client: httpx.Client) -> Worker:
    return worker_of(client, new_session(client, subject="mia"), content={"ask": "fly"})


def conversation(worker: Worker, *, client: httpx.Client | None = None, **query: Any) -> httpx.Response:
    return worker.conversation(client=client, **query)


def reporting(worker: Worker) -> dict[str, str]:
    return {"session-streams-report": worker.report}


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [line["content"]["text"] for line in found if line["kind"] == "event" and "text" in line["content"]]


def test_it_has_every_event_that_carries_content_and_an_end(worker: Worker) -> None:
    worker.say("one")
    worker.say("two")
    found = lines(conversation(worker))
    assert [line["kind"] for line in found] == ["event", "event", "event", "end"]
    assert found[0]["content"] == {"ask": "fly"}
    assert texts(found) == ["one", "two"]
    at = event_at(worker.client, worker.session_id, found[1]["sequence"])
    assert {name: value for name, value in found[1].items() if name != "kind"} == at
    assert found[-1] == {"kind": "end", "through_sequence": 6, "complete": True}


def test_it_goes_on_behind_a_position(worker: Worker) -> None:
    one = worker.say("one")
    worker.say("two")
    assert texts(lines(conversation(worker, after_sequence=one["sequence"]))) == ["two"]
    assert lines(conversation(worker, after_sequence=10**6))[-1]["kind"] == "end"


def test_line_ends_within_content_do_not_break_a_line(worker: Worker) -> None:
    body = b'{"type":"message.appended","run_id":"%s",\n"content":{"text":\r\n"one\\ntwo"}}' % worker.run_id.encode()
    headers = {"content-type": "application/json", "idempotency-key": f"ends-{worker.run_id}", "session-streams-report": worker.report}
    assert worker.client.post(f"{worker.session}/events", content=body, headers=headers).status_code == 200
    assert texts(lines(conversation(worker))) == ["one\ntwo"]


def test_ancestors_come_first_each_up_to_where_it_was_forked(client: httpx.Client) -> None:
    grandparent = new_session(client)
    for text in ("a", "b", "not mine"):
        post(client, f"/v1/sessions/{grandparent}/events", message(text))
    parent = post(client, f"/v1/sessions/{grandparent}/forks", {"at_event": event_at(client, grandparent, 3)["event_id"]}, status=201)
    post(client, f"/v1/sessions/{parent['session_id']}/events", message("c"))
    at = last_event(client, parent["session_id"])["event_id"]
    child = post(client, f"/v1/sessions/{parent['session_id']}/forks", {"at_event": at}, status=201)["session_id"]
    worker = worker_of(client, child)
    worker.say("d")
    found = lines(conversation(worker))
    assert texts(found) == ["a", "b", "c", "d"]
    assert [line["session_id"] for line in found[:-1]] == [grandparent, grandparent, parent["session_id"], child]
    assert texts(lines(conversation(worker, lineage=False))) == ["d"]
    assert texts(lines(conversation(worker, after_sequence=1))) == ["d"]


def test_pages_follow_one_another(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [str(number) for number in range(7)]
    for text in said:
        worker.say(text)
    monkeypatch.setattr("connectors.gateway.conversation._PAGE", 2)
    assert texts(lines(conversation(worker))) == said
    monkeypatch.setattr(shared.gateway, "limits", shared.limits.__class__(opened_bytes_max=1))
    assert texts(lines(conversation(worker))) == said


def test_what_was_erased_is_a_gap_and_may_be_refused_before_the_first_line(worker: Worker, shared: World) -> None:
    worker.say("one")
    row = shared.log.rows[worker.session_id]
    assert row.subject_id is not None
    ref = SecretRef("subject", row.workspace_id, row.subject_id)
    shared.keyring.destroy([ref])
    shared.sealer.forget([ref])
    found = lines(conversation(worker))
    gap = {"kind": "gap", "session_id": worker.session_id, "first_sequence": 2, "last_sequence": 5, "reason": "content.erased"}
    assert found == [gap, {"kind": "end", "through_sequence": 5, "complete": False}]
    response = conversation(worker, require_complete=True)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (409, "runtime.session_history_unavailable")
    assert problem["missing"] == ["2-5 content.erased"]


def test_a_history_that_breaks_off_has_no_end(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("one", "two", "three"):
        worker.say(text)
    monkeypatch.setattr("connectors.gateway.conversation._PAGE", 1)
    events, asked = shared.owners.events, []

    async def failing(*arguments: Any, **more: Any) -> Any:
        asked.append(more)
        if len(asked) > 4:
            raise NotOwner("away")
        return await events(*arguments, **more)

    monkeypatch.setattr(shared.owners, "events", failing)
    monkeypatch.setattr(shared.gateway, "limits", shared.limits.__class__(export_patience_s=0.01))
    received: list[bytes] = []
    with (
        worker.client.stream("GET", f"{worker.attempt}/conversation", headers=reporting(worker)) as response,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        received.extend(response.iter_bytes())
    assert b'"kind":"event"' in b"".join(received)
    assert b'"kind":"end"' not in b"".join(received)
    assert shared.gateway.conversations.taken == 0


def test_it_is_for_the_principal_that_holds_the_attempt(worker: Worker, shared: World) -> None:
    response = conversation(worker, client=shared.client("runs:claim"))
    assert (response.status_code, response.json()["code"]) == (409, "runtime.attempt_fenced")
    assert conversation(worker, client=shared.client("sessions:read", "export:read")).status_code == 403
    assert conversation(worker, client=shared.client(workspace_id=OTHER_WORKSPACE)).status_code == 404
    assert conversation(worker, client=shared.client(subject_id="subj_" + "0" * 32)).status_code == 404


def test_an_attempt_that_is_over_reads_nothing(worker: Worker) -> None:
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    assert conversation(worker).json()["code"] == "runtime.attempt_fenced"
    later = post(worker.client, f"{worker.run}/claim")
    assert conversation(worker).json()["code"] == "runtime.attempt_fenced"
    again = Worker(worker.client, worker.session_id, worker.run_id, later)
    assert lines(conversation(again))[-1]["kind"] == "end"
    again.post(f"{again.run}/complete")
    assert conversation(again).json()["code"] == "runtime.attempt_fenced"


def test_a_generation_that_nobody_has_been_granted_is_fenced(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.gateway, "limits", shared.limits.__class__(position_wait_s=0.1))
    task = worker.grant["native_task_id"]
    response = worker.client.get(f"{worker.run}/attempts/9/conversation", headers={"session-streams-report": f"{worker.run_id};9;{task}"})
    assert (response.status_code, response.json()["code"]) == (409, "runtime.attempt_fenced")
    other = opened(worker.client, worker.session_id)
    for run, status in ((other, 409), (f"run_{'0' * 32}", 404)):
        headers = {"session-streams-report": f"{run};1;{task}"}
        assert worker.client.get(f"{worker.session}/runs/{run}/attempts/1/conversation", headers=headers).status_code == status


@pytest.mark.parametrize("query", ["after_sequence=-1", "after_sequence=x", "lineage=maybe", "require_complete=1e", "limit=3"])
def test_a_query_that_does_not_fit_is_refused(worker: Worker, query: str) -> None:
    response = worker.client.get(f"{worker.attempt}/conversation?{query}", headers=reporting(worker))
    assert (response.status_code, response.json()["code"]) == (422, "request.invalid")


def test_it_is_for_the_native_task_that_the_harness_has_now(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.gateway, "limits", shared.limits.__class__(position_wait_s=0.1))
    worker.post(f"{worker.attempt}/ready")
    anew = worker.post(f"{worker.attempt}/ready")["native_task_id"]
    assert conversation(worker).json()["code"] == "runtime.attempt_fenced"
    worker.grant["native_task_id"] = anew
    assert lines(conversation(worker))[-1]["kind"] == "end"
    response = worker.client.get(f"{worker.attempt}/conversation")
    assert (response.status_code, response.json()["code"]) == (400, "request.malformed")


def test_a_task_that_the_table_does_not_know_of_yet_is_waited_for(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.post(f"{worker.attempt}/ready")
    run, asked = shared.owners.run, []
    old = shared.run(run("ws_" + "a" * 32, worker.session_id, worker.run_id))
    worker.grant["native_task_id"] = worker.post(f"{worker.attempt}/ready")["native_task_id"]

    async def behind(*arguments: Any, **more: Any) -> Any:
        asked.append(more)
        return old if len(asked) < 3 else await run(*arguments, **more)

    monkeypatch.setattr(shared.owners, "run", behind)
    assert lines(conversation(worker))[-1]["kind"] == "end"
    assert len(asked) == 3


def test_a_session_that_is_closed_is_read_by_no_worker(worker: Worker) -> None:
    post(worker.client, f"{worker.session}/close")
    response = conversation(worker)
    assert (response.status_code, response.json()["code"]) == (409, "runtime.session_closed")
