"""Checkpoints over HTTP: told of by the attempt that holds the Run, listed without secrets, given out byte for byte."""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.gateway.limits import GatewayLimits
from streams.clock import now_us
from streams.custody.keyring import SecretRef
from streams.sealed_blobs import Place
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World, key, new_session, post, world
from tests.support.waiting import eventually
from tests.support.workers import Worker, event_at, last_event, worker_of

ABSENT = "0" * 32
LISTED = {
    "id", "session_id", "origin_session_id", "run_id", "through_sequence", "through_event_id", "harness_revision",
    "environment_revision", "continuation_kind", "created_at", "expires_at",
}  # fmt: skip


@pytest.fixture
def worker(client: httpx.Client) -> Worker:
    made = worker_of(client, new_session(client, subject="mia"), harness="h", harness_revision="h1", environment_revision="e1")
    made.say("one")
    return made


def content(worker: Worker, checkpoint: str, part: str = "snapshot", *, client: httpx.Client | None = None) -> httpx.Response:
    return (client or worker.client).get(f"{worker.session}/checkpoints/{checkpoint}/content", params={"part": part})


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def referenced(**more: Any) -> dict[str, Any]:
    """What a checkpoint may say without an upload."""
    return {"continuation": {"kind": "event_log_rebuild"}, "snapshot": {"provider": "vm", "reference": "img-1"}, **more}


# -- creation ---------------------------------------------------------------------------------------------------------


def test_a_checkpoint_says_what_it_retains(worker: Worker) -> None:
    boundary = worker.boundary()
    created = worker.checkpoint(native=b"native", snapshot=b"snapshot")
    event = last_event(worker.client, worker.session_id)
    assert event["type"] == "checkpoint.created"
    told = event["attributes"]
    through = event_at(worker.client, worker.session_id, boundary["through_sequence"])
    assert told["checkpoint_id"] == created["checkpoint_id"]
    assert (told["through_event_id"], told["through_hash"]) == (through["event_id"], through["hash"])
    assert (told["harness"], told["harness_revision"], told["environment_revision"]) == ("h", "h1", "e1")
    assert (told["snapshot_kind"], told["continuation_kind"]) == ("stored", "native")
    assert (told["snapshot_bytes"], told["native_bytes"]) == (8, 6)
    assert told["expires_at"] == created["expires_at"]
    assert created["retained"] is True
    assert created["sequence"] == event["sequence"]


def test_a_later_claim_restores_it(worker: Worker) -> None:
    checkpoint = worker.checkpoint(native=b"native")
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    grant = post(worker.client, f"{worker.run}/claim")
    assert grant["recovery"]["mode"] == "checkpoint_restore"
    assert grant["recovery"]["checkpoint_id"] == checkpoint["checkpoint_id"]
    assert grant["recovery"]["restores"] == {"history": True, "files": True, "native_continuation": True, "live_processes": False}
    again = Worker(worker.client, worker.session_id, worker.run_id, grant)
    assert content(again, grant["recovery"]["checkpoint_id"]).content == b"snapshot"


def test_a_repeat_is_the_same_checkpoint(worker: Worker) -> None:
    body = referenced(**worker.boundary())
    headers = {"idempotency-key": f"cp-{worker.run_id}", "session-streams-report": worker.report}
    first, again = (worker.client.post(f"{worker.session}/checkpoints", json=body, headers=headers) for _ in range(2))
    assert (first.status_code, first.json()) == (201, again.json())
    assert again.headers["session-streams-repeated"] == "true"
    other = worker.client.post(f"{worker.session}/checkpoints", json={**body, "harness": "x"}, headers=headers)
    assert code_of(other) == (409, "request.idempotency_mismatch")


def test_its_own_revisions_go_before_the_runs(worker: Worker) -> None:
    worker.checkpoint(harness_revision="h2", environment_revision="e2", harness="h")
    told = last_event(worker.client, worker.session_id)["attributes"]
    assert (told["harness_revision"], told["environment_revision"]) == ("h2", "e2")


