"""Rows of "Recovery" on a real broker, through HTTP: replacement on evidence, and who may report.

Seed *Checkpoints*, "Replacement attempts are evidence-gated"; seed *Session execution graph*, "One Session writer, replaceable
execution lanes".
"""

from typing import Any

import pytest

from session_streams import Client
from tests.support.commands import new_id
from tests.support.recovery_rows import (
    LANE,
    REVISIONS,
    SHORT,
    SHORTEST_LEASE_MS,
    Installation,
    Worker,
    at_work,
    listed,
    new_session,
    past,
    texts,
    types_of,
    worker_at,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
UNAVAILABLE, FENCED, POSITION = "runtime.replacement_unavailable", "runtime.attempt_fenced", "runtime.position_conflict"
SETTLED, NOT_FOUND = "runtime.already_settled", "resource.not_found"
EVERYTHING = ("retained_bytes", "compatibility", "recovery_frontier", "verification")


def dead(client: Client, *, checkpoint: bool = True) -> Worker:
    """A worker that was ready, and whose attempt failed."""
    worker = at_work(client)
    worker.say("accepted")
    if checkpoint:
        worker.checkpoint(native=b"native")
    worker.ready()
    worker.fail()
    return worker


def heir(installed: Installation, worker: Worker, number: int = 1) -> Worker:
    return Worker(installed.client(number=number), worker.session_id, worker.run_id)


# -- replacement


def test_a_failed_attempt_is_not_replaced_merely_because_a_checkpoint_exists_and_every_missing_item_is_reported(
    installed: Installation,
) -> None:
    worker = dead(installed.client(), checkpoint=False)
    second = heir(installed, worker)
    with installed.refused(worker.session_id, UNAVAILABLE) as refusal:
        second.claim()
    assert refusal.error.missing == EVERYTHING
    assert (listed(worker.client, worker.session_id), refusal.error.actual_run_sequence) == ([], worker.seen)

    checkpointed = dead(installed.client())
    with installed.refused(checkpointed.session_id, UNAVAILABLE) as refusal:
        heir(installed, checkpointed).claim(**REVISIONS)
    assert refusal.error.missing == ("recovery_frontier", "verification")
    assert types_of(installed, checkpointed.session_id).count("attempt.started") == 1, "no attempt is made up"


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"harness_revision": "another"}, ("compatibility", "verification")),
        ({"environment_revision": "another"}, ("compatibility", "verification")),
        ({"replaces": 2}, ("recovery_frontier",)),
        ({"frontier_sequence": 1}, ("recovery_frontier",)),
        ({"driver": "another"}, ("verification",)),
        ({"sandbox_provider_revision": "another"}, ("verification",)),
        ({"policy": "another"}, ("verification",)),
        ({"execution_target": "another"}, ("verification",)),
    ],
)
def test_evidence_of_another_worker_frontier_or_lane_is_none(
    installed: Installation, changes: dict[str, Any], missing: tuple[str, ...]
) -> None:
    worker = dead(installed.client())
    evidence = {"replaces": 1, "frontier_sequence": worker.seen, **changes}
    with installed.refused(worker.session_id, UNAVAILABLE) as refusal:
        heir(installed, worker).replace(**evidence)
    assert refusal.error.missing == missing


def test_without_retained_bytes_nothing_is_replaced_though_the_rest_is_there(installed: Installation) -> None:
    worker = dead(installed.client(), checkpoint=False)
    with installed.refused(worker.session_id, UNAVAILABLE) as refusal:
        heir(installed, worker).replace(replaces=1, frontier_sequence=worker.seen)
    assert "retained_bytes" in refusal.error.missing

    short = dead(installed.client(SHORT))
    (checkpoint,) = listed(short.client, short.session_id)
    past(checkpoint["expires_at"])
    second = Worker(installed.client(SHORT, 1), short.session_id, short.run_id)
    with installed.refused(short.session_id, UNAVAILABLE) as refusal:
        second.replace(replaces=1, frontier_sequence=short.seen)
    assert "retained_bytes" in refusal.error.missing


