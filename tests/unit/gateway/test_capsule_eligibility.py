"""Of which sessions a capsule is made: nothing of them is open, judged by thing, and they keep content."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.edge.capsule_statements import Held, retention_of
from connectors.gateway import capsule_idle
from connectors.gateway.problems import Lacking
from tests.support.capsule_world import Idle, at, idle_session
from tests.support.capsules import HOUR
from tests.support.gateway import WORKSPACE, World, key, new_session, post
from tests.support.workers import Worker, worker_of

ACTION, REQUEST = "sha256:" + "a" * 64, "sha256:" + "b" * 64
CHILD = "chld_" + "1" * 32


def asked(idle: Idle, **changes: Any) -> httpx.Response:
    return idle.client.post(idle.path, json=idle.asks(**changes), headers=key())


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def after(client: httpx.Client, work: Callable[[Worker], Any]) -> tuple[Idle, Worker, Any]:
    """A session whose Run is over, what was done in it, and its worker."""
    session_id = new_session(client)
    thread = post(client, f"/v1/sessions/{session_id}/threads", {"kind": "main"}, status=201)
    worker = worker_of(client, session_id, harness="h", harness_revision="h1", environment_revision="e1")
    worker.say("one")
    checkpoint = worker.checkpoint(native=b"native")
    done = work(worker)
    worker.post(f"{worker.run}/complete", {"outcome": "done"})
    return Idle(client, session_id, thread["thread_id"], checkpoint["checkpoint_id"]), worker, done


def dispatched(worker: Worker, **more: Any) -> str:
    body = {"provider": "airline", "request_digest": REQUEST, "action_digest": ACTION, **more}
    return str(worker.post(f"{worker.session}/effects", body, status=201)["effect_id"])


def approval(client: httpx.Client, session_id: str, decision: str | None = None, **more: Any) -> str:
    """Outside of all Runs."""
    session = f"/v1/sessions/{session_id}"
    approval_id = str(post(client, f"{session}/approvals", {"action_digest": ACTION, **more}, status=201)["approval_id"])
    if decision is not None:
        post(client, f"{session}/approvals/{approval_id}/decide", {"decision": decision, "action_digest": ACTION})
    return approval_id


def refused(idle: Idle, named: str) -> None:
    response = asked(idle)
    assert code_of(response) == (409, "runtime.capsule_ineligible")
    assert response.json()["missing"] == [f"{named} is not settled"]


class TestWhatIsOpen:
    def test_child_work(self, client: httpx.Client) -> None:
        def started(worker: Worker) -> None:
            attributes = {"child_id": CHILD, "native": True, "kind": "subagent"}
            worker.post(f"{worker.session}/events", {"type": "child.started", "run_id": worker.run_id, "attributes": attributes})

        idle, worker, _ = after(client, started)
        refused(idle, f"child {CHILD}")
        settled = {"type": "child.settled", "run_id": worker.run_id, "attributes": {"child_id": CHILD, "outcome": "done"}}
        post(client, f"/v1/sessions/{idle.session_id}/events", settled)
        assert asked(idle).status_code == 201

    def test_an_effect_of_which_nobody_knows_whether_it_happened(self, client: httpx.Client) -> None:
        idle, _, effect_id = after(client, dispatched)
        refused(idle, f"effect {effect_id}")
        evidence = {"evidence_kind": "provider_lookup", "outcome": "succeeded"}
        post(client, f"/v1/sessions/{idle.session_id}/effects/{effect_id}/reconcile", evidence)
        assert asked(idle).status_code == 201

    def test_an_effect_with_a_receipt_hides_none_without(self, client: httpx.Client) -> None:
        def two(worker: Worker) -> str:
            first = dispatched(worker)
            worker.post(f"{worker.session}/effects/{first}/receipt", {"receipt_digest": REQUEST})
            return dispatched(worker, request_digest=ACTION[:-1] + "0", action_digest=ACTION[:-1] + "1")

        idle, _, effect_id = after(client, two)
        refused(idle, f"effect {effect_id}")

    def test_a_turn(self, client: httpx.Client) -> None:
        idle = idle_session(client)
        turns = f"/v1/sessions/{idle.session_id}/turns"
        turn_id = post(client, turns, {"thread_id": idle.thread_id, "actor": "mia", "content": "go"}, status=201)["turn_id"]
        refused(idle, f"turn {turn_id}")
        post(client, f"{turns}/{turn_id}/complete", {"outcome": "done"})
        assert asked(idle).status_code == 201

    @pytest.mark.parametrize("decision", [None, "granted"])
    def test_an_approval_that_may_authorise_an_effect(self, client: httpx.Client, decision: str | None) -> None:
        idle = idle_session(client)
        approval_id = approval(client, idle.session_id, decision)
        refused(idle, f"approval {approval_id}")

    def test_everything_that_is_open_is_named_and_waits_are_told_of_first(self, client: httpx.Client) -> None:
        idle = idle_session(client)
        session = f"/v1/sessions/{idle.session_id}"
        approvals = {approval(client, idle.session_id) for _ in range(2)}
        assert set(asked(idle).json()["missing"]) == {f"approval {each} is not settled" for each in approvals}
        run_id = post(client, f"{session}/runs", {"lane": "main"}, status=201)["run_id"]
        assert (code_of(asked(idle)), asked(idle).json()["missing"]) == (
            (409, "runtime.session_not_idle"), [f"run {run_id} is not settled"],
        )  # fmt: skip
        wait_id = post(client, f"{session}/waits", {"kind": "human"}, status=201)["wait_id"]
        assert (code_of(asked(idle)), asked(idle).json()["missing"]) == ((409, "runtime.wait_open"), [f"wait {wait_id} is not settled"])

    def test_more_than_is_looked_at(self, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(capsule_idle, "_LOOKED_AT_MAX", 1)
        monkeypatch.setattr(capsule_idle, "_is_over", lambda *_: True)
        idle = idle_session(client)
        approval(client, idle.session_id)
        assert asked(idle).status_code == 201
        approval(client, idle.session_id)
        assert code_of(asked(idle)) == (409, "runtime.capsule_ineligible")

    def test_a_record_that_cannot_be_read(self, shared: World, client: httpx.Client) -> None:
        idle = idle_session(client)
        shared.log.table.apply(idle.session_id, [b"no event"])
        response = asked(idle)
        assert code_of(response) == (409, "runtime.session_history_unavailable")
        assert "content.unreadable" in response.json()["missing"][0]


class TestWhatIsNoAuthority:
    def test_an_approval_that_is_denied_or_whose_time_is_over(self, shared: World, client: httpx.Client) -> None:
        idle = idle_session(client)
        approval(client, idle.session_id, "denied")
        assert asked(idle).status_code == 201
        approval(client, idle.session_id, "granted", expires_at=at(HOUR))
        assert code_of(asked(idle)) == (409, "runtime.capsule_ineligible")
        now = shared.gateway.clock()
        page = shared.log.table.model.unsettled(WORKSPACE, idle.session_id, limit=10)
        with pytest.raises(Lacking, match="approval"):
            capsule_idle.require_idle(page, now)
        capsule_idle.require_idle(page, now + 2 * HOUR)

    def test_an_approval_that_is_used(self, client: httpx.Client) -> None:
        def used(worker: Worker) -> None:
            effect_id = dispatched(worker, approval_id=approval(client, worker.session_id, "granted"))
            worker.post(f"{worker.session}/effects/{effect_id}/receipt", {"receipt_digest": REQUEST})

        idle, _, _ = after(client, used)
        assert asked(idle).status_code == 201

    def test_an_approval_of_a_run_ends_with_it(self, client: httpx.Client) -> None:
        """Nobody decides on it, and no other Run uses it."""

        def both(worker: Worker) -> list[str]:
            made = []
            for digest in (ACTION, REQUEST):
                made.append(str(worker.post(f"{worker.session}/approvals", {"action_digest": digest}, status=201)["approval_id"]))
            post(client, f"{worker.session}/approvals/{made[0]}/decide", {"decision": "granted", "action_digest": ACTION})
            worker.position += 1
            return made

        idle, worker, (granted, requested) = after(client, both)
        assert asked(idle).status_code == 201
        session = f"/v1/sessions/{idle.session_id}"
        late = client.post(f"{session}/approvals/{requested}/decide", json={"decision": "granted", "action_digest": REQUEST}, headers=key())
        assert code_of(late) == (409, "runtime.already_settled")
        assert worker.run_id in late.json()["detail"]
        other = worker_of(client, idle.session_id)
        body = {"provider": "airline", "request_digest": REQUEST, "action_digest": ACTION, "approval_id": granted}
        headers = {"session-streams-report": other.report, **key()}
        assert code_of(client.post(f"{session}/effects", json=body, headers=headers)) == (409, "runtime.approval_mismatch")

    def test_a_capsule_is_imported_while_a_run_goes_on(self, client: httpx.Client) -> None:
        idle = idle_session(client)
        made = idle.created()
        worker_of(client, idle.session_id)
        assert idle.outcome(idle.import_of(made["transfer"])) == "imported"


class TestZeroDataRetention:
    @pytest.fixture
    def zdr(self, shared: World, client: httpx.Client) -> Idle:
        shared.policies.set(WORKSPACE, mode="zdr")
        try:
            return idle_session(client)
        finally:
            shared.policies.set(WORKSPACE, mode="standard")

    def test_no_capsule_is_made_whose_content_would_be_omitted(self, shared: World, zdr: Idle) -> None:
        before = len(shared.log.events[zdr.session_id])
        response = asked(zdr)
        assert code_of(response) == (409, "runtime.session_history_unavailable")
        assert response.json()["missing"] == [f"{before + 1} content.omitted"]
        assert len(shared.log.events[zdr.session_id]) == before

    def test_the_mode_that_is_signed_is_the_one_that_the_session_is_pinned_to(self, shared: World, client: httpx.Client) -> None:
        idle = idle_session(client)
        shared.policies.set(WORKSPACE, mode="zdr")
        try:
            transfer = idle.created()["transfer"]
            custody = idle.imports(idle.import_of(transfer)).json()
        finally:
            shared.policies.set(WORKSPACE, mode="standard")
        assert transfer["capsule"]["artifact"]["retention"]["policy"] == {"mode": "standard"}
        assert custody["retention"]["policy"] == {"mode": "standard"}

    @pytest.mark.parametrize("mode", ["standard", "zdr"])
    def test_a_statement_has_the_mode_of_what_is_held(self, shared: World, mode: str) -> None:
        held = Held(
            workspace_id=WORKSPACE, session_id="sess_" + "1" * 32, subject_id=None, artifact_id="art", byte_count=1, content_digest=ACTION,
            envelope_id="cap", created_at=1, expires_at=2, policy_mode=mode,
        )  # fmt: skip
        assert retention_of(shared.capsule_keys, held, 1).policy.mode == mode
