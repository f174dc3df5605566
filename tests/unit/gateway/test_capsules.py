"""Capsules over HTTP: made of idle sessions, sealed, scrubbed, signed, taken back."""

import base64
import json
from typing import Any

import httpx
import msgspec
import pytest

from connectors.edge.capsule_statements import SigningUnavailable
from streams.capsules import digests
from streams.capsules.model import Transfer
from streams.clock import now_us
from streams.custody.capsules import CapsulePlace, open_capsule
from streams.custody.keyring import SecretRef
from tests.support.capsule_world import Idle, at, idle_session
from tests.support.capsules import HOUR, TrustedKeys
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World, key, message, new_session, post
from tests.support.workers import worker_of


@pytest.fixture
def idle(client: httpx.Client) -> Idle:
    return idle_session(client, subject="mia")


def asked(idle: Idle, body: Any = None, *, client: httpx.Client | None = None, **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return (client or idle.client).post(idle.path, json=body or idle.asks(), headers={**key(), **given})


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def events_of(client: httpx.Client, session_id: str) -> list[dict[str, Any]]:
    return list(client.get(f"/v1/sessions/{session_id}/events", params={"limit": 200}).json()["events"])


class TestMaking:
    def test_a_capsule_has_the_form_that_an_import_takes(self, idle: Idle) -> None:
        made = idle.created()
        transfer = msgspec.convert(made["transfer"], Transfer)
        capsule, content = transfer.capsule, base64.b64decode(transfer.content_base64)
        assert (transfer.format, transfer.schema_version, transfer.content_encoding) == (
            "checkfu.session-continuation-capsule", 1, "base64",
        )  # fmt: skip
        assert (capsule.id, capsule.session_id, capsule.session_thread_id) == (made["capsule_id"], idle.session_id, idle.thread_id)
        assert (capsule.artifact.byte_count, capsule.artifact.content_digest) == (len(content), digests.digest_of_bytes(content))
        assert capsule.included_state == ("native_session_id", "thread_cursor")
        assert capsule.secret_scrub_receipt.inspected_digest == capsule.artifact.content_digest
        for signature, told in (
            (transfer.projection_signature, digests.projection_digest(transfer)),
            (capsule.artifact.retention.signature, digests.retention_digest(capsule.artifact.retention)),
        ):
            signed = digests.signature_bytes(signature.signature)
            assert signed is not None
            assert signature.statement_digest == told
            assert TrustedKeys().verdict("retention", signature.key_id, told.encode(), signed) == "good"

    def test_its_private_part_is_sealed_and_stands_nowhere_in_clear(self, shared: World, idle: Idle) -> None:
        made = idle.created()
        content = base64.b64decode(made["transfer"]["content_base64"])
        assert b"0b1c7a6e-native-session" not in content
        event = events_of(idle.client, idle.session_id)[-1]
        assert event["type"] == "capsule.created"
        assert "0b1c7a6e" not in json.dumps(event)
        assert not any(b"0b1c7a6e" in value for value in shared.log.values)
        place = self._place(event, made)
        assert json.loads(open_capsule(shared.keyring, place, content)) == {
            "native_session_id": "0b1c7a6e-native-session", "thread_cursor": "message-17",
        }  # fmt: skip

    def _place(self, event: dict[str, Any], made: dict[str, Any]) -> CapsulePlace:
        return CapsulePlace(
            WORKSPACE, event["session_id"], event["subject_id"], event["content"]["expiry_day"], made["capsule_id"]
        )  # fmt: skip

    def test_a_repeat_is_the_same_capsule_to_the_last_byte(self, idle: Idle) -> None:
        body = idle.asks()
        first, again = (asked(idle, body, idempotency_key=f"make-{idle.session_id}") for _ in range(2))
        assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
        assert again.headers["session-streams-repeated"] == "true"
        other = asked(idle, idle.asks(compatible_importers=[]), idempotency_key=f"make-{idle.session_id}")
        assert code_of(other) == (409, "request.idempotency_mismatch")

    def test_a_workers_history_has_no_capsules_in_it(self, idle: Idle) -> None:
        idle.created()
        lines = worker_of(idle.client, idle.session_id).conversation().text.splitlines()
        assert [json.loads(line).get("type") for line in lines if json.loads(line)["kind"] == "event"] == ["message.appended"]


class TestRefusing:
    def test_live_authority(self, idle: Idle) -> None:
        post(idle.client, f"/v1/sessions/{idle.session_id}/runs", {"lane": "main"}, status=201)
        assert code_of(asked(idle)) == (409, "runtime.session_not_idle")

    def test_a_wait_for_input(self, idle: Idle) -> None:
        worker = worker_of(idle.client, idle.session_id)
        worker.post(f"{worker.session}/waits", {"kind": "human"}, status=201)
        assert code_of(asked(idle)) == (409, "runtime.wait_open")

    def test_a_session_that_moved_meanwhile(self, shared: World, idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
        seal = shared.gateway.capsules.seal

        def slowly(place: CapsulePlace, plaintext: bytes) -> bytes:
            post(idle.client, f"/v1/sessions/{idle.session_id}/runs", {"lane": "main"}, status=201)
            return seal(place, plaintext)

        monkeypatch.setattr(type(shared.gateway.capsules), "seal", lambda _, place, plaintext: slowly(place, plaintext))
        assert code_of(asked(idle)) == (409, "runtime.sequence_conflict")

    @pytest.mark.parametrize(
        "text", ["sks_" + "a" * 43, "titen_sk_" + "b" * 43, "AKIAIOSFODNN7EXAMPLE", "-----BEGIN RSA PRIVATE KEY-----", "sk-ant-" + "c" * 30]
    )
    def test_credentials(self, idle: Idle, text: str) -> None:
        response = asked(idle, idle.asks(continuation={"native_session_id": "s", "thread_cursor": f"x {text} y"}))
        assert code_of(response) == (409, "runtime.secret_found")
        assert text not in response.text
        assert all(event["type"] != "capsule.created" for event in events_of(idle.client, idle.session_id))

    @pytest.mark.parametrize("text", ["cursor\tsks_" + "a" * 43, '{"password": "hunter2hunter2x"}', "\nbearer " + "c" * 30])
    @pytest.mark.parametrize("member", ["native_session_id", "thread_cursor"])
    def test_credentials_that_json_escapes(self, idle: Idle, text: str, member: str) -> None:
        body = idle.asks(continuation={"native_session_id": "s", member: text})
        assert code_of(asked(idle, body)) == (409, "runtime.secret_found")

    def test_content_that_was_omitted(self, shared: World, client: httpx.Client) -> None:
        shared.policies.set(WORKSPACE, mode="zdr")
        try:
            idle = idle_session(client)
        finally:
            shared.policies.set(WORKSPACE, mode="standard")
        response = asked(idle)
        assert code_of(response) == (409, "runtime.session_history_unavailable")
        assert "content.omitted" in response.json()["missing"][0]

    def test_content_that_is_erased(self, shared: World, client: httpx.Client) -> None:
        idle = idle_session(client)
        shared.keyring.destroy([SecretRef("session", WORKSPACE, idle.session_id)])
        shared.sealer.forget_all()
        response = asked(idle)
        assert code_of(response) == (409, "runtime.session_history_unavailable")
        assert "content.erased" in response.json()["missing"][0]

    def test_content_that_expired(self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        idle = idle_session(client)
        monkeypatch.setattr(shared.sealer, "_now_us", lambda: 2**60)
        response = asked(idle)
        assert code_of(response) == (409, "runtime.session_history_unavailable")
        assert response.json()["missing"] == ["1-6 content.expired"]

    def test_a_checkpoint_that_expired_or_is_not_native(self, shared: World, idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
        worker = worker_of(idle.client, idle.session_id)
        other = worker.checkpoint()
        worker.post(f"{worker.run}/complete", {"outcome": "done"})
        assert code_of(asked(idle, idle.asks(checkpoint_id=other["checkpoint_id"]))) == (409, "runtime.checkpoint_not_native")
        assert code_of(asked(idle, idle.asks(checkpoint_id="ckpt_" + "0" * 32))) == (404, "resource.not_found")
        monkeypatch.setattr(shared.gateway, "clock", lambda: 2**60)
        monkeypatch.setattr(shared.gateway, "authenticate", _let_in(shared, idle))
        assert code_of(asked(idle)) == (409, "runtime.checkpoint_expired")

    def test_what_is_not_of_the_callers(self, shared: World, idle: Idle) -> None:
        assert code_of(asked(idle, client=shared.client("capsules:import"))) == (403, "auth.scope")
        assert code_of(asked(idle, client=shared.client(workspace_id=OTHER_WORKSPACE))) == (404, "resource.not_found")
        assert code_of(asked(idle, idle.asks(session_thread_id="sthr_" + "0" * 32))) == (404, "resource.not_found")

    def test_a_projector_that_cannot_sign(self, shared: World, idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared.capsule_keys, "away", True)
        assert code_of(asked(idle)) == (503, "service.unavailable")
        with pytest.raises(SigningUnavailable):
            shared.capsule_keys.sign("retention", b"")

    def test_nobody_appends_a_capsule_by_hand(self, idle: Idle) -> None:
        body = {"type": "capsule.created", "attributes": {"capsule_id": "cap_" + "1" * 32}}
        response = idle.client.post(f"/v1/sessions/{idle.session_id}/events", json=body, headers=key())
        assert response.status_code in (403, 422)

    def test_what_has_no_checkpoint_at_all(self, client: httpx.Client) -> None:
        session_id = new_session(client)
        post(client, f"/v1/sessions/{session_id}/events", message())
        idle = Idle(client, session_id, "sthr_" + "0" * 32, "ckpt_" + "0" * 32)
        assert code_of(asked(idle, idle.asks(compatibility_expires_at=at(HOUR)))) == (404, "resource.not_found")


def _let_in(shared: World, idle: Idle) -> Any:
    """As the gateway does, by the clock of the wall."""
    principal = shared.gateway.keys.principal(idle.client.headers["authorization"].removeprefix("Bearer "), now_us())

    def authenticate(_: Any) -> Any:
        return principal

    return authenticate


class TestRevoking:
    def test_a_revoked_capsule_is_imported_no_more_and_opens_for_nobody(self, shared: World, idle: Idle) -> None:
        made = idle.created()
        path = f"{idle.path}/{made['capsule_id']}/revoke"
        told = post(idle.client, path)
        assert told["capsule_id"] == made["capsule_id"]
        assert post(idle.client, path)["sequence"] == told["sequence"]
        assert shared.keyring.destroyed([SecretRef("capsule", WORKSPACE, made["capsule_id"])])
        assert idle.outcome(idle.import_of(made["transfer"])) == "capsule_absent"
        assert [event["type"] for event in events_of(idle.client, idle.session_id)].count("capsule.revoked") == 1

    def test_a_capsule_of_a_closed_session_opens_for_nobody_once_it_is_revoked(self, shared: World, idle: Idle) -> None:
        made = idle.created()
        closed = post(idle.client, f"/v1/sessions/{idle.session_id}/close")
        told = post(idle.client, f"{idle.path}/{made['capsule_id']}/revoke")
        assert (told["sequence"], told["position"]) == (closed["sequence"], closed["position"])
        assert shared.keyring.destroyed([SecretRef("capsule", WORKSPACE, made["capsule_id"])])

    def test_what_is_not_there_cannot_be_revoked(self, shared: World, idle: Idle) -> None:
        made = idle.created()
        assert code_of(idle.client.post(f"{idle.path}/cap_{'0' * 32}/revoke", json={}, headers=key())) == (404, "resource.not_found")
        other = shared.client("capsules:import")
        assert code_of(other.post(f"{idle.path}/{made['capsule_id']}/revoke", json={}, headers=key())) == (403, "auth.scope")
