"""Recovery over HTTP on a real broker: claims, checkpoints, forks and histories, with the authority and the tables that decide."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import Broker
from tests.support.gateway import check_documented, key, message, new_session, post
from tests.support.roles import Roles, installation
from tests.support.workers import claimed, event_at, last_event, opened, worker_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def roles(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with installation(broker.bootstrap, tmp_path_factory.mktemp("recovery")) as running:
        yield running


@pytest.fixture(scope="module")
def client(roles: Roles) -> Iterator[httpx.Client]:
    with reading_its_own_writes(roles, roles.key()) as made:
        yield made


def reading_its_own_writes(roles: Roles, secret: str) -> httpx.Client:
    """As the client of this project does: a read waits for what was written before."""
    positions: dict[str, str] = {}

    def learn(response: httpx.Response) -> None:
        check_documented(response)
        position = response.headers.get("session-streams-position")
        if position is not None:
            session_of_path = (*response.request.url.path.split("/"), "", "")[3]
            positions[session_of_path if session_of_path.startswith("sess_") else response.json()["session_id"]] = position

    def wait_for(request: httpx.Request) -> None:
        parts = request.url.path.split("/")
        if len(parts) > 3 and parts[3] in positions:
            request.headers["session-streams-position"] = positions[parts[3]]

    return httpx.Client(
        base_url=roles.url, headers={"authorization": f"Bearer {secret}"}, timeout=30,
        event_hooks={"response": [learn], "request": [wait_for]},
    )  # fmt: skip


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.text.splitlines()]


def test_a_run_that_failed_is_restored_from_its_checkpoint_byte_for_byte(client: httpx.Client) -> None:
    session = new_session(client, subject="mia")
    worker = worker_of(client, session, harness="h", harness_revision="h1", environment_revision="e1")
    said = worker.say("before the boundary")
    snapshot = hashlib.shake_128(b"any").digest(3_000_000)
    made = worker.checkpoint(native=b"native state", snapshot=snapshot)
    worker.say("behind the boundary")
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    again = claimed(client, session, worker.run_id)
    recovery = again.grant["recovery"]
    assert (again.grant["generation"], recovery["mode"], recovery["checkpoint_id"]) == (2, "checkpoint_restore", made["checkpoint_id"])
    assert (recovery["through_sequence"], recovery["through_event_id"]) == (said["sequence"], said["event_id"])
    assert recovery["restores"] == {"history": True, "files": True, "native_continuation": True, "live_processes": False}
    path = f"{again.session}/checkpoints/{made['checkpoint_id']}/content"
    assert client.get(path).content == snapshot
    assert client.get(path, params={"part": "native"}).content == b"native state"
    history = lines(again.conversation(after_sequence=recovery["through_sequence"]))
    assert [line["content"]["text"] for line in history if line["kind"] == "event"] == ["behind the boundary"]
    assert history[-1]["complete"] is True
    listed = client.get(f"{again.session}/checkpoints").json()["checkpoints"]
    assert [each["id"] for each in listed] == [made["checkpoint_id"]]
    assert worker.conversation().json()["code"] == "runtime.attempt_fenced"


def test_a_fork_by_checkpoint_and_one_at_an_event(client: httpx.Client) -> None:
    session = new_session(client, subject="noah")
    worker = worker_of(client, session)
    worker.say("kept")
    made = worker.checkpoint(native=b"native", snapshot=b"files")
    worker.say("after it")
    by_checkpoint = post(client, f"{worker.session}/forks", {"checkpoint_id": made["checkpoint_id"]}, status=201)
    child = by_checkpoint["session_id"]
    assert by_checkpoint["restores"]["files"] is True
    heir = worker_of(client, child)
    assert heir.grant["recovery"]["mode"] == "checkpoint_restore"
    assert heir.grant["recovery"]["checkpoint_session_id"] == session
    assert client.get(f"{heir.session}/checkpoints/{made['checkpoint_id']}/content").content == b"files"
    at_event = post(client, f"{worker.session}/forks", {"at_event": last_event(client, session)["event_id"]}, status=201)
    assert at_event["restores"] == {"history": True, "files": False, "native_continuation": False, "live_processes": False}
    other = worker_of(client, at_event["session_id"])
    assert other.grant["recovery"]["mode"] == "event_log_rebuild"
    other.say("mine")
    history = lines(other.conversation())
    assert [line["content"]["text"] for line in history if line["kind"] == "event"] == ["kept", "after it", "mine"]
    created = event_at(client, at_event["session_id"], 1)
    source = event_at(client, session, at_event["through_sequence"])
    assert created["attributes"]["source_hash"] == source["hash"]


def test_each_run_of_a_lane_is_granted_to_one_of_many_workers(client: httpx.Client, roles: Roles) -> None:
    session, lane = new_session(client), "race"
    runs = [opened(client, session, lane=lane) for _ in range(5)]
    workers = [reading_its_own_writes(roles, roles.key()) for _ in range(8)]

    def take(each: httpx.Client) -> str | None:
        response = each.post("/v1/runs/claim", json={"lanes": [lane], "wait_ms": 3_000}, headers=key())
        assert response.status_code in (200, 204), response.text
        return response.json()["run_id"] if response.content else None

    with ThreadPoolExecutor(8) as threads:
        granted = list(threads.map(take, workers))
    assert sorted(each for each in granted if each is not None) == sorted(runs)
    for each in workers:
        each.close()


def test_a_waiting_claim_is_granted_the_run_that_comes_and_a_repeat_the_same_grant(client: httpx.Client) -> None:
    session, lane = new_session(client), "late"
    with ThreadPoolExecutor(1) as threads:
        headers = {"idempotency-key": "one-claim"}
        body = {"lanes": [lane], "wait_ms": 20_000}
        waiting = threads.submit(lambda: client.post("/v1/runs/claim", json=body, headers=headers))
        run = opened(client, session, lane=lane)
        granted = waiting.result()
    assert granted.json()["run_id"] == run
    again = client.post("/v1/runs/claim", json=body, headers=headers)
    assert again.json() == granted.json()


def test_a_ready_attempt_is_replaced_on_evidence_only(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    worker.post(f"{worker.attempt}/ready")
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    evidence = {
        "replaces": 1, "frontier_sequence": worker.position, "harness_revision": "h", "environment_revision": "e", "driver": "d",
        "sandbox_provider_revision": "s", "policy": "p", "execution_target": "t",
    }  # fmt: skip
    problem = post(client, f"{worker.run}/replace", evidence, status=409)
    assert (problem["code"], problem["missing"]) == ("runtime.replacement_unavailable", ["retained_bytes", "verification"])


def test_an_upload_is_taken_once(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    post(client, f"{worker.session}/events", message())
    first = worker.upload(b"bytes", idempotency_key="one-upload")
    assert worker.upload(b"bytes", idempotency_key="one-upload").json() == first.json()
    assert worker.upload(b"other", idempotency_key="one-upload").status_code == 409
