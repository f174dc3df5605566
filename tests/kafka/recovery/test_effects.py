"""Rows of "Recovery" on a real broker, through HTTP: provider effects and approvals.

Seed *Checkpoints*, "checkpoints do not settle provider effects"; seed *Session execution graph*, "External
effects are not ordinary replay".
"""

from typing import Any

import pytest

from session_streams import Client
from tests.support.recovery_rows import (
    SHORTEST_LEASE_MS,
    Installation,
    Worker,
    at_work,
    new_session,
    types_of,
    worker_at,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
INDETERMINATE = "runtime.effect_indeterminate"
REQUEST, ACTION, ANOTHER, RECEIPT = ("sha256:" + digit * 64 for digit in "1234")


def effect(action: str = ACTION, **more: Any) -> dict[str, Any]:
    return {"provider": "a-provider", "request_digest": REQUEST, "action_digest": action, **more}


def died_after_dispatch(client: Client) -> tuple[Worker, str]:
    """A worker whose attempt ended between the request and its receipt, with a checkpoint nearby, and the effect."""
    worker = at_work(client)
    worker.checkpoint(native=b"native")
    effect_id = worker.post("/effects", effect())["effect_id"]
    worker.fail()
    return worker, effect_id


def heir(installed: Installation, worker: Worker) -> Worker:
    return Worker(installed.client(number=1), worker.session_id, worker.run_id).claim()


def reconcile(client: Client, session_id: str, effect_id: str, **body: Any) -> Any:
    return client.request("POST", f"/v1/sessions/{session_id}/effects/{effect_id}/reconcile", body).json()


def decide(worker: Worker, approval_id: str, decision: str = "granted", action: str = ACTION) -> None:
    body = {"decision": decision, "action_digest": action}
    worker.client.request("POST", f"{worker.session}/approvals/{approval_id}/decide", body)


def test_an_effect_is_dispatched_before_its_request_is_sent_and_a_receipt_settles_it(installed: Installation) -> None:
    worker = at_work(installed.client())
    effect_id = worker.post("/effects", effect())["effect_id"]
    dispatched = installed.ledger.events(worker.session_id)[-1]
    told = dispatched.attributes
    assert (dispatched.type, told.effect_id, told.provider) == ("effect.dispatched", effect_id, "a-provider")  # type: ignore[union-attr]
    assert (told.request_digest, told.action_digest) == (REQUEST, ACTION)  # type: ignore[union-attr]
    with installed.refused(worker.session_id, "runtime.effect_in_flight"):
        reconcile(worker.client, worker.session_id, effect_id, evidence_kind="provider_lookup", outcome="succeeded")
    worker.post(f"/effects/{effect_id}/receipt", {"receipt_digest": RECEIPT})
    assert types_of(installed, worker.session_id)[-1] == "effect.receipt_accepted"


def test_a_worker_that_dies_before_its_receipt_is_accepted_leaves_the_effect_indeterminate_under_its_original_identity(
    installed: Installation,
) -> None:
    """Neither a nearby checkpoint nor the presence of an event proves whether the provider performed the action."""
    client = installed.client()
    worker = worker_at(client, new_session(client)).claim(lease_ms=3 * SHORTEST_LEASE_MS)
    worker.checkpoint(native=b"native")
    effect_id = worker.post("/effects", effect())["effect_id"]
    eventually(lambda: types_of(installed, worker.session_id)[-1] == "effect.indeterminate", timeout_s=20)
    second = heir(installed, worker)
    assert second.recovery["mode"] == "checkpoint_restore"
    (still,) = second.grant["open_effects"]
    assert still == {"effect_id": effect_id, "status": "indeterminate", "action_digest": ACTION, "request_digest": REQUEST}
    with installed.refused(worker.session_id, INDETERMINATE):
        second.post("/effects", effect())
    second.post(f"/effects/{effect_id}/receipt", {"receipt_digest": RECEIPT})
    assert types_of(installed, worker.session_id).count("effect.dispatched") == 1


def test_a_blind_duplicate_under_a_fresh_identity_is_refused_from_any_run_of_the_session(installed: Installation) -> None:
    worker, _ = died_after_dispatch(installed.client())
    second = heir(installed, worker)
    other = worker_at(worker.client, worker.session_id).claim()
    bare = effect(effect()["action_digest"].partition(":")[2], request_digest=RECEIPT)
    for asked in (second, other):
        # However the action is spelled, and whatever action the same request is said to be.
        for again in (effect(), bare, effect(ANOTHER)):
            with installed.refused(worker.session_id, INDETERMINATE):
                asked.post("/effects", again)
    second.post("/effects", effect(ANOTHER, request_digest=RECEIPT))


@pytest.mark.parametrize(
    "evidence",
    [
        {"evidence_kind": "provider_lookup", "outcome": "succeeded"},
        {"evidence_kind": "idempotency_mechanism", "outcome": "not_performed"},
        {"evidence_kind": "accepted_receipt", "outcome": "succeeded", "receipt_digest": RECEIPT},
        {"evidence_kind": "governed_decision", "outcome": "abandoned"},
    ],
    ids=lambda evidence: str(evidence["evidence_kind"]),
)
def test_an_indeterminate_effect_is_reconciled_through_evidence_of_each_kind(installed: Installation, evidence: dict[str, Any]) -> None:
    worker, effect_id = died_after_dispatch(installed.client())
    reconcile(worker.client, worker.session_id, effect_id, **evidence)
    told = installed.ledger.events(worker.session_id)[-1]
    assert (told.type, told.attributes.effect_id) == ("effect.reconciled", effect_id)  # type: ignore[union-attr]
    assert told.attributes.evidence_kind == evidence["evidence_kind"]  # type: ignore[union-attr]
    assert heir(installed, worker).grant["open_effects"] == []
    with installed.refused(worker.session_id, "runtime.already_settled"):
        reconcile(worker.client, worker.session_id, effect_id, **evidence)


@pytest.mark.parametrize(
    "claimed",
    [
        {"evidence_kind": "nearby_checkpoint", "outcome": "succeeded"},
        {"evidence_kind": "action_approval", "outcome": "succeeded"},
        {"evidence_kind": "accepted_receipt", "outcome": "succeeded"},
        {"evidence_kind": "provider_lookup", "outcome": "abandoned"},
        {"outcome": "succeeded"},
    ],
    ids=["checkpoint", "approval", "receipt without digest", "lookup that abandons", "nothing"],
)
def test_what_is_no_evidence_settles_nothing(installed: Installation, claimed: dict[str, Any]) -> None:
    worker, effect_id = died_after_dispatch(installed.client())
    with installed.refused(worker.session_id, "request.invalid", 422):
        reconcile(worker.client, worker.session_id, effect_id, **claimed)


def test_an_approval_authorises_one_exact_frozen_action_and_is_no_evidence_that_the_provider_completed_it(installed: Installation) -> None:
    worker = at_work(installed.client())
    approval_id = worker.post("/approvals", {"action_digest": ACTION})["approval_id"]
    with installed.refused(worker.session_id, "runtime.approval_required"):
        worker.post("/effects", effect(approval_id=approval_id))
    with installed.refused(worker.session_id, "runtime.approval_mismatch"):
        decide(worker, approval_id, action=ANOTHER)
    decide(worker, approval_id)
    worker.seen = worker.client.session(worker.session_id).sequence
    with installed.refused(worker.session_id, "runtime.approval_mismatch"):
        worker.post("/effects", effect(ANOTHER, approval_id=approval_id))
    with installed.refused(worker.session_id, "runtime.approval_required"):
        worker.post("/effects", effect())
    effect_id = worker.post("/effects", effect(approval_id=approval_id))["effect_id"]
    worker.fail()
    second = heir(installed, worker)
    assert [each["status"] for each in second.grant["open_effects"]] == ["indeterminate"], "approved, and still nobody knows"
    with installed.refused(worker.session_id, INDETERMINATE):
        second.post("/effects", effect(approval_id=approval_id))
    reconcile(worker.client, worker.session_id, effect_id, evidence_kind="provider_lookup", outcome="succeeded")
    second.seen = worker.client.session(worker.session_id).sequence
    with installed.refused(worker.session_id, "runtime.approval_used"):
        second.post("/effects", effect(approval_id=approval_id))


def test_a_provider_effect_receipt_cannot_create_a_missing_human_approval(installed: Installation) -> None:
    worker = at_work(installed.client())
    effect_id = worker.post("/effects", effect())["effect_id"]
    worker.post(f"/effects/{effect_id}/receipt", {"receipt_digest": RECEIPT})
    assert [each for each in types_of(installed, worker.session_id) if each.startswith("approval.")] == []
    approval_id = worker.post("/approvals", {"action_digest": ACTION})["approval_id"]
    with installed.refused(worker.session_id, "runtime.approval_required"):
        worker.post("/effects", effect(approval_id=approval_id))
    decide(worker, approval_id, "denied")
    worker.seen = worker.client.session(worker.session_id).sequence
    with installed.refused(worker.session_id, "runtime.approval_required"):
        worker.post("/effects", effect(approval_id=approval_id))