@pytest.mark.parametrize(
    ("through_sequence", "through_event_id"),
    [(None, f"evt_{ABSENT}"), (1, None), (99, None), (2**63 - 1, None)],
    ids=["another event", "another position", "beyond the end", "far beyond"],
)
def test_the_boundary_is_an_event_of_the_session(worker: Worker, through_sequence: int | None, through_event_id: str | None) -> None:
    given = {"through_sequence": through_sequence, "through_event_id": through_event_id}
    body = referenced(**worker.boundary()) | {name: value for name, value in given.items() if value is not None}
    problem = worker.post(f"{worker.session}/checkpoints", body, status=409)
    assert problem["code"] == "runtime.checkpoint_boundary"


def test_the_boundary_does_not_go_back(worker: Worker) -> None:
    before = worker.boundary()
    worker.say("two")
    worker.checkpoint()
    problem = worker.post(f"{worker.session}/checkpoints", referenced(**before), status=409)
    assert problem["code"] == "runtime.checkpoint_boundary"


def test_only_uploads_of_this_session_are_named(worker: Worker, client: httpx.Client) -> None:
    other = worker_of(client, new_session(client)).uploaded(b"elsewhere")
    for upload in (other, f"snap_{ABSENT}"):
        for body in (
            referenced(snapshot={"upload_id": upload}),
            referenced(continuation={"kind": "native", "upload_id": upload}),
        ):
            problem = worker.post(f"{worker.session}/checkpoints", {**body, **worker.boundary()}, status=422)
            assert problem["code"] == "request.invalid"
            assert "upload_id" in problem["detail"]