def test_with_all_evidence_the_same_durable_run_goes_on_at_a_new_fenced_generation_and_accepted_events_are_never_rewound(
    installed: Installation,
) -> None:
    worker = dead(installed.client())
    before = installed.ledger.hashes(worker.session_id)
    second = heir(installed, worker).replace(replaces=1, frontier_sequence=worker.seen)
    assert (second.grant["run_id"], second.generation, second.recovery["mode"]) == (worker.run_id, 2, "checkpoint_restore")
    assert second.grant["native_task_id"] != worker.grant["native_task_id"]
    assert installed.ledger.hashes(worker.session_id)[: len(before)] == before
    assert types_of(installed, worker.session_id)[len(before) :] == ["attempt.replaced", "attempt.started", "checkpoint.consumed"]
    started = installed.ledger.events(worker.session_id)[-2].attributes
    assert (started.replaces, started.frontier_sequence) == (1, worker.seen)  # type: ignore[union-attr]
    assert started.verification_digest is not None  # type: ignore[union-attr]
    assert types_of(installed, worker.session_id).count("run.accepted") == 1
    assert texts(second.conversation()) == ["accepted"]
    with installed.refused(worker.session_id, FENCED):
        worker.say("replaced, and speaking all the same")
    second.say("goes on")


def test_a_live_attempt_is_not_replaced_with_any_evidence(installed: Installation) -> None:
    worker = at_work(installed.client())
    worker.checkpoint()
    worker.ready()
    with installed.refused(worker.session_id, "runtime.attempt_not_claimable"):
        heir(installed, worker).replace(replaces=1, frontier_sequence=worker.seen)


def test_the_exact_lane_stands_verified_in_the_support_catalogue_and_no_other_does(installed: Installation) -> None:
    asked = {"capability": "post_ready_replacement", **LANE}
    client = installed.client()
    (row,) = client.request("GET", "/v1/support/capabilities", params=asked).json()["capabilities"]
    assert (row["posture"], row["readiness"]["ready"]) == ("supported", True)
    (other,) = client.request("GET", "/v1/support/capabilities", params={**asked, "driver": "another"}).json()["capabilities"]
    assert (other["posture"], other["readiness"]) == ("unobserved", {"ready": False, "missing": ["evidence_missing"]})
    assert other["refusal"] == UNAVAILABLE


# -- who may report


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"run_id": new_id("run")}, NOT_FOUND),
        ({"generation": 2}, FENCED),
        ({"native_task_id": new_id("task")}, FENCED),
        ({"seen": 1}, POSITION),
    ],
    ids=["run", "generation", "native task", "position"],
)
def test_a_report_must_match_the_original_run_generation_native_task_and_committed_position(
    installed: Installation, wrong: dict[str, Any], code: str
) -> None:
    worker = at_work(installed.client())
    worker.say("one")
    for path, body in (
        ("/events", {"type": "message.appended", "run_id": worker.run_id, "attributes": {"role": "assistant"}}),
        ("/checkpoints", checkpoint_of(worker)),
        ("/effects", effect()),
    ):
        with installed.refused(worker.session_id, code, 404 if code == NOT_FOUND else 409) as refusal:
            worker.post(path, body, report=worker.report(**wrong))
        if code == POSITION:
            assert refusal.error.actual_run_sequence == worker.seen
    worker.say("right")


def checkpoint_of(worker: Worker) -> dict[str, Any]:
    created = worker.client.request("GET", f"{worker.session}/events", params={"limit": "1"}).json()["events"][0]
    snapshot = {"provider": "vm", "reference": "img-1"}
    boundary = {"through_sequence": 1, "through_event_id": created["event_id"]}
    return {**boundary, "snapshot": snapshot, "continuation": {"kind": "event_log_rebuild"}}


def effect() -> dict[str, Any]:
    return {"provider": "a-provider", "request_digest": "sha256:" + "1" * 64, "action_digest": "sha256:" + "2" * 64}


