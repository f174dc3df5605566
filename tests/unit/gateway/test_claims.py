"""Claims of one Run, of any Run of some lanes, and in the place of an attempt that was ready."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from connectors.support.statement import ExactTuple
from streams.errors import NotOwner
from streams.session.commands import Kind
from tests.support.gateway import OTHER_WORKSPACE, World, key, message, new_session, post
from tests.support.waiting import eventually
from tests.support.workers import Worker, claimed, opened, worker_of

DIGEST = "sha256:" + "1" * 64
EXACT = {
    "harness_revision": "h1", "environment_revision": "e1", "driver": "d", "sandbox_provider_revision": "s", "policy": "p",
    "execution_target": "t",
}  # fmt: skip


@pytest.fixture
def lane(request: pytest.FixtureRequest) -> str:
    """A lane of this test alone."""
    return f"lane-{abs(hash(request.node.nodeid))}"


def take(client: httpx.Client, lane: str, *, status: int = 200, idempotency_key: str | None = None, **body: Any) -> Any:
    headers = key() if idempotency_key is None else {"idempotency-key": idempotency_key}
    response = client.post("/v1/runs/claim", json={"lanes": [lane], **body}, headers=headers)
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    return response.json() if response.content else None


def test_a_claim_tells_all_that_a_worker_goes_on_from(client: httpx.Client) -> None:
    session = new_session(client)
    turn = post(client, f"/v1/sessions/{session}/turns", status=201)["turn_id"]
    run = opened(client, session, turn_id=turn, lane="eu", harness="h", harness_revision="h1", environment_revision="e1")
    worker = claimed(client, session, run)
    pin = {"type": "context.pinned", "run_id": run, "attributes": {"pin_kind": "plan", "revision": "r1", "digest": DIGEST}}
    worker.post(f"{worker.session}/events", pin)
    wait = worker.post(f"{worker.session}/waits", {"kind": "human"}, status=201)["wait_id"]
    post(client, f"{worker.session}/waits/{wait}/answer")
    worker.position = client.get(worker.session).json()["sequence"]
    effect = {"provider": "airline", "request_digest": DIGEST, "action_digest": DIGEST}
    effect_id = worker.post(f"{worker.session}/effects", effect, status=201)["effect_id"]
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    again = post(client, f"{worker.run}/claim")
    assert again["generation"] == 2
    assert again["run"] == {
        "turn_id": turn, "thread_id": None, "lane": "eu", "harness": "h", "harness_revision": "h1", "environment_revision": "e1",
        "accepted_sequence": 3,
    }  # fmt: skip
    assert again["pinned_context"] == [{"pin_kind": "plan", "revision": "r1", "digest": DIGEST}]
    assert again["open_waits"] == []
    assert again["open_effects"] == [{"effect_id": effect_id, "status": "indeterminate", "action_digest": DIGEST, "request_digest": DIGEST}]
    assert again["frontier_sequence"] == again["sequence"]
    assert again["recovery"] == {
        "mode": "event_log_rebuild", "reason": "no_checkpoint", "checkpoint_id": None, "checkpoint_session_id": None,
        "through_sequence": 0, "through_event_id": None, "complete": True, "unavailable": [],
        "restores": {"history": True, "files": False, "native_continuation": False, "live_processes": False},
    }  # fmt: skip


def test_a_claim_by_lane_takes_a_run_of_that_lane(client: httpx.Client, lane: str) -> None:
    session = new_session(client)
    run = opened(client, session, lane=lane)
    opened(client, session, lane=f"{lane}-other")
    grant = take(client, lane)
    assert (grant["session_id"], grant["run_id"], grant["run"]["lane"]) == (session, run, lane)
    worker = Worker(client, session, run, grant)
    worker.post(f"{worker.attempt}/ready")
    assert take(client, lane, status=204) is None


def test_nothing_comes_of_a_lane_without_runs(client: httpx.Client, lane: str) -> None:
    response = client.post("/v1/runs/claim", json={"lanes": [lane]}, headers=key())
    assert (response.status_code, response.content) == (204, b"")
    run = opened(client, new_session(client), lane=lane, claimable=False)
    assert run
    assert take(client, lane, status=204) is None


def test_a_claim_waits_for_a_run_to_come(client: httpx.Client, shared: World, lane: str) -> None:
    session, found = new_session(client), []
    waiting = threading.Thread(target=lambda: found.append(take(shared.client(), lane, wait_ms=20_000)))
    waiting.start()
    eventually(lambda: shared.gateway.claims.taken == 1)
    assert shared.gateway.changes.taken == 0, "who waits holds no place among the changes"
    run = opened(client, session, lane=lane)
    waiting.join()
    assert found[0]["run_id"] == run


def test_of_many_who_race_each_run_is_granted_once(shared: World, client: httpx.Client, lane: str) -> None:
    session = new_session(client)
    runs = {opened(client, session, lane=lane) for _ in range(4)}
    workers = [shared.client() for _ in range(12)]
    with ThreadPoolExecutor(12) as threads:
        grants = list(threads.map(lambda each: _any(each, lane), workers))
    won = [grant["run_id"] for grant in grants if grant is not None]
    assert sorted(won) == sorted(runs)

    # A command a Run: what one is after is left to it by the others.
    sent = [command.drafts[0].run_id for command in shared.log.commands if command.kind is Kind.CLAIM]
    assert sorted(run for run in sent if run in runs) == sorted(runs)


def test_repeats_that_are_sent_at_once_are_told_one_grant(client: httpx.Client, shared: World, lane: str) -> None:
    session = new_session(client)
    for _ in range(20):
        opened(client, session, lane=lane)
    with ThreadPoolExecutor(12) as threads:
        # Among others that claim meanwhile, so that the tables tell each of the repeats something else.
        names = [f"once-{lane}" if number % 2 else f"{number}-{lane}" for number in range(12)]
        grants = list(threads.map(lambda name: take(client, lane, idempotency_key=name), names))
    assert len({grant["run_id"] for grant in grants[1::2]}) == 1
    assert len({grant["run_id"] for grant in grants}) == 7


def _any(client: httpx.Client, lane: str) -> Any:
    response = client.post("/v1/runs/claim", json={"lanes": [lane], "wait_ms": 300}, headers=key())
    assert response.status_code in (200, 204), response.text
    return response.json() if response.content else None


def test_a_repeat_is_told_the_same_grant(client: httpx.Client, lane: str) -> None:
    session = new_session(client)
    for _ in range(5):
        opened(client, session, lane=lane)
    first, again = (take(client, lane, idempotency_key=f"once-{lane}") for _ in range(2))
    assert first == again
    assert take(client, lane)["run_id"] != first["run_id"]


def test_a_repeat_with_another_body_is_refused(client: httpx.Client, lane: str) -> None:
    opened(client, new_session(client), lane=lane)
    take(client, lane, idempotency_key=f"once-{lane}")
    assert take(client, lane, idempotency_key=f"once-{lane}", lease_ms=5_000, status=409)["code"] == "request.idempotency_mismatch"


def test_a_lost_answer_is_found_again_even_where_the_tables_are_behind(
    client: httpx.Client, shared: World, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new_session(client)
    for _ in range(3):
        opened(client, session, lane=lane)
    rows = shared.log.table.model.claimable("ws_" + "a" * 32, [lane], None, partitions=(0,), limit=8)

    async def old(*arguments: Any, **more: Any) -> Any:
        return rows

    async def none(*arguments: Any, **more: Any) -> None:
        return None

    first = take(client, lane, idempotency_key=f"lost-{lane}")
    monkeypatch.setattr(shared.owners, "claimable", old)
    monkeypatch.setattr(shared.owners, "claimed", none)
    again = take(client, lane, idempotency_key=f"lost-{lane}")
    assert (again["run_id"], again["generation"]) == (first["run_id"], first["generation"])


def test_a_claim_may_be_repeated_for_a_new_generation_once_its_attempt_is_over(client: httpx.Client, lane: str) -> None:
    run = opened(client, new_session(client), lane=lane)
    first = take(client, lane, idempotency_key=f"once-{lane}")
    worker = Worker(client, first["session_id"], run, first)
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    assert take(client, lane, idempotency_key=f"once-{lane}")["generation"] == 2


def erased(client: httpx.Client, shared: World, lane: str, subject: str = "somebody") -> str:
    """A Run whose session has content that was erased, as its authority knows it."""
    session = new_session(client, subject=f"{subject}-{lane}")
    post(client, f"/v1/sessions/{session}/events", message())
    run = opened(client, session, lane=lane)
    shared.log.erase(session)
    return run


def test_a_run_whose_history_cannot_be_read_is_left_to_workers_that_cope(client: httpx.Client, shared: World, lane: str) -> None:
    torn = erased(client, shared, lane)
    whole = opened(client, new_session(client), lane=lane)
    assert take(client, lane)["run_id"] == whole
    problem = take(client, lane, status=409)
    assert (problem["code"], problem["missing"]) == ("runtime.session_history_unavailable", ["2-2 content.erased"])
    grant = take(client, lane, incomplete_ok=True)
    assert grant["run_id"] == torn
    assert grant["recovery"]["complete"] is False
    assert grant["recovery"]["unavailable"] == [{"first_sequence": 2, "last_sequence": 2, "reason": "content.erased"}]


def test_runs_that_a_worker_cannot_take_do_not_hide_those_behind_them(client: httpx.Client, shared: World, lane: str) -> None:
    for number in range(10):
        erased(client, shared, lane, subject=str(number))
    last = opened(client, new_session(client), lane=lane)
    assert take(client, lane, wait_ms=5_000)["run_id"] == last


def test_more_of_them_than_one_look_at_the_lane_tells_hide_nothing_and_are_asked_for_once(
    client: httpx.Client, shared: World, lane: str
) -> None:
    erased(client, shared, lane)
    session = next(row.session_id for row in shared.log.table.model.claimable("ws_" + "a" * 32, [lane], None, partitions=(0,), limit=1))
    for _ in range(120):
        opened(client, session, lane=lane)
    healthy = new_session(client)
    wholes = {opened(client, healthy, lane=lane) for _ in range(2)}
    assert {take(client, lane, wait_ms=5_000)["run_id"] for _ in range(2)} == wholes  # in which order is drawn for each claim
    assert take(client, lane, status=409)["code"] == "runtime.session_history_unavailable"
    asked = Counter(
        command.drafts[0].run_id for command in shared.log.commands if command.session_id == session and command.kind == "claim"
    )
    assert set(asked.values()) == {1}


def test_one_run_whose_history_cannot_be_read_is_refused_unless_the_worker_copes(client: httpx.Client, shared: World, lane: str) -> None:
    run = erased(client, shared, lane)
    session = next(row.session_id for row in shared.log.table.model.claimable("ws_" + "a" * 32, [lane], None, partitions=(0,), limit=1))
    path = f"/v1/sessions/{session}/runs/{run}/claim"
    assert post(client, path, status=409)["missing"] == ["2-2 content.erased"]
    assert post(client, path, {"incomplete_ok": True})["generation"] == 1


def test_a_caller_who_has_left_is_granted_nothing(client: httpx.Client, shared: World, lane: str) -> None:
    with pytest.raises(httpx.ReadTimeout):
        shared.client().post("/v1/runs/claim", json={"lanes": [lane], "wait_ms": 20_000}, headers=key(), timeout=0.2)
    eventually(lambda: shared.gateway.claims.taken == 0)
    run = opened(client, new_session(client), lane=lane)
    assert take(client, lane)["run_id"] == run


def test_a_claim_that_waits_ends_with_the_gateway(client: httpx.Client, shared: World, lane: str) -> None:
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(take(shared.client(), lane, status=204, wait_ms=20_000)))
    waiting.start()
    eventually(lambda: shared.gateway.claims.taken == 1)
    shared.stop_streams()
    waiting.join()
    shared.loop.call_soon_threadsafe(shared.gateway.stopping.clear)
    assert found == [None]


def test_more_claims_than_may_wait_are_told_to_come_again(client: httpx.Client, shared: World, lane: str) -> None:
    shared.gateway.claims.limit, before = 0, shared.gateway.claims.limit
    try:
        assert take(client, lane, status=503)["code"] == "service.overloaded"
    finally:
        shared.gateway.claims.limit = before


def test_tables_that_cannot_be_asked_are_told(client: httpx.Client, shared: World, lane: str) -> None:
    shared.owners.failure = NotOwner("away")
    try:
        assert take(client, lane, status=503)["code"] == "service.not_owner"
    finally:
        shared.owners.failure = None


def test_a_key_takes_runs_of_its_own_workspace_and_subject_only(client: httpx.Client, shared: World, lane: str) -> None:
    opened(client, new_session(client, subject="noah"), lane=lane)
    mine = post(client, "/v1/sessions", {"subject": "mia"}, status=201)
    assert take(shared.client(workspace_id=OTHER_WORKSPACE), lane, status=204) is None
    restricted = shared.client(subject_id=mine["subject_id"])
    assert take(restricted, lane, status=204) is None
    run = opened(client, mine["session_id"], lane=lane)
    assert take(restricted, lane)["run_id"] == run


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "lanes"),
        ({"lanes": []}, "$.lanes"),
        ({"lanes": [f"l{number}" for number in range(17)]}, "$.lanes"),
        ({"lanes": ["two words"]}, "$.lanes[0]"),
        ({"lanes": [""]}, "$.lanes[0]"),
        ({"lanes": ["x" * 129]}, "$.lanes[0]"),
        ({"lanes": "main"}, "$.lanes"),
        ({"lanes": ["a"], "wait_ms": 30_001}, "$.wait_ms"),
        ({"lanes": ["a"], "wait_ms": -1}, "$.wait_ms"),
        ({"lanes": ["a"], "lease_ms": 999}, "$.lease_ms"),
        ({"lanes": ["a"], "lease_ms": 3_600_001}, "$.lease_ms"),
        ({"lanes": ["a"], "incomplete_ok": "yes"}, "$.incomplete_ok"),
        ({"lanes": ["a"], "harness_revision": "two words"}, "$.harness_revision"),
        ({"lanes": ["a"], "environment_revision": ""}, "$.environment_revision"),
        ({"lanes": ["a"], "lane": "a"}, "lane"),
    ],
)
def test_a_claim_that_does_not_fit_is_refused(client: httpx.Client, body: dict[str, Any], place: str) -> None:
    problem = post(client, "/v1/runs/claim", body, status=422)
    assert problem["code"] == "request.invalid"
    assert place in problem["detail"]


def test_a_claim_may_ask_for_a_session_at_a_sequence(client: httpx.Client, lane: str) -> None:
    session = new_session(client)
    run = opened(client, session, lane=lane)
    for sequence, status in (("x", 400), ("9", 204), ("2", 200)):
        headers = {"session-streams-expected-sequence": sequence, **key()}
        response = client.post("/v1/runs/claim", json={"lanes": [lane]}, headers=headers)
        assert response.status_code == status
    assert response.json()["run_id"] == run


# -- replacements -----------------------------------------------------------------------------------------------------


def ready(client: httpx.Client) -> Worker:
    """An attempt that was ready, told of a checkpoint, and failed."""
    worker = worker_of(client, new_session(client), harness="h", harness_revision="h1", environment_revision="e1")
    worker.post(f"{worker.attempt}/ready")
    worker.say("work")
    worker.checkpoint()
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    return worker


def evidence(worker: Worker, **more: Any) -> dict[str, Any]:
    return {"replaces": 1, "frontier_sequence": worker.position, **EXACT, **more}


def test_a_ready_attempt_is_not_replaced_by_a_plain_claim(client: httpx.Client) -> None:
    worker = ready(client)
    problem = post(client, f"{worker.run}/claim", status=409)
    assert problem["code"] == "runtime.replacement_unavailable"
    assert "verification" in problem["missing"]


def test_a_replacement_names_everything_that_is_missing(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    worker.post(f"{worker.attempt}/ready")
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    problem = post(client, f"{worker.run}/replace", evidence(worker, replaces=7), status=409)
    assert problem["code"] == "runtime.replacement_unavailable"
    assert problem["missing"] == ["retained_bytes", "recovery_frontier", "verification"]


def test_a_replacement_with_all_its_evidence_is_granted(client: httpx.Client, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, asked = ready(client), []

    def verified(exact: ExactTuple) -> tuple[str, int]:
        asked.append(exact)
        return DIGEST, time.time_ns() // 1000

    monkeypatch.setattr(shared.gateway.support, "verification_for", verified)
    grant = post(client, f"{worker.run}/replace", evidence(worker))
    assert grant["generation"] == 2
    assert grant["recovery"]["mode"] == "checkpoint_restore"
    assert asked == [ExactTuple(release=shared.gateway.support.release, **EXACT)]
    types = [each["type"] for each in client.get(f"{worker.session}/events").json()["events"]]
    assert types[-3:] == ["attempt.replaced", "attempt.started", "checkpoint.consumed"]


def test_a_repeated_replacement_is_told_the_same_grant(client: httpx.Client, shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ready(client)
    monkeypatch.setattr(shared.gateway.support, "verification_for", lambda exact: (DIGEST, time.time_ns() // 1000))
    first, again = (post(client, f"{worker.run}/replace", evidence(worker), idempotency_key=f"replace-{worker.run_id}") for _ in range(2))
    assert first == again


@pytest.mark.parametrize("name", ["replaces", "frontier_sequence", *EXACT])
@pytest.mark.parametrize("value", [None, "", "two words", -1, []])
def test_evidence_that_does_not_fit_is_refused(client: httpx.Client, name: str, value: Any) -> None:
    path = f"/v1/sessions/sess_{'0' * 32}/runs/run_{'0' * 32}/replace"
    body = {"replaces": 1, "frontier_sequence": 1, **EXACT, name: value}
    problem = post(client, path, body, status=422)
    assert name in problem["detail"]
    del body[name]
    assert name in post(client, path, body, status=422)["detail"]
