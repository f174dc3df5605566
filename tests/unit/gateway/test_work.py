"""Threads, Turns, Runs, attempts, waits, approvals, steering, effects: one path through each route, and its refusals."""

from typing import Any

import httpx
import pytest

from tests.support.gateway import World, message, new_session, post
from tests.support.workers import worker_of

ACTION, REQUEST, RECEIPT = ("sha256:" + digit * 64 for digit in "123")


class Worker:
    """Holds a Run and keeps its report up to date."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self.client, self.session = client, f"/v1/sessions/{session}"
        self.run = str(post(client, f"{self.session}/runs", {"harness": "test", "lane": "main"}, status=201)["run_id"])
        self.path = f"{self.session}/runs/{self.run}"
        self.grant = post(client, f"{self.path}/claim", {"lease_ms": 60_000})
        self.attempt = f"{self.path}/attempts/{self.grant['generation']}"
        self.position = self.grant["run_sequence"]

    @property
    def report(self) -> str:
        return f"{self.run};{self.grant['generation']};{self.grant['native_task_id']};{self.position}"

    def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = post(self.client, path, body, status=status, session_streams_report=self.report)
        self.position = answer.get("run_sequence", self.position)
        return answer


@pytest.fixture
def session(client: httpx.Client) -> str:
    return new_session(client)


@pytest.fixture
def worker(client: httpx.Client, session: str) -> Worker:
    return Worker(client, session)


def types(client: httpx.Client, session: str) -> list[str]:
    return [event["type"] for event in client.get(f"/v1/sessions/{session}/events?limit=1000").json()["events"]]


def test_threads_and_turns(client: httpx.Client, session: str) -> None:
    path = f"/v1/sessions/{session}"
    main = post(client, f"{path}/threads", {}, status=201)["thread_id"]
    child = post(client, f"{path}/threads", {"kind": "child", "parent_thread_id": main}, status=201)["thread_id"]
    turn = post(client, f"{path}/turns", {"thread_id": child, "actor": "mia", "content": "go"}, status=201)["turn_id"]
    post(client, f"{path}/events", message(turn_id=turn, thread_id=child))
    post(client, f"{path}/turns/{turn}/complete", {"outcome": "answered"})
    assert types(client, session)[1:] == ["thread.opened", "thread.opened", "turn.started", "message.appended", "turn.completed"]
    assert post(client, f"{path}/turns/{turn}/complete", status=409)["code"] == "runtime.already_settled"
    assert post(client, f"{path}/turns/turn_{'0' * 32}/complete", status=404)["code"] == "resource.not_found"


def test_a_run_is_claimed_made_ready_reported_into_and_completed(client: httpx.Client, session: str, worker: Worker) -> None:
    ready = worker.post(f"{worker.attempt}/ready")
    assert ready["native_task_id"] == worker.grant["native_task_id"]
    worker.post(f"{worker.session}/events", message(run_id=worker.run))
    worker.post(f"{worker.session}/events", {"type": "child.started", "run_id": worker.run, "attributes": {"child_id": "chld_" + "1" * 32}})
    worker.post(f"{worker.path}/complete", {"outcome": "solved", "reward": 0.5, "content": {"notes": "x"}})
    assert types(client, session)[1:] == [
        "run.accepted", "attempt.started", "run.started", "attempt.ready", "message.appended", "child.started", "run.completed",
    ]  # fmt: skip
    event = client.get(f"/v1/sessions/{session}/events?after_sequence=7").json()["events"][0]
    assert event["attributes"] == {"outcome": "solved", "reward": 0.5}
    assert (event["attempt_generation"], event["native_task_id"]) == (1, worker.grant["native_task_id"])


def test_a_run_that_is_held_is_not_granted_again(client: httpx.Client, worker: Worker) -> None:
    assert post(client, f"{worker.path}/claim", status=409)["code"] == "runtime.attempt_not_claimable"


def test_a_repeated_claim_returns_the_live_grant(client: httpx.Client, session: str) -> None:
    run = post(client, f"/v1/sessions/{session}/runs", status=201)["run_id"]
    grants = [post(client, f"/v1/sessions/{session}/runs/{run}/claim", idempotency_key="claim-once") for _ in range(2)]
    assert grants[0] == grants[1]


def test_a_renewal_extends_the_lease_and_appends_nothing(client: httpx.Client, session: str, worker: Worker) -> None:
    before = types(client, session)
    renewed = worker.post(f"{worker.attempt}/renew", {"lease_ms": 3_600_000})
    assert renewed["lease_expires_at"] > worker.grant["lease_expires_at"]
    assert renewed["position"] == worker.grant["position"]
    assert types(client, session) == before


def test_a_renewal_needs_no_run_position(client: httpx.Client, worker: Worker) -> None:
    report = worker.report.rpartition(";")[0]
    post(client, f"{worker.attempt}/renew", session_streams_report=report)


def test_a_report_with_an_old_position_is_told_the_actual_one(client: httpx.Client, worker: Worker) -> None:
    worker.post(f"{worker.attempt}/ready")
    worker.position -= 1
    problem = worker.post(f"{worker.path}/complete", status=409)
    assert (problem["code"], problem["actual_run_sequence"]) == ("runtime.position_conflict", worker.position + 1)


def test_another_principal_cannot_report(worker: Worker, shared: World) -> None:
    worker.client = shared.client()
    assert worker.post(f"{worker.attempt}/ready", status=409)["code"] == "runtime.attempt_fenced"


def test_a_failed_attempt_is_followed_by_a_new_generation(client: httpx.Client, worker: Worker) -> None:
    worker.post(f"{worker.attempt}/fail", {"reason": "harness_crashed"})
    assert post(client, f"{worker.path}/claim")["generation"] == 2
    assert worker.post(f"{worker.attempt}/ready", status=409)["code"] == "runtime.attempt_fenced"


def test_a_run_may_fail_and_may_be_cancelled(client: httpx.Client, session: str, worker: Worker) -> None:
    worker.post(f"{worker.path}/complete", {"result": "failed", "reason": "no_answer"})
    other = post(client, f"/v1/sessions/{session}/runs", status=201)["run_id"]
    post(client, f"/v1/sessions/{session}/runs/{other}/cancel", {"reason": "not_needed"})
    assert types(client, session)[-3:] == ["run.failed", "run.accepted", "run.cancelled"]
    assert post(client, f"{worker.path}/cancel", status=409)["code"] == "runtime.already_settled"


def test_a_report_must_be_there_and_name_the_attempt_of_the_path(client: httpx.Client, worker: Worker) -> None:
    assert post(client, f"{worker.attempt}/ready", status=400)["code"] == "request.malformed"
    other = f"{worker.path}/attempts/2/ready"
    assert worker.post(other, status=422)["code"] == "request.invalid"


def test_a_wait_holds_the_run_until_it_is_answered(client: httpx.Client, session: str, worker: Worker) -> None:
    wait = worker.post(f"{worker.session}/waits", {"kind": "human", "content": "which one?"}, status=201)["wait_id"]
    post(client, f"{worker.session}/waits/{wait}/answer", {"actor": "mia", "content": "that one"})
    assert types(client, session)[-4:] == ["wait.opened", "run.waiting", "wait.answered", "run.resumed"]
    assert post(client, f"{worker.session}/waits/{wait}/answer", status=409)["code"] == "runtime.already_settled"


def test_a_wait_outside_of_runs_needs_no_report(client: httpx.Client, session: str) -> None:
    wait = post(client, f"/v1/sessions/{session}/waits", {"kind": "timer", "expires_at": "2099-01-01T00:00:00Z"}, status=201)["wait_id"]
    post(client, f"/v1/sessions/{session}/waits/{wait}/answer")
    assert types(client, session)[-2:] == ["wait.opened", "wait.answered"]


def test_an_approval_is_for_one_exact_action(client: httpx.Client, session: str, worker: Worker) -> None:
    approval = worker.post(f"{worker.session}/approvals", {"action_digest": ACTION}, status=201)["approval_id"]
    decide = f"{worker.session}/approvals/{approval}/decide"
    problem = post(client, decide, {"decision": "granted", "action_digest": REQUEST}, status=409)
    assert problem["code"] == "runtime.approval_mismatch"
    post(client, decide, {"decision": "granted", "action_digest": ACTION, "actor": "boss"})
    assert types(client, session)[-2:] == ["approval.requested", "approval.granted"]
    assert post(client, decide, {"decision": "denied", "action_digest": ACTION}, status=409)["code"] == "runtime.already_settled"


def test_steering_belongs_to_a_run_that_is_under_way(client: httpx.Client, session: str, worker: Worker) -> None:
    path = f"{worker.session}/steering"
    post(client, path, {"kind": "hint", "target_run_id": worker.run, "content": "left"}, status=201)
    assert types(client, session)[-1] == "steering.applied"
    worker.position += 1
    worker.post(f"{worker.path}/complete")
    problem = post(client, path, {"kind": "hint", "target_run_id": worker.run}, status=409)
    assert problem["code"] == "runtime.steering_unavailable"


def test_an_effect_is_told_before_it_leaves_and_settled_once(client: httpx.Client, session: str, worker: Worker) -> None:
    body = {"provider": "airline", "request_digest": REQUEST, "action_digest": ACTION, "content": {"pay": 1}}
    effect = worker.post(f"{worker.session}/effects", body, status=201)["effect_id"]
    assert worker.post(f"{worker.session}/effects", body, status=409)["code"].startswith("runtime.effect_in")
    worker.post(f"{worker.session}/effects/{effect}/receipt", {"receipt_digest": RECEIPT})
    assert types(client, session)[-2:] == ["effect.dispatched", "effect.receipt_accepted"]
    reconcile = {"evidence_kind": "provider_lookup", "outcome": "succeeded"}
    assert post(client, f"{worker.session}/effects/{effect}/reconcile", reconcile, status=409)["code"] == "runtime.already_settled"


def test_an_effect_in_doubt_is_settled_by_evidence(client: httpx.Client, session: str, worker: Worker) -> None:
    body = {"provider": "airline", "request_digest": REQUEST, "action_digest": ACTION}
    effect = worker.post(f"{worker.session}/effects", body, status=201)["effect_id"]
    reconcile = {"evidence_kind": "provider_lookup", "outcome": "not_performed"}
    path = f"{worker.session}/effects/{effect}/reconcile"
    assert post(client, path, reconcile, status=409)["code"] == "runtime.effect_in_flight"
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    post(client, path, reconcile)
    assert "effect.reconciled" in types(client, session)


def test_an_effect_whose_approval_was_not_granted_is_refused(worker: Worker) -> None:
    approval = worker.post(f"{worker.session}/approvals", {"action_digest": ACTION}, status=201)["approval_id"]
    body = {"provider": "airline", "request_digest": REQUEST, "action_digest": ACTION, "approval_id": approval}
    assert worker.post(f"{worker.session}/effects", body, status=409)["code"] == "runtime.approval_required"


def test_a_report_without_its_position_is_told_which_part_is_missing(client: httpx.Client) -> None:
    session = new_session(client)
    worker = worker_of(client, session)
    three = worker.report.rpartition(";")[0]
    refused = post(client, f"{worker.session}/events", message("late", run_id=worker.run_id), status=400, session_streams_report=three)
    assert refused["detail"] == (
        "Session-Streams-Report: expected_run_sequence is missing, the fourth part of"
        " run_id;generation;native_task_id;expected_run_sequence"
    )
    post(client, f"{worker.attempt}/renew", session_streams_report=three)


def test_who_failed_is_told_that_its_generation_is_over(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    worker.post(f"{worker.attempt}/fail", {"reason": "lost"})
    assert worker.upload(b"late").json()["detail"] == f"{worker.run_id}: generation 1 is over"
