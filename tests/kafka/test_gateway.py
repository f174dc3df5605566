"""The whole path on a real broker: gateway, authority, projector, and the client in front."""

import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from connectors.edge.keys import KeyAdministration
from session_streams import Client, Conflict, Invalid, Report, Retries
from streams.settings import Settings
from tests.support.roles import Roles, running_roles
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def roles(settings: Settings) -> Iterator[Roles]:
    with running_roles(settings) as running:
        yield running


@pytest.fixture
def client(roles: Roles) -> Iterator[Client]:
    with Client(roles.url, roles.key(), retries=Retries(total_s=30)) as made:
        yield made


def message(text: str) -> dict[str, object]:
    return {"type": "message.appended", "attributes": {"role": "user"}, "content": {"text": text, "n": 2**70}}


def test_a_client_reads_its_own_writes_in_order_and_opened(client: Client) -> None:
    session = client.create_session(subject="mia_li_3668", metadata={"purpose": "test"})
    for number in range(20):
        appended = client.append(session.session_id, message(f"m{number}"))
        assert appended.sequence == number + 2
        assert client.session(session.session_id).sequence == number + 2
    events = list(client.events(session.session_id, page_size=7))
    assert [event.sequence for event in events] == list(range(1, 22))
    assert events[0].content == {"purpose": "test"}
    assert [event.content for event in events[1:]] == [{"text": f"m{number}", "n": 2**70} for number in range(20)]


def test_a_batch_is_one_command_and_a_repeat_adds_nothing(client: Client) -> None:
    session = client.create_session()
    first = client.append_many(session.session_id, [message(str(number)) for number in range(500)], key="batch-1")
    again = client.append_many(session.session_id, [message(str(number)) for number in range(500)], key="batch-1")
    assert (first.first_sequence, first.last_sequence, first.repeated) == (2, 501, False)
    assert again.repeated
    assert (again.event_ids, again.position, again.last_sequence) == (first.event_ids, first.position, first.last_sequence)
    with pytest.raises(Conflict) as refused:
        client.append(session.session_id, message("another"), key="batch-1")
    assert refused.value.code == "request.idempotency_mismatch"
    assert client.session(session.session_id).sequence == 501


def test_a_follower_sees_what_is_there_and_what_comes_until_the_session_is_closed(client: Client, roles: Roles) -> None:
    session = client.create_session()
    client.append(session.session_id, message("before"))
    seen: list[int] = []
    done = threading.Event()

    def follow() -> None:
        seen.extend(event.sequence for event in client.follow(session.session_id))
        done.set()

    threading.Thread(target=follow, daemon=True).start()
    for number in range(5):
        client.append(session.session_id, message(str(number)))
    client.request("POST", f"/v1/sessions/{session.session_id}/close", {})
    assert done.wait(20)
    assert seen == list(range(1, 9))


def test_a_worker_claims_reports_and_settles_a_run(client: Client) -> None:
    session = client.create_session()
    path = f"/v1/sessions/{session.session_id}/runs"
    run = client.request("POST", path, {"harness": "test"}).json()
    grant = client.request("POST", f"{path}/{run['run_id']}/claim", {"lease_ms": 30_000}).json()
    report = Report(grant["run_id"], grant["generation"], grant["native_task_id"], grant["run_sequence"])
    attempt = f"{path}/{run['run_id']}/attempts/{grant['generation']}"
    ready = client.request("POST", f"{attempt}/ready", {}, headers={"session-streams-report": report.header()}).json()
    report = Report(report.run_id, report.generation, report.native_task_id, ready["run_sequence"])
    appended = client.append(session.session_id, {**message("working"), "run_id": run["run_id"]}, report=report)
    with pytest.raises(Conflict) as refused:
        client.append(session.session_id, {**message("late"), "run_id": run["run_id"]}, report=report)
    assert (refused.value.code, refused.value.actual_run_sequence) == ("runtime.position_conflict", appended.run_sequence)
    report = Report(report.run_id, report.generation, report.native_task_id, appended.run_sequence)
    client.request("POST", f"{path}/{run['run_id']}/complete", {"reward": 1.0}, headers={"session-streams-report": report.header()})
    assert [event.type for event in client.events(session.session_id)][-1] == "run.completed"


def test_a_gateway_that_did_not_make_the_session_appends_to_it_and_repeats_what_another_was_told(client: Client, roles: Roles) -> None:
    """The position that the first gateway gave lets the second wait for what it needs to know of the session."""
    with roles.another_gateway() as url, Client(url, roles.key()) as other:
        for _ in range(5):
            session = client.create_session(subject="mia_li_3668")
            position = {"session-streams-position": str(session.position)}
            path = f"/v1/sessions/{session.session_id}/events"
            appended = other.request("POST", path, message("there"), key="same", headers=position).json()
            assert appended["sequence"] == 2
            again = client.append(session.session_id, message("there"), key="same")
            assert (again.repeated, again.raw["event_ids"]) == (True, appended["event_ids"])


def test_a_position_beyond_the_log_is_refused_at_once(client: Client, roles: Roles) -> None:
    session = client.create_session()
    topic, partition, _ = str(session.position).split(":")
    with pytest.raises(Invalid) as refused:
        client.request("GET", f"/v1/sessions/{session.session_id}", headers={"session-streams-position": f"{topic}:{partition}:999999999"})
    assert (refused.value.status, refused.value.code) == (400, "request.malformed")


def test_a_revoked_key_is_refused_by_a_gateway_that_runs(roles: Roles, settings: Settings) -> None:
    secret = roles.key("sessions:read")
    administration = KeyAdministration(settings)
    revoked = administration.revoke(next(key.key_id for key in administration.list() if key.scopes == ("sessions:read",)))
    assert revoked.revoked_at is not None
    with httpx.Client(base_url=roles.url, headers={"authorization": f"Bearer {secret}"}) as http:
        eventually(lambda: http.get("/v1/sessions").json().get("code") == "auth.revoked")


def test_what_a_source_could_not_read_is_kept_sealed(client: Client, roles: Roles) -> None:
    session = client.create_session(origin="imported")
    body = {
        "source_kind": "claude-code",
        "reason": "malformed",
        "place": "/home/mia/x.jsonl:7",
        "record": "e25vdCBqc29u",
        "source_index": 7,
    }
    answer = client.request("POST", f"/v1/sessions/{session.session_id}/dead-letters", body)
    assert answer.status == 201
    assert json.loads(answer.body) == {"session_id": session.session_id}