def test_an_upload_that_the_sweeper_may_come_for_is_named_no_more(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, native = worker.uploaded(b"disk"), worker.uploaded(b"native")
    half_us = int(shared.settings.orphan_grace_s * 1_000_000 / 2)
    monkeypatch.setattr("streams.sealed_blobs.snapshots.now_us", lambda: now_us() + half_us)
    body = {**worker.boundary(), "snapshot": {"upload_id": snapshot}, "continuation": {"kind": "event_log_rebuild"}}
    refused = worker.post(f"{worker.session}/checkpoints", body, status=422)
    assert (refused["code"], "too old" in refused["detail"], "$.snapshot.upload_id" in refused["detail"]) == ("request.invalid", True, True)
    body = {**worker.boundary(), "snapshot": {"provider": "vm", "reference": "1"}, "continuation": {"kind": "native", "upload_id": native}}
    assert "$.continuation.upload_id" in worker.post(f"{worker.session}/checkpoints", body, status=422)["detail"]
    monkeypatch.setattr("streams.sealed_blobs.snapshots.now_us", lambda: now_us() + half_us - 60_000_000)
    worker.post(f"{worker.session}/checkpoints", body, status=201)


def test_native_material_is_bounded(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.gateway.checkpoints.NATIVE_BYTES_MAX", 5)
    worker.checkpoint(native=b"12345")
    assert "native" in worker.checkpoint(native=b"123456", status=422)["detail"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"through_sequence": 0}, "$.through_sequence"),
        ({"through_sequence": 2**63}, "$.through_sequence"),
        ({"through_sequence": "1"}, "$.through_sequence"),
        ({"through_event_id": "evt_1"}, "$.through_event_id"),
        ({"through_event_id": f"run_{ABSENT}"}, "$.through_event_id"),
        ({"harness": "two words"}, "$.harness"),
        ({"harness_revision": "x" * 129}, "$.harness_revision"),
        ({"environment_revision": ""}, "$.environment_revision"),
        ({"continuation": {"kind": "magic"}}, "$.continuation"),
        ({"continuation": {}}, "$.continuation"),
        ({"continuation": {"kind": "native"}}, "$.continuation"),
        ({"continuation": {"kind": "native", "upload_id": "snap_1"}}, "$.continuation.upload_id"),
        ({"continuation": {"kind": "event_log_rebuild", "upload_id": f"snap_{ABSENT}"}}, "$.continuation"),
        ({"snapshot": None}, "$.snapshot"),
        ({"snapshot": {}}, "$.snapshot"),
        ({"snapshot": {"provider": "vm"}}, "$.snapshot"),
        ({"snapshot": {"reference": "x"}}, "$.snapshot"),
        ({"snapshot": {"upload_id": f"snap_{ABSENT}", "provider": "vm"}}, "$.snapshot"),
        ({"snapshot": {"provider": "two words", "reference": "x"}}, "$.snapshot.provider"),
        ({"snapshot": {"provider": "vm", "reference": ""}}, "$.snapshot.reference"),
        ({"snapshot": {"provider": "vm", "reference": "x" * 2049}}, "$.snapshot.reference"),
        ({"expires_at": "2030-01-01T00:00:00Z"}, "expires_at"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(worker: Worker, change: dict[str, Any], place: str) -> None:
    before = worker.client.get(worker.session).json()["sequence"]
    problem = worker.post(f"{worker.session}/checkpoints", referenced(**worker.boundary()) | change, status=422)
    assert problem["code"] == "request.invalid"
    assert place in problem["detail"]
    assert worker.client.get(worker.session).json()["sequence"] == before


def test_only_the_attempt_that_holds_the_run_may_tell_of_one(worker: Worker, shared: World) -> None:
    body, path = referenced(**worker.boundary()), f"{worker.session}/checkpoints"
    for client, status in (
        (shared.client("checkpoints:write"), 409),
        (shared.client("checkpoints:read", "sessions:write"), 403),
        (shared.client(workspace_id=OTHER_WORKSPACE), 404),
        (shared.client(subject_id=f"subj_{ABSENT}"), 404),
    ):
        response = client.post(path, json=body, headers={"session-streams-report": worker.report, **key()})
        assert response.status_code == status
    assert post(worker.client, path, body, status=400)["code"] == "request.malformed"
    worker.position += 1
    assert worker.post(path, body, status=409)["code"] == "runtime.position_conflict"
    worker.position -= 1
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    assert worker.post(path, body, status=409)["code"] == "runtime.attempt_fenced"


# -- listing ----------------------------------------------------------------------------------------------------------


def test_a_listing_is_newest_first_and_free_of_secrets(worker: Worker) -> None:
    made = [worker.checkpoint(native=b"native")["checkpoint_id"] for _ in range(5)]
    page = worker.client.get(f"{worker.session}/checkpoints").json()
    assert [each["id"] for each in page["checkpoints"]] == made[::-1]
    assert page["next_cursor"] is None
    assert all(each.keys() == LISTED for each in page["checkpoints"])
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = worker.client.get(f"{worker.session}/checkpoints", params=query).json()
        found += [each["id"] for each in page["checkpoints"]]
        cursor = page["next_cursor"]
    assert found == made[::-1]


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "cursor=no", "cursor=" + "1" * 201, "part=snapshot"])
def test_a_listing_that_does_not_fit_is_refused(worker: Worker, query: str) -> None:
    assert worker.client.get(f"{worker.session}/checkpoints?{query}").status_code in (400, 422)


def test_who_may_list(worker: Worker, shared: World) -> None:
    path = f"{worker.session}/checkpoints"
    assert shared.client("checkpoints:read").get(path).status_code == 200
    assert shared.client("checkpoints:write", "sessions:read", "runs:claim").get(path).status_code == 403
    assert shared.client(workspace_id=OTHER_WORKSPACE).get(path).status_code == 404
    assert shared.client(subject_id=f"subj_{ABSENT}").get(path).status_code == 404


# -- content ----------------------------------------------------------------------------------------------------------


