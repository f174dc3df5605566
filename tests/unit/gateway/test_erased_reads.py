"""Once a gateway has heard of an erasure, nothing of what is erased leaves it: each read shows the gap, with its reason and place."""

import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import pytest

from session_streams.export import read as read_export
from session_streams.export import verify
from session_streams.sse import Message, Parser
from streams.log.retention import DESTROYED
from tests.support.commands import new_id
from tests.support.gateway import World, key, message, new_session, post
from tests.support.waiting import eventually
from tests.support.workers import Worker, event_at, worker_of

GAP = {"reason": "erased"}


class Person(NamedTuple):
    """A worker in a session of the person, which has said one thing and left a checkpoint; a fork of the session, with a word of its
    own."""

    subject: str
    worker: Worker
    checkpoint: str
    fork: str

    @property
    def session(self) -> str:
        return self.worker.session_id


@pytest.fixture
def person(client: httpx.Client) -> Person:
    made = post(client, "/v1/sessions", {"subject": new_id("customer"), "metadata": {"name": "Mia"}}, status=201)
    worker = worker_of(client, made["session_id"], harness="h", harness_revision="h1", environment_revision="e1")
    said = worker.say("one")
    checkpoint = worker.checkpoint(snapshot=b"all of Mia's files")["checkpoint_id"]
    fork = post(client, f"{worker.session}/forks", {"at_event": said["event_id"]}, status=201)["session_id"]
    post(client, f"/v1/sessions/{fork}/events", message("of the fork"))
    return Person(made["subject_id"], worker, checkpoint, fork)