def test_a_report_must_match_the_original_session(installed: Installation) -> None:
    worker = at_work(installed.client())
    elsewhere = Worker(worker.client, new_session(worker.client), worker.run_id).granted(worker.grant)
    with installed.refused(elsewhere.session_id, NOT_FOUND, 404):
        elsewhere.say("into another session")
    thief = Worker(installed.client(number=1), worker.session_id, worker.run_id).granted(worker.grant)
    with installed.refused(worker.session_id, FENCED):
        thief.say("with somebody else's grant")


def test_a_delayed_or_replaced_worker_cannot_publish_into_newer_work(installed: Installation) -> None:
    """One stops renewing, the custodian fails its attempt, another takes over; the first wakes up and tries every name it knows."""
    first = worker_at(installed.client(), new_session(installed.client())).claim(lease_ms=2 * SHORTEST_LEASE_MS)
    first.say("in time")
    eventually(lambda: types_of(installed, first.session_id)[-1] == "attempt.failed", timeout_s=20)
    with installed.refused(first.session_id, FENCED):
        first.say("delayed")
    second = heir(installed, first).claim()
    second.say("the newer work")
    stolen = {"generation": 2, "native_task_id": second.grant["native_task_id"], "seen": second.seen}
    for changes in ({}, {"generation": 2}, {"seen": second.seen}, stolen):
        with installed.refused(first.session_id, FENCED):
            first.say("replaced", report=first.report(**changes))
    with installed.refused(first.session_id, FENCED):
        first.post(f"/runs/{first.run_id}/attempts/1/renew", {})
    with installed.refused(first.session_id, FENCED):
        first.upload(b"bytes of the past")
    with installed.refused(first.session_id, FENCED):
        first.conversation()
    assert texts(second.conversation()) == ["in time", "the newer work"]
    # A harness that restarts serves under a new native task; the one before is fenced.
    second.ready()
    before = second.report()
    second.ready()
    with installed.refused(second.session_id, FENCED):
        second.say("from before the restart", report=f"{before.rpartition(';')[0]};{second.seen}")


def test_nobody_resurrects_settled_work(installed: Installation) -> None:
    client = installed.client()
    session_id = new_session(client)
    turn_id = client.request("POST", f"/v1/sessions/{session_id}/turns", {}).json()["turn_id"]
    worker = worker_at(client, session_id, turn_id=turn_id).claim()
    wait_id = worker.post("/waits", {"kind": "human"})["wait_id"]
    worker.seen = client.request("POST", f"/v1/sessions/{session_id}/waits/{wait_id}/answer", {}).json()["sequence"]
    effect_id = worker.post("/effects", effect())["effect_id"]
    receipt = {"receipt_digest": "sha256:" + "3" * 64}
    worker.post(f"/effects/{effect_id}/receipt", receipt)
    worker.post(f"/runs/{worker.run_id}/complete", {})
    client.request("POST", f"/v1/sessions/{session_id}/turns/{turn_id}/complete", {})
    evidence = {"evidence_kind": "provider_lookup", "outcome": "failed"}
    again: list[tuple[str, dict[str, Any]]] = [
        ("/events", {"type": "message.appended", "run_id": worker.run_id, "attributes": {"role": "assistant"}}),
        (f"/runs/{worker.run_id}/complete", {}),
        (f"/runs/{worker.run_id}/complete", {"result": "failed"}),
        (f"/effects/{effect_id}/receipt", receipt),
        ("/checkpoints", checkpoint_of(worker)),
    ]
    for path, body in again:
        with installed.refused(session_id, SETTLED):
            worker.post(path, body)
    unreported: list[tuple[str, dict[str, Any]]] = [
        (f"/runs/{worker.run_id}/claim", {}),
        (f"/runs/{worker.run_id}/replace", {**LANE, "replaces": 1, "frontier_sequence": worker.seen}),
        (f"/runs/{worker.run_id}/cancel", {}),
        (f"/turns/{turn_id}/complete", {}),
        (f"/waits/{wait_id}/answer", {}),
        (f"/effects/{effect_id}/reconcile", evidence),
        ("/runs", {"turn_id": turn_id}),
    ]
    for path, body in unreported:
        with installed.refused(session_id, SETTLED):
            client.request("POST", f"/v1/sessions/{session_id}{path}", body)
