"""Forks over HTTP: by checkpoint and at an event, what each brings along, and what is refused."""

from typing import Any

import httpx
import pytest

from tests.support.gateway import OTHER_WORKSPACE, World, key, message, new_session, post
from tests.support.workers import Worker, event_at, last_event, worker_of


@pytest.fixture
def worker(client: httpx.Client) -> Worker:
    made = worker_of(client, new_session(client, subject="mia"))
    made.say("before")
    return made


def fork(worker: Worker, body: dict[str, Any], *, status: int = 201, **headers: str) -> Any:
    return post(worker.client, f"{worker.session}/forks", body, status=status, **headers)


def test_a_fork_at_an_event_has_the_conversation_and_nothing_else(worker: Worker) -> None:
    said = event_at(worker.client, worker.session_id, 3)
    child = fork(worker, {"at_event": said["event_id"]})
    assert child["restores"] == {"history": True, "files": False, "native_continuation": False, "live_processes": False}
    assert (child["source_session_id"], child["through_sequence"], child["through_event_id"]) == (worker.session_id, 3, said["event_id"])
    created = event_at(worker.client, child["session_id"], 1)
    assert created["type"] == "session.created"
    assert created["attributes"]["source_hash"] == said["hash"]
    assert last_event(worker.client, worker.session_id)["type"] == "session.forked"
    assert child["sequence"] == worker.client.get(worker.session).json()["sequence"]


def test_a_child_is_a_session_of_its_own(worker: Worker) -> None:
    child = fork(worker, {"at_event": last_event(worker.client, worker.session_id)["event_id"]})["session_id"]
    post(worker.client, f"/v1/sessions/{child}/events", message("on my own"))
    assert last_event(worker.client, child)["sequence"] == 2
    source = worker.client.get(worker.session).json()
    assert worker.client.get(f"/v1/sessions/{child}").json()["subject_id"] == source["subject_id"]


def test_a_fork_by_checkpoint_brings_disk_and_native_state_along(worker: Worker) -> None:
    checkpoint = worker.checkpoint(native=b"state", snapshot=b"files")["checkpoint_id"]
    worker.say("behind the boundary")
    child = fork(worker, {"checkpoint_id": checkpoint})
    assert child["restores"] == {"history": None, "files": True, "native_continuation": True, "live_processes": False}
    path = f"/v1/sessions/{child['session_id']}/checkpoints"
    listed = worker.client.get(path).json()["checkpoints"]
    assert [(each["id"], each["origin_session_id"]) for each in listed] == [(checkpoint, worker.session_id)]
    assert worker.client.get(f"{path}/{checkpoint}/content").content == b"files"
    assert worker.client.get(f"{path}/{checkpoint}/content?part=native").content == b"state"
    grandchild = fork(Worker(worker.client, child["session_id"], worker.run_id, worker.grant), {"checkpoint_id": checkpoint})
    path = f"/v1/sessions/{grandchild['session_id']}/checkpoints/{checkpoint}/content"
    assert worker.client.get(path).content == b"files"


def test_a_fork_by_checkpoint_that_rebuilds_has_looked_at_the_whole_history(worker: Worker) -> None:
    checkpoint = worker.checkpoint()["checkpoint_id"]
    assert fork(worker, {"checkpoint_id": checkpoint})["restores"]["history"] is True


def test_a_repeated_fork_is_the_same_child(worker: Worker) -> None:
    body = {"at_event": event_at(worker.client, worker.session_id, 2)["event_id"]}
    first, again = (fork(worker, body, idempotency_key=f"fork-{worker.session_id}") for _ in range(2))
    assert first == again
    other = {"at_event": event_at(worker.client, worker.session_id, 3)["event_id"]}
    problem = fork(worker, other, status=409, idempotency_key=f"fork-{worker.session_id}")
    assert problem["code"] == "request.idempotency_mismatch"


