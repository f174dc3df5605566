"""What a worker repeats is its own: another principal or attempt under the same key is not told of what it did not do."""

import httpx
import pytest

from tests.support.gateway import World, message, new_session
from tests.support.workers import Worker, claimed, opened, worker_of

DIGEST = "sha256:" + "a" * 64
MISMATCH = (409, "request.idempotency_mismatch")


@pytest.fixture
def other(shared: World) -> httpx.Client:
    """Another principal of the same workspace."""
    return shared.client()


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def dispatch(worker: Worker, name: str) -> httpx.Response:
    effect = {"provider": "airline", "request_digest": DIGEST, "action_digest": DIGEST}
    headers = {"idempotency-key": name, "session-streams-report": worker.report}
    return worker.client.post(f"{worker.session}/effects", json=effect, headers=headers)


def test_two_principals_with_one_key_are_not_both_granted_a_run(client: httpx.Client, other: httpx.Client) -> None:
    session = new_session(client)
    run = opened(client, session)
    path, headers = f"/v1/sessions/{session}/runs/{run}/claim", {"idempotency-key": "claim-1"}
    mine = client.post(path, json={}, headers=headers)
    assert mine.status_code == 200
    assert code_of(other.post(path, json={}, headers=headers)) == MISMATCH
    assert client.post(path, json={}, headers=headers).json() == mine.json()


def test_two_principals_with_one_key_take_two_runs_of_a_lane(client: httpx.Client, other: httpx.Client) -> None:
    session = new_session(client)
    for _ in range(2):
        opened(client, session, lane="two-principals")
    body, headers = {"lanes": ["two-principals"], "wait_ms": 0}, {"idempotency-key": "claim-lane"}
    answers = [each.post("/v1/runs/claim", json=body, headers=headers) for each in (client, other)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.json()["run_id"] for answer in answers}) == 2


def test_a_run_of_a_lane_that_the_same_key_got_another_principal_is_passed_over(
    client: httpx.Client, other: httpx.Client, shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(client, new_session(client), lane="one-run")
    rows = shared.log.table.model.claimable("ws_" + "a" * 32, ["one-run"], None, partitions=(0,), limit=8)

    async def old(*_: object, **__: object) -> object:
        return rows

    monkeypatch.setattr(shared.owners, "claimable", old)
    body, headers = {"lanes": ["one-run"], "wait_ms": 0}, {"idempotency-key": "one-key"}
    assert [each.post("/v1/runs/claim", json=body, headers=headers).status_code for each in (client, other)] == [200, 204]


def test_a_later_attempt_is_not_told_of_the_dispatch_of_the_one_before(client: httpx.Client) -> None:
    first = worker_of(client, new_session(client))
    told = dispatch(first, f"step-{first.run_id}")
    assert told.status_code == 201
    assert dispatch(first, f"step-{first.run_id}").json() == told.json()
    first.position = told.json()["run_sequence"]
    first.post(f"{first.attempt}/fail", {"reason": "died"})
    later = claimed(client, first.session_id, first.run_id)
    assert code_of(dispatch(later, f"step-{first.run_id}")) == MISMATCH
    assert code_of(dispatch(later, f"fresh-{first.run_id}")) == (409, "runtime.effect_indeterminate")


def test_a_fenced_worker_is_not_told_of_what_its_successor_said(client: httpx.Client) -> None:
    first = worker_of(client, new_session(client))
    first.post(f"{first.attempt}/fail", {"reason": "died"})
    later = claimed(client, first.session_id, first.run_id)

    def said(worker: Worker) -> httpx.Response:
        headers = {"idempotency-key": f"m-{first.run_id}", "session-streams-report": worker.report}
        return client.post(f"{worker.session}/events", json=message("hi", run_id=worker.run_id), headers=headers)

    assert said(later).status_code == 200
    assert code_of(said(first)) == MISMATCH


def test_a_worker_that_lost_the_answer_to_ready_repeats_it_under_its_old_task(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    worker.post(f"{worker.attempt}/ready")
    # The harness starts anew: this answer has the task that every later report names.
    headers = {"idempotency-key": f"again-{worker.run_id}", "session-streams-report": worker.report}
    answers = [client.post(f"{worker.attempt}/ready", json={}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["native_task_id"] != worker.grant["native_task_id"]
    worker.grant["native_task_id"], worker.position = answers[1].json()["native_task_id"], answers[1].json()["run_sequence"]
    worker.say("on it goes")


def test_the_position_in_a_report_makes_no_other_request(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    told = dispatch(worker, f"moved-{worker.run_id}")
    worker.position = told.json()["run_sequence"]
    assert dispatch(worker, f"moved-{worker.run_id}").json() == told.json()


def test_what_nobody_asks_as_a_worker_may_be_repeated_by_another_principal(client: httpx.Client, other: httpx.Client) -> None:
    session = new_session(client)
    headers = {"idempotency-key": f"shared-{session}"}
    answers = [each.post(f"/v1/sessions/{session}/events", json=message("hi"), headers=headers) for each in (client, other)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


def test_nobody_takes_the_name_of_anothers_upload(client: httpx.Client, other: httpx.Client) -> None:
    session = new_session(client)
    squatter, worker = worker_of(other, session), worker_of(client, session)
    name = f"next-{worker.run_id}"
    taken = squatter.upload(b"poison", idempotency_key=name)
    mine = worker.upload(b"real", idempotency_key=name)
    assert (taken.status_code, mine.status_code) == (201, 201)
    assert taken.json()["upload_id"] != mine.json()["upload_id"]
    assert worker.upload(b"real", idempotency_key=name).json() == mine.json()


def test_another_worker_does_not_repeat_a_report_by_a_plain_request(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    name = {"idempotency-key": f"plain-{worker.run_id}"}
    body = message("hi", run_id=worker.run_id)
    worker_says = client.post(f"{worker.session}/events", json=body, headers={**name, "session-streams-report": worker.report})
    assert worker_says.status_code == 200
    assert code_of(client.post(f"{worker.session}/events", json=body, headers=name)) == MISMATCH


def test_a_claim_by_name_is_told_what_was_decided_also_once_its_attempt_is_over(client: httpx.Client) -> None:
    session = new_session(client)
    run, name = opened(client, session), f"once-{session}"
    claims = []
    for _ in range(2):
        claims.append(client.post(f"/v1/sessions/{session}/runs/{run}/claim", json={}, headers={"idempotency-key": name}))
        worker = Worker(client, session, run, claims[-1].json())
        headers = {"idempotency-key": f"fail-{session}", **_reporting(worker)}
        assert client.post(f"{worker.attempt}/fail", json={"reason": "died"}, headers=headers).status_code == 200
    assert claims[0].json() == claims[1].json()
    renewal = client.post(f"{worker.attempt}/renew", json={}, headers={"idempotency-key": f"renew-{session}", **_reporting(worker)})
    assert code_of(renewal) == (409, "runtime.attempt_fenced")
    assert claimed(client, session, run).grant["generation"] == 2


def _reporting(worker: Worker) -> dict[str, str]:
    return {"session-streams-report": worker.report}