def test_content_comes_back_byte_for_byte(worker: Worker) -> None:
    snapshot = hashlib.shake_128(b"any bytes").digest(300_001)
    checkpoint = worker.checkpoint(native=b"\x00native\xff", snapshot=snapshot)["checkpoint_id"]
    response = content(worker, checkpoint)
    assert response.content == snapshot
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-length"] == str(len(snapshot))
    assert response.headers["cache-control"] == "no-store"
    assert content(worker, checkpoint, "native").content == b"\x00native\xff"
    empty = worker.checkpoint(snapshot=b"")["checkpoint_id"]
    assert content(worker, empty).content == b""


def test_what_a_provider_keeps_is_a_reference_and_sealed(worker: Worker, shared: World) -> None:
    body = referenced(snapshot={"provider": "vm", "reference": "img-söme-1"}, **worker.boundary())
    checkpoint = worker.post(f"{worker.session}/checkpoints", body, status=201)["checkpoint_id"]
    response = content(worker, checkpoint)
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"provider": "vm", "reference": "img-söme-1"}
    assert all("img-söme-1".encode() not in value for value in shared.log.values)
    assert code_of(content(worker, checkpoint, "native")) == (404, "resource.not_found")
    _erase(shared, worker)
    assert code_of(content(worker, checkpoint)) == (409, "runtime.checkpoint_expired")


def _erase(shared: World, worker: Worker) -> None:
    row = shared.log.rows[worker.session_id]
    assert row.subject_id is not None
    ref = SecretRef("subject", row.workspace_id, row.subject_id)
    shared.keyring.destroy([ref])
    shared.sealer.forget([ref])


def test_what_has_expired_is_not_given_out(worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = worker.checkpoint()
    monkeypatch.setattr(shared.gateway, "clock", lambda: 2**55)
    monkeypatch.setattr(shared.gateway, "authenticate", lambda call: _principal(shared, worker))
    assert code_of(content(worker, made["checkpoint_id"])) == (409, "runtime.checkpoint_expired")


def _principal(shared: World, worker: Worker) -> Any:
    secret = worker.client.headers["authorization"].removeprefix("Bearer ")
    return shared.gateway.keys.principal(secret, 0)


async def _discarded(shared: World, worker: Worker, upload_id: str) -> None:
    await shared.gateway.snapshots.discard(Place(WORKSPACE, worker.session_id), upload_id)


def test_what_was_thrown_away_is_expired(worker: Worker, shared: World) -> None:
    made = worker.checkpoint()
    upload_id = last_event(worker.client, worker.session_id)["attributes"]["snapshot_id"]
    shared.run(_discarded(shared, worker, upload_id))
    assert code_of(content(worker, made["checkpoint_id"])) == (409, "runtime.checkpoint_expired")
    assert shared.gateway.transfers.taken == 0


@pytest.fixture
def stored(worker: Worker, shared: World) -> tuple[str, Path]:
    """A checkpoint of some chunks, and the file of its sealed bytes."""
    made = worker.checkpoint(snapshot=bytes(5_000_000))
    upload_id = last_event(worker.client, worker.session_id)["attributes"]["snapshot_id"]
    folder = shared.settings.data_dir / "blobs" / WORKSPACE / worker.session_id / upload_id
    return made["checkpoint_id"], max(folder.iterdir(), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("damage", ["a byte", "the end"])
def test_damaged_bytes_are_never_given_out_and_the_answer_is_cut(
    worker: Worker, shared: World, stored: tuple[str, Path], damage: str
) -> None:
    checkpoint, path = stored
    sealed = bytearray(path.read_bytes())
    if damage == "a byte":
        sealed[-100] ^= 1
    else:
        del sealed[-100_000:]
    path.write_bytes(sealed)
    received: list[bytes] = []
    url = f"{worker.session}/checkpoints/{checkpoint}/content"
    with worker.client.stream("GET", url) as response, pytest.raises(httpx.RemoteProtocolError):
        received.extend(response.iter_bytes())
    assert 0 < len(b"".join(received)) < 5_000_000
    assert not any(b"".join(received))
    assert shared.gateway.transfers.taken == 0


@pytest.mark.parametrize("bound", [{"download_total_s": 0.2}, {"transfer_start_s": 0.2, "transfer_bytes_per_s_min": 1e15}])
def test_a_caller_who_takes_too_long_is_cut_and_holds_no_place(
    worker: Worker, shared: World, monkeypatch: pytest.MonkeyPatch, bound: dict[str, float]
) -> None:
    checkpoint = worker.checkpoint(snapshot=bytes(32 * 1024 * 1024))["checkpoint_id"]
    monkeypatch.setattr(shared.gateway, "limits", replace(shared.limits, **bound))
    with worker.client.stream("GET", f"{worker.session}/checkpoints/{checkpoint}/content") as response:
        assert response.status_code == 200
        time.sleep(1)
        with pytest.raises(httpx.RemoteProtocolError):
            response.read()
    eventually(lambda: shared.gateway.transfers.taken == 0)
    assert shared.gateway.transfer_shares.taken == 0


def test_a_caller_who_leaves_gives_its_place_back(worker: Worker, shared: World, stored: tuple[str, Path]) -> None:
    with worker.client.stream("GET", f"{worker.session}/checkpoints/{stored[0]}/content") as response:
        next(response.iter_bytes())
    eventually(lambda: shared.gateway.transfers.taken == 0)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"ckpt_{ABSENT}/content", 404),
        ("ckpt_1/content", 404),
        (f"ckpt_{ABSENT}/content?part=disk", 422),
        (f"ckpt_{ABSENT}/content?offset=1", 422),
    ],
)
def test_content_that_is_not_there(worker: Worker, path: str, status: int) -> None:
    assert worker.client.get(f"{worker.session}/checkpoints/{path}").status_code == status