@pytest.fixture(params=["subject", "session"])
def scope(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def erase(scope: str, shared: World, client: httpx.Client, person: Person) -> Callable[[], None]:
    """Erases the person or the session, as far as that its secrets are destroyed and the gateway was told."""
    path = f"/v1/subjects/{person.subject}/erasures" if scope == "subject" else f"/v1/sessions/{person.session}"

    def now() -> None:
        answer = client.request("POST" if scope == "subject" else "DELETE", path, headers=key())
        shared.custodian.goes_on(answer.json()["erasure_id"], DESTROYED)

    return now


def contents(events: list[dict[str, Any]]) -> list[Any]:
    return [event.get("gap") or event.get("content") for event in events if event["content_state"] != "none"]


def test_a_page_of_events_and_one_of_the_lineage_show_gaps(
    client: httpx.Client, person: Person, erase: Callable[[], None], scope: str
) -> None:
    path = f"/v1/sessions/{person.session}/events"
    before = contents(client.get(path).json()["events"])
    assert before[:2] == [{"name": "Mia"}, {"text": "one"}]
    erase()
    assert contents(client.get(path).json()["events"]) == [GAP] * len(before)
    page = client.get(f"/v1/sessions/{person.fork}/events?lineage=true").json()
    assert page["session_id"] == person.session
    assert contents(page["events"]) == [GAP, GAP]
    rest = client.get(f"/v1/sessions/{person.fork}/events?lineage=true&cursor={page['next_cursor']}").json()
    assert contents(rest["events"]) == [GAP if scope == "subject" else {"text": "of the fork"}]


def test_a_stream_that_is_open_goes_on_with_gaps(client: httpx.Client, person: Person, erase: Callable[[], None], shared: World) -> None:
    told: list[Message] = []
    path = f"/v1/sessions/{person.session}/events"

    def follow() -> None:
        with client.stream("GET", path, headers={"accept": "text/event-stream"}) as response:
            parser = Parser()
            for chunk in response.iter_raw():
                told.extend(parser.feed(chunk))
                if len(told) > seen:
                    return

    seen = client.get(f"/v1/sessions/{person.session}").json()["sequence"]
    reader = threading.Thread(target=follow)
    reader.start()
    eventually(lambda: len(told) == seen, timeout_s=10)
    values: list[bytes] = []
    send = shared.log.send
    # Sealed before, and decided after: content of an erased person that was under way.
    shared.log.send = lambda value, session_id, on_done=None: values.append(value)  # type: ignore[method-assign]
    late = threading.Thread(target=lambda: client.post(path, json=message("late"), headers=key()))
    try:
        late.start()
        eventually(lambda: len(values) == 1, timeout_s=10)
    finally:
        shared.log.send = send  # type: ignore[method-assign]
    erase()
    shared.log.send(values[0], person.session)
    reader.join(10)
    late.join(10)
    assert json.loads(told[0].data)["content"] == {"name": "Mia"}
    assert json.loads(told[-1].data)["gap"] == GAP


def test_an_export_tells_the_gaps_and_its_chain_verifies(client: httpx.Client, person: Person, erase: Callable[[], None]) -> None:
    erase()
    lines = client.get(f"/v1/sessions/{person.session}/export").content.splitlines(keepends=True)
    verdict = verify(iter(lines))
    assert (verdict.code, set(verdict.unavailable), verdict.opened) == ("verified", {"erased"}, 0)
    assert {entry.unavailable for entry in read_export(iter(lines))} == {None, "erased"}
    assert b"Mia" not in b"".join(lines)


def test_a_graph_shows_gaps_and_keeps_its_structure(client: httpx.Client, person: Person, erase: Callable[[], None]) -> None:
    def nodes() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.get(f"/v1/sessions/{person.session}/graph").json()["nodes"]
        return found

    before = nodes()
    erase()
    after = nodes()
    assert [node["id"] for node in before] == [node["id"] for node in after]
    sealed = [node["content"] for node in after if node.get("content", {}).get("state") == "sealed"]
    assert sealed
    assert all(content["gap"] == GAP for content in sealed)


def test_a_conversation_tells_the_gap_and_may_be_refused_before_its_first_line(person: Person, erase: Callable[[], None]) -> None:
    erase()
    lines = [json.loads(line) for line in person.worker.conversation().text.splitlines()]
    assert {line["kind"] for line in lines} == {"gap", "end"}
    assert {line["reason"] for line in lines if line["kind"] == "gap"} == {"content.erased"}
    assert lines[-1]["complete"] is False
    refused = person.worker.conversation(require_complete="true")
    assert (refused.status_code, refused.json()["code"]) == (409, "runtime.session_history_unavailable")


def test_what_a_checkpoint_retains_is_given_out_no_more(client: httpx.Client, person: Person, erase: Callable[[], None]) -> None:
    path = f"/v1/sessions/{person.session}/checkpoints/{person.checkpoint}/content"
    assert client.get(path).content == b"all of Mia's files"
    erase()
    refused = client.get(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "runtime.checkpoint_expired")
    assert "content.erased" in refused.json()["detail"]


@pytest.mark.parametrize("by", ["checkpoint_id", "at_event"])
def test_nothing_is_forked_from_what_is_erased(client: httpx.Client, person: Person, erase: Callable[[], None], by: str) -> None:
    body = {by: person.checkpoint if by == "checkpoint_id" else event_at(client, person.session, 1)["event_id"]}
    erase()
    code = "runtime.checkpoint_expired" if by == "checkpoint_id" else "runtime.session_history_unavailable"
    assert post(client, f"/v1/sessions/{person.session}/forks", body, status=409)["code"] == code


def test_nothing_is_uploaded_for_what_is_erased(person: Person, erase: Callable[[], None]) -> None:
    erase()
    refused = person.worker.upload(b"more of it")
    assert (refused.status_code, refused.json()["code"]) == (409, "content.erased")


def test_a_checkpoint_of_a_fork_is_not_given_out_once_its_ancestor_is_erased_and_a_later_one_is(
    shared: World, client: httpx.Client
) -> None:
    ancestor = new_session(client)
    said = post(client, f"/v1/sessions/{ancestor}/events", message("of the ancestor"))
    event = event_at(client, ancestor, said["sequence"])["event_id"]
    fork = post(client, f"/v1/sessions/{ancestor}/forks", {"at_event": event}, status=201)["session_id"]
    worker = worker_of(client, fork, harness="h", harness_revision="h1", environment_revision="e1")
    worker.say("own")
    before = worker.checkpoint(snapshot=b"with the ancestor's files")["checkpoint_id"]
    erasure = client.delete(f"/v1/sessions/{ancestor}", headers=key()).json()["erasure_id"]
    shared.custodian.goes_on(erasure, DESTROYED)
    worker.say("later")
    after = worker.checkpoint(snapshot=b"of the fork alone")["checkpoint_id"]
    answers = [client.get(f"/v1/sessions/{fork}/checkpoints/{each}/content") for each in (before, after)]
    assert [answer.status_code for answer in answers] == [409, 200]
    assert answers[1].content == b"of the fork alone"