def test_a_child_that_cannot_be_read_yet_is_asked_for_again(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"at_event": event_at(worker.client, worker.session_id, 3)["event_id"]}
    session = shared.owners.session
    own = worker.session_id

    async def behind(workspace_id: str, session_id: str, **more: Any) -> Any:
        return await session(workspace_id, session_id if session_id == own else "sess_" + "0" * 32, **more)

    with monkeypatch.context() as patch:
        patch.setattr(shared.owners, "session", behind)
        patch.setattr(shared.gateway, "limits", shared.limits.__class__(position_wait_s=0.05))
        headers = {"idempotency-key": f"late-{own}"}
        response = worker.client.post(f"{worker.session}/forks", json=body, headers=headers)
    assert (response.status_code, response.json()["code"]) == (503, "service.projection_behind")
    assert int(response.headers["retry-after"]) >= 1
    child = fork(worker, body, idempotency_key=f"late-{own}")["session_id"]
    assert event_at(worker.client, child, 1)["attributes"]["source_session_id"] == own
    forked = [each for each in worker.client.get(f"{worker.session}/events").json()["events"] if each["type"] == "session.forked"]
    assert len(forked) == 1


ABSENT = "0" * 32


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "request.invalid"),
        ({"checkpoint_id": f"ckpt_{ABSENT}", "at_event": f"evt_{ABSENT}"}, 422, "request.invalid"),
        ({"checkpoint_id": f"evt_{ABSENT}"}, 422, "request.invalid"),
        ({"at_event": "evt_1"}, 422, "request.invalid"),
        ({"at_event": f"evt_{ABSENT}", "through_sequence": 0}, 422, "request.invalid"),
        ({"at_event": f"evt_{ABSENT}", "through_sequence": 2**63}, 422, "request.invalid"),
        ({"at_event": f"evt_{ABSENT}", "until": 1}, 422, "request.invalid"),
        ({"checkpoint_id": f"ckpt_{ABSENT}"}, 404, "resource.not_found"),
        ({"at_event": f"evt_{ABSENT}"}, 404, "resource.not_found"),
        ({"at_event": f"evt_{ABSENT}", "through_sequence": 2}, 409, "runtime.checkpoint_boundary"),
        ({"at_event": f"evt_{ABSENT}", "through_sequence": 99}, 409, "runtime.checkpoint_boundary"),
    ],
)
def test_what_is_no_fork_is_refused(worker: Worker, body: dict[str, Any], status: int, code: str) -> None:
    before = worker.client.get(worker.session).json()["sequence"]
    assert fork(worker, body, status=status)["code"] == code
    assert worker.client.get(worker.session).json()["sequence"] == before


def test_a_checkpoint_has_its_own_boundary(worker: Worker) -> None:
    checkpoint = worker.checkpoint()
    problem = fork(worker, {"checkpoint_id": checkpoint["checkpoint_id"], "through_sequence": 1}, status=409)
    assert problem["code"] == "runtime.checkpoint_boundary"


def test_a_session_has_so_many_ancestors_and_no_more(client: httpx.Client) -> None:
    session = new_session(client)
    for _ in range(16):
        at = event_at(client, session, 1)["event_id"]
        session = post(client, f"/v1/sessions/{session}/forks", {"at_event": at}, status=201)["session_id"]
    at = event_at(client, session, 1)["event_id"]
    assert post(client, f"/v1/sessions/{session}/forks", {"at_event": at}, status=409)["code"] == "runtime.limit_reached"


def test_a_fork_needs_the_scope_to_write_and_sight_of_the_session(worker: Worker, shared: World) -> None:
    body = {"at_event": event_at(worker.client, worker.session_id, 1)["event_id"]}
    for client, status in (
        (shared.client("runs:claim", "checkpoints:read"), 403),
        (shared.client(workspace_id=OTHER_WORKSPACE), 404),
        (shared.client(subject_id="subj_" + ABSENT), 404),
    ):
        assert client.post(f"{worker.session}/forks", json=body, headers=key()).status_code == status