def test_content_is_for_workers_who_may_read_checkpoints(worker: Worker, shared: World) -> None:
    checkpoint = worker.checkpoint()["checkpoint_id"]
    assert content(worker, checkpoint, client=shared.client("checkpoints:read", "runs:claim")).status_code == 200
    for scopes in (("checkpoints:read",), ("runs:claim",), ("checkpoints:write", "sessions:read", "export:read")):
        assert code_of(content(worker, checkpoint, client=shared.client(*scopes))) == (403, "auth.scope")
    assert content(worker, checkpoint, client=shared.client(workspace_id=OTHER_WORKSPACE)).status_code == 404
    assert content(worker, checkpoint, client=shared.client(subject_id=f"subj_{ABSENT}")).status_code == 404


# -- zero data retention ----------------------------------------------------------------------------------------------


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[World]:
    """A workspace that keeps nothing."""
    with world(tmp_path, limits=GatewayLimits(threads=4)) as made:
        made.policies.set(WORKSPACE, mode="zdr")
        yield made


def test_under_zero_data_retention_a_checkpoint_is_metadata_only(forgetful: World) -> None:
    client = forgetful.client()
    worker = worker_of(client, new_session(client))
    made = worker.checkpoint(native=b"native")
    assert made["retained"] is False
    told = last_event(client, worker.session_id)
    assert told["attributes"]["snapshot_kind"] == "none"
    assert not told["attributes"].keys() & {"snapshot_id", "native_id", "snapshot_bytes"}
    worker.post(f"{worker.session}/checkpoints", referenced(**worker.boundary()), status=201)
    assert "gap" not in last_event(client, worker.session_id)
    for part in ("snapshot", "native"):
        assert code_of(content(worker, made["checkpoint_id"], part)) == (409, "runtime.checkpoint_expired")
    body = {"checkpoint_id": made["checkpoint_id"]}
    assert post(client, f"{worker.session}/forks", body, status=409)["code"] == "runtime.checkpoint_expired"
    assert "img-1" not in json.dumps([value.decode("latin-1") for value in forgetful.log.values])
