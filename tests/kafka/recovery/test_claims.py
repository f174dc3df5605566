"""Rows of "Recovery" on a real broker, through HTTP: what a claim of an ordinary later Run says, and who gets it.

Seed *Checkpoints*, "Expiry can fall back to a retained log"; design 02, the table's first row and "Claims".
"""

import threading

import pytest

from session_streams import ApiError, Conflict
from tests.support.recovery_rows import (
    LEASE_MS,
    REVISIONS,
    SHORT,
    SHORTEST_LEASE_MS,
    ZDR,
    Installation,
    Worker,
    at_work,
    last_event,
    listed,
    material,
    new_run,
    new_session,
    past,
    texts,
    types_of,
    worker_at,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
EXPIRED, HISTORY = "runtime.checkpoint_expired", "runtime.session_history_unavailable"


def later(worker: Worker, **claim: str) -> Worker:
    """The Run before is over; an ordinary later Run of the session, that names no checkpoint, is claimed."""
    worker.post(f"/runs/{worker.run_id}/complete", {})
    return worker_at(worker.client, worker.session_id).claim(**claim)


def restored(worker: Worker) -> tuple[bool, bool, bool, bool]:
    """History, files, native continuation, live processes."""
    told = worker.recovery["restores"]
    return told["history"], told["files"], told["native_continuation"], told["live_processes"]


def withheld(worker: Worker, checkpoint_id: str) -> bool:
    """Whether its bytes are given out no more: a process that was not told may have their secret in its cache for a moment."""
    try:
        material(worker.client, worker.session_id, checkpoint_id)
    except Conflict:
        return True
    return False


# -- an ordinary later Run


def test_a_claim_restores_the_newest_eligible_checkpoint_of_the_session(installed: Installation) -> None:
    worker = at_work(installed.client())
    worker.say("one")
    worker.checkpoint(snapshot=b"older")
    worker.say("two")
    newest = worker.checkpoint(snapshot=b"newest disk", native=b"native bytes")
    worker.say("three")
    second = later(worker)
    recovery = second.recovery
    assert (recovery["mode"], recovery["reason"], recovery["checkpoint_id"]) == ("checkpoint_restore", None, newest["checkpoint_id"])
    assert (recovery["through_sequence"], recovery["through_event_id"]) == (newest["through"]["sequence"], newest["through"]["event_id"])
    assert recovery["complete"]
    assert restored(second) == (True, True, True, False)
    assert material(second.client, second.session_id, newest["checkpoint_id"]) == b"newest disk"
    assert material(second.client, second.session_id, newest["checkpoint_id"], "native") == b"native bytes"
    assert texts(second.conversation()) == ["one", "two", "three"]
    consumed = installed.ledger.events(worker.session_id)[-1]
    assert (consumed.type, consumed.run_id) == ("checkpoint.consumed", second.run_id)


def test_native_continuation_needs_only_what_lies_behind_its_boundary_and_a_rebuild_needs_the_whole_history(
    installed: Installation,
) -> None:
    worker = at_work(installed.client())
    worker.say("erased before the boundary")
    installed.tell_erased(worker.session_id)
    worker.say("kept")
    rebuilt = worker.checkpoint()
    second = worker_at(worker.client, worker.session_id)
    worker.post(f"/runs/{worker.run_id}/complete", {})
    with installed.refused(worker.session_id, HISTORY) as refusal:
        second.claim()
    assert [each.split(" ")[1] for each in refusal.error.missing] == ["content.erased"]
    second.claim(incomplete_ok=True)
    assert (second.recovery["checkpoint_id"], second.recovery["complete"]) == (rebuilt["checkpoint_id"], False)
    native = second.checkpoint(native=b"native")
    third = later(second)
    assert (third.recovery["checkpoint_id"], third.recovery["complete"]) == (native["checkpoint_id"], True)
    assert restored(third) == (False, True, True, False)


def test_after_the_latest_snapshot_expired_the_claim_says_event_log_rebuild_and_gives_the_conversation_but_none_of_the_old_disk(
    installed: Installation,
) -> None:
    worker = at_work(installed.client(SHORT))
    worker.say("still readable")
    checkpoint = worker.checkpoint(native=b"native", snapshot=b"the old disk")
    assert material(worker.client, worker.session_id, checkpoint["checkpoint_id"]) == b"the old disk"
    past(checkpoint["expires_at"])
    second = later(worker)
    recovery = second.recovery
    assert (recovery["mode"], recovery["reason"], recovery["checkpoint_id"]) == ("event_log_rebuild", "checkpoint_expired", None)
    assert (recovery["complete"], restored(second)) == (True, (True, False, False, False))
    assert texts(second.conversation()) == ["still readable"]
    for part in ("snapshot", "native"):
        with installed.refused(worker.session_id, EXPIRED):
            material(second.client, second.session_id, checkpoint["checkpoint_id"], part)
    (shown,) = listed(second.client, second.session_id)
    assert shown["expires_at"] == checkpoint["expires_at"]


def test_where_no_checkpoint_was_made_the_claim_says_event_log_rebuild_with_reason_no_checkpoint(installed: Installation) -> None:
    worker = at_work(installed.client())
    assert (worker.recovery["mode"], worker.recovery["reason"]) == ("event_log_rebuild", "no_checkpoint")
    assert restored(worker) == (True, False, False, False)


def test_an_erased_checkpoint_is_not_restored_and_an_incomplete_history_is_refused_or_coped_with(installed: Installation) -> None:
    """Subject erasure makes content positions unreadable and prevents an exact reconstruction."""
    worker = at_work(installed.client())
    worker.say("gone soon")
    checkpoint = worker.checkpoint()
    second = worker_at(worker.client, worker.session_id)
    worker.post(f"/runs/{worker.run_id}/complete", {})
    installed.erase(worker.session_id, *checkpoint["uploads"])
    with installed.refused(worker.session_id, HISTORY) as refusal:
        second.claim()
    (range_, reason), = (each.split(" ") for each in refusal.error.missing)  # fmt: skip
    assert reason == "content.erased"
    second.claim(incomplete_ok=True)
    recovery = second.recovery
    assert (recovery["mode"], recovery["reason"], recovery["complete"]) == ("event_log_rebuild", "checkpoint_erased", False)
    told = [(f"{each['first_sequence']}-{each['last_sequence']}", each["reason"]) for each in recovery["unavailable"]]
    assert told == [(range_, reason)]
    assert restored(second) == (False, False, False, False)
    eventually(lambda: texts(second.conversation()) == [], timeout_s=30)
    said = second.conversation()
    assert [line["reason"] for line in said if line["kind"] == "gap"] == ["content.erased"]
    assert said[-1]["complete"] is False
    eventually(lambda: withheld(worker, checkpoint["checkpoint_id"]), timeout_s=30)
    with installed.refused(worker.session_id, EXPIRED):
        material(second.client, second.session_id, checkpoint["checkpoint_id"])


@pytest.mark.parametrize("changed", ["harness_revision", "environment_revision"])
def test_a_worker_of_another_revision_rebuilds_and_says_checkpoint_incompatible(installed: Installation, changed: str) -> None:
    worker = at_work(installed.client())
    worker.say("one")
    worker.checkpoint()
    second = later(worker, **{**REVISIONS, changed: "another"})
    assert (second.recovery["mode"], second.recovery["reason"]) == ("event_log_rebuild", "checkpoint_incompatible")
    assert restored(second) == (True, False, False, False)


def test_under_zero_data_retention_structure_stays_content_and_snapshots_are_omitted_and_the_claim_says_so(installed: Installation) -> None:
    client = installed.client(ZDR)
    worker = at_work(client)
    worker.say("never kept")
    checkpoint = worker.checkpoint(native=b"native", snapshot=b"disk")
    assert checkpoint["retained"] is False
    assert not list((installed.settings.data_dir / "blobs").rglob(f"*{checkpoint['uploads'][0]}*"))
    second = worker_at(client, worker.session_id)
    worker.post(f"/runs/{worker.run_id}/complete", {})
    with installed.refused(worker.session_id, HISTORY) as refusal:
        second.claim()
    assert [each.split(" ")[1] for each in refusal.error.missing] == ["content.omitted"]
    second.claim(incomplete_ok=True)
    assert (second.recovery["mode"], second.recovery["reason"]) == ("event_log_rebuild", "zero_data_retention")
    assert restored(second) == (False, False, False, False)
    assert {line["reason"] for line in second.conversation() if line["kind"] == "gap"} == {"content.omitted"}
    assert "checkpoint.created" in types_of(installed, worker.session_id)
    with installed.refused(worker.session_id, EXPIRED):
        material(client, worker.session_id, checkpoint["checkpoint_id"])


def test_recovery_preserves_the_original_run_its_inputs_pinned_context_and_waits_and_selects_nothing_newer(
    installed: Installation,
) -> None:
    client = installed.client()
    session_id = new_session(client)
    asked = {"harness": "tests", "lane": "pins", "content": {"text": "the task"}, **REVISIONS}
    worker = Worker(client, session_id, new_run(client, session_id, **asked)).claim()
    pin = {"pin_kind": "policy", "revision": "r-1", "digest": "sha256:" + "1" * 64}
    worker.post("/events", {"type": "context.pinned", "run_id": worker.run_id, "attributes": pin})
    wait_id = worker.post("/waits", {"kind": "human"})["wait_id"]
    first = worker.grant["run"]
    worker.fail()
    second = Worker(installed.client(number=1), session_id, worker.run_id).claim()
    assert second.grant["run"] == first
    assert second.grant["pinned_context"] == [pin]
    assert second.grant["open_waits"] == [wait_id]
    assert second.generation == worker.generation + 1
    assert types_of(installed, session_id).count("run.accepted") == 1
    assert texts(second.conversation()) == ["the task"]
    client.request("POST", f"/v1/sessions/{session_id}/waits/{wait_id}/answer", {})
    assert types_of(installed, session_id)[-2:] == ["wait.answered", "run.resumed"]


# -- who gets a Run


def race(installed: Installation, claims: list[Worker], path: str | None = None, **body: object) -> list[Worker]:
    """All at once, each a principal of its own; those that were granted the Run."""
    granted: list[Worker] = []
    refused: list[ApiError] = []
    together = threading.Barrier(len(claims))

    def claim(worker: Worker) -> None:
        together.wait(30)
        try:
            answer = worker.client.request("POST", path or f"{worker.run}/claim", {"lease_ms": LEASE_MS, **body})
        except ApiError as error:
            refused.append(error)
        else:
            if answer.status == 200:
                granted.append(worker.granted(answer.json()))

    threads = [threading.Thread(target=claim, args=(worker,)) for worker in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {error.code for error in refused} <= {"runtime.attempt_not_claimable"}
    return granted


@pytest.mark.parametrize("by_lane", [False, True], ids=["of one Run", "by lane"])
def test_exactly_one_of_eight_racing_claims_wins(installed: Installation, by_lane: bool) -> None:
    session_id = new_session(installed.client())
    run_id = new_run(installed.client(), session_id, lane="race")
    claims = [Worker(installed.client(number=number), session_id, run_id) for number in range(8)]
    if by_lane:
        (winner,) = race(installed, claims, "/v1/runs/claim", lanes=["race", "another"], wait_ms=1500)
    else:
        (winner,) = race(installed, claims)
    assert (winner.grant["run_id"], winner.generation) == (run_id, 1)
    assert types_of(installed, session_id).count("attempt.started") == 1
    winner.post(f"/runs/{run_id}/complete", {})


def test_a_repeated_claim_returns_the_live_attempt_by_lane_too(installed: Installation) -> None:
    client = installed.client()
    worker = worker_at(client, new_session(client), lane="again")
    first = worker.claim(key="claim-again").grant
    events = installed.ledger.hashes(worker.session_id)
    assert worker.claim(key="claim-again").grant == first
    assert installed.ledger.hashes(worker.session_id) == events

    other = worker_at(client, new_session(client), lane="again-by-lane")
    body = {"lanes": ["again-by-lane"], "lease_ms": LEASE_MS, "wait_ms": 5000}
    first, again = (client.request("POST", "/v1/runs/claim", body, key="lane-again").json() for _ in range(2))
    assert (first["run_id"], first["generation"], first["native_task_id"]) == (other.run_id, again["generation"], again["native_task_id"])
    assert types_of(installed, other.session_id).count("attempt.started") == 1


def test_renewals_leave_the_log_as_it_is_and_a_lapsed_lease_fails_the_attempt_through_the_custodian(installed: Installation) -> None:
    client = installed.client()
    worker = worker_at(client, new_session(client)).claim(lease_ms=2 * SHORTEST_LEASE_MS)
    before = installed.ledger.hashes(worker.session_id)
    renewed = worker.post(f"/runs/{worker.run_id}/attempts/{worker.generation}/renew", {"lease_ms": 3 * SHORTEST_LEASE_MS})
    assert renewed["lease_expires_at"] > worker.grant["lease_expires_at"]
    assert installed.ledger.hashes(worker.session_id) == before
    eventually(lambda: types_of(installed, worker.session_id)[-1] == "attempt.failed", timeout_s=20)
    failed = installed.ledger.events(worker.session_id)[-1]
    assert (failed.attempt_generation, failed.attributes.reason) == (1, "lease_lapsed")  # type: ignore[union-attr]
    with installed.refused(worker.session_id, "runtime.attempt_fenced"):
        worker.say("late")
    heir = Worker(installed.client(number=1), worker.session_id, worker.run_id).claim()
    assert heir.generation == 2, "an attempt that never became ready is replaced freely"


# -- what is not offered


def test_handoff_and_steering_of_what_is_over_are_refused_and_stand_in_the_support_catalogue(installed: Installation) -> None:
    client = installed.client()
    session_id = new_session(client)
    thread_id = client.request("POST", f"/v1/sessions/{session_id}/threads", {}).json()["thread_id"]
    worker = worker_at(client, session_id, thread_id=thread_id, harness="one").claim()
    with installed.refused(session_id, "runtime.handoff_unavailable"):
        new_run(client, session_id, thread_id=thread_id, harness="another")
    steer = {"kind": "hint", "target_run_id": worker.run_id}
    client.request("POST", f"/v1/sessions/{session_id}/steering", steer)
    worker.seen = last_event(client, session_id)["sequence"]
    worker.post(f"/runs/{worker.run_id}/complete", {})
    with installed.refused(session_id, "runtime.steering_unavailable"):
        client.request("POST", f"/v1/sessions/{session_id}/steering", steer)
    rows = client.request("GET", "/v1/support/capabilities").json()["capabilities"]
    refusals = {row["capability"]: row["refusal"] for row in rows if row["posture"] == "not_offered"}
    assert refusals["handoff"] == "runtime.handoff_unavailable"
    assert refusals["unsupported_steering"] == "runtime.steering_unavailable"
    assert "vendor_collaboration" in refusals
    offered = {row["capability"] for row in rows}
    assert offered >= {"collaboration", "steering", "checkpoints", "native_continuation", "portable_rebuild", "post_ready_replacement"}
