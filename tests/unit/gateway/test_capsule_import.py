"""Imports over HTTP: both outcomes, each reason, the order of things, and what is left of them."""

import base64
import copy
import json
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from streams.custody.keyring import SecretRef
from streams.errors import BlobStoreUnavailable, ContentUnavailable, KeyringUnavailable, StreamsError
from tests.support.capsule_world import VERSION, Idle, at, compatible, idle_session, qualified, resigned, target, with_content, worked
from tests.support.capsules import CATALOGUE, HOUR, STRANGER, Document, digest, signature
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World, key, post

RECORD = {
    "outcome", "import_id", "session_id", "session_thread_id", "capsule_id", "checkpoint_id", "through_sequence", "use_kind", "importer_id",
    "target_digest", "content_digest", "byte_count", "availability", "retention", "imported_at", "expires_at",
}  # fmt: skip


@pytest.fixture(scope="module")
def elsewhere(client: httpx.Client) -> Idle:
    return idle_session(client)


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def events_of(idle: Idle) -> list[dict[str, Any]]:
    return list(idle.client.get(f"/v1/sessions/{idle.session_id}/events", params={"limit": 1000}).json()["events"])


class TestImporting:
    def test_custody_tells_exactly_what_it_is_to_tell(self, idle: Idle, transfer: Document) -> None:
        response = idle.imports(idle.import_of(transfer))
        told, capsule = response.json(), transfer["capsule"]
        assert (response.status_code, set(told), told["outcome"]) == (200, RECORD, "imported")
        assert told["import_id"].startswith("cimp_")
        for name in ("session_id", "session_thread_id", "checkpoint_id", "through_sequence"):
            assert told[name] == capsule[name]
        assert (told["content_digest"], told["byte_count"]) == (capsule["artifact"]["content_digest"], capsule["artifact"]["byte_count"])
        assert told["expires_at"] == capsule["compatibility_expires_at"]
        assert set(told["retention"]) == set(capsule["artifact"]["retention"])
        assert told["retention"]["artifact_id"] == told["import_id"]
        assert "content_base64" not in response.text
        assert int(response.headers["session-streams-sequence"]) >= 1
        assert response.headers["session-streams-position"].startswith("sessions.commands:")
        assert idle.client.get(f"{idle.path}/imports/{told['import_id']}").json() == told

    def test_it_launches_nothing(self, idle: Idle, transfer: Document) -> None:
        before = len(events_of(idle))
        assert idle.outcome(idle.import_of(transfer)) == "imported"
        assert {event["type"] for event in events_of(idle)[before:]} <= {"capsule.imported", "capsule.decided"}

    def test_under_another_key_it_is_the_same_custody(self, idle: Idle, transfer: Document) -> None:
        first, again = (idle.imports(idle.import_of(transfer)).json() for _ in range(2))
        assert again == first
        assert [event["type"] for event in events_of(idle)].count("capsule.imported") == 1

    def test_another_target_is_another_custody(self, client: httpx.Client) -> None:
        idle, other = idle_session(client), target(importer_id="importer-2")
        made = idle.created(compatible_importers=[compatible(target()), compatible(other)])["transfer"]
        ids = {idle.imports(idle.import_of(made, target=each)).json()["import_id"] for each in (target(), other)}
        assert len(ids) == 2

    def test_the_same_key_is_answered_as_before(self, idle: Idle, transfer: Document) -> None:
        for body in (idle.import_of(transfer), idle.import_of(with_content(transfer, b"others"))):
            name = f"same-{body['transfer']['content_base64'][:8]}"
            first, again = (idle.imports(body, idempotency_key=name) for _ in range(2))
            assert (again.status_code, again.json()) == (200, first.json())
            assert again.headers["session-streams-repeated"] == "true"
            other = copy.deepcopy(body)
            other["use_kind"] = "same_run_recovery"
            assert code_of(idle.imports(other, idempotency_key=name)) == (409, "request.idempotency_mismatch")

    def test_the_same_run_goes_on_where_nothing_differs(self, client: httpx.Client) -> None:
        idle, same = idle_session(client), target(tool_manifest_digest=digest("tool_manifest"))
        made = idle.created(compatible_importers=[compatible(same)])["transfer"]
        assert idle.imports(idle.import_of(made, target=same, use_kind="same_run_recovery")).json()["use_kind"] == "same_run_recovery"

    def test_what_is_refused_leaves_a_fact_and_no_content(self, shared: World, idle: Idle, transfer: Document) -> None:
        body = idle.import_of(with_content(transfer, b"a stranger's bytes"))
        before = len(shared.log.values)
        assert idle.outcome(body) == "secret_scrub_failed"
        told = events_of(idle)[-1]
        assert (told["type"], told["attributes"]["outcome"], told["attributes"]["reason"]) == (
            "capsule.decided", "refused", "secret_scrub_failed",
        )  # fmt: skip
        assert (told["content_state"], "content" in told) == ("none", False)
        sent = b"".join(shared.log.values[before:])
        assert b"a stranger's bytes" not in sent
        assert base64.b64encode(b"a stranger's bytes") not in sent

    def test_custody_ends_with_its_capsule_its_time_and_its_session(
        self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        idle = idle_session(client)
        made = idle.created()
        told = idle.imports(idle.import_of(made["transfer"])).json()
        path = f"{idle.path}/imports/{told['import_id']}"
        principal = shared.gateway.keys.principal(client.headers["authorization"].removeprefix("Bearer "), shared.gateway.clock())
        with monkeypatch.context() as later:
            later.setattr(shared.gateway, "clock", lambda: 2**60)
            later.setattr(shared.gateway.keys, "principal", lambda *_: principal)
            assert code_of(client.get(path)) == (409, "content.expired")
        shared.keyring.destroy([SecretRef("session", WORKSPACE, idle.session_id)])
        shared.sealer.forget_all()
        assert code_of(client.get(path)) == (409, "content.erased")
        assert code_of(client.get(f"{idle.path}/imports/cimp_{'0' * 32}")) == (404, "resource.not_found")

    def test_custody_ends_where_its_capsule_is_revoked(self, client: httpx.Client) -> None:
        idle = idle_session(client)
        made = idle.created()
        told = idle.imports(idle.import_of(made["transfer"])).json()
        post(client, f"{idle.path}/{made['capsule_id']}/revoke")
        assert code_of(client.get(f"{idle.path}/imports/{told['import_id']}")) == (409, "content.expired")

    def test_an_erased_session_ends_its_imports_and_takes_no_more(self, shared: World, client: httpx.Client) -> None:
        idle = idle_session(client, subject="leaving")
        made = idle.created()
        told = idle.imports(idle.import_of(made["transfer"])).json()
        erasure = client.delete(f"/v1/sessions/{idle.session_id}", headers=key()).json()
        shared.custodian.goes_on(erasure["erasure_id"])
        assert code_of(client.get(f"{idle.path}/imports/{told['import_id']}"))[1] == "content.erased"
        before = len(events_of(idle))
        assert idle.outcome(idle.import_of(made["transfer"])) == "source_projection_unavailable"
        assert len(events_of(idle)) == before

    def test_a_fork_has_capsules_of_its_own_while_its_ancestors_can_be_read(self, shared: World, client: httpx.Client) -> None:
        source = idle_session(client)
        last = events_of(source)[-1]
        fork = post(client, f"/v1/sessions/{source.session_id}/forks", {"at_event": last["event_id"]}, status=201)["session_id"]
        idle = worked(client, fork)
        made = idle.created()
        assert idle.outcome(idle.import_of(made["transfer"])) == "imported"
        assert source.outcome(source.import_of(made["transfer"], session_thread_id=idle.thread_id)) == "capsule_invalid"
        shared.keyring.destroy([SecretRef("session", WORKSPACE, source.session_id)])
        shared.sealer.forget_all()
        assert idle.outcome(idle.import_of(made["transfer"])) == "source_projection_unavailable"
        refused = client.post(idle.path, json=idle.asks(), headers=key())
        assert code_of(refused) == (409, "runtime.session_history_unavailable")


Change = Callable[[Idle, Idle, Document], Document]


def listed(idle: Idle, transfer: Document, made: Document) -> Document:
    """An import into a target that the capsule lists, whatever it is."""
    return idle.import_of(resigned(transfer, capsule__compatible_importers=[compatible(made)]), target=made)


REASONS: dict[str, dict[str, Change]] = {
    "capsule_absent": {
        "an id that nobody gave": lambda i, e, t: i.import_of(resigned(t, capsule__id="cap_" + "0" * 32)),
        "an id of another form": lambda i, e, t: i.import_of(resigned(t, capsule__id="anything")),
        "another workspace": lambda i, e, t: i.import_of(resigned(t, capsule__workspace_id=OTHER_WORKSPACE)),
    },
    "capsule_invalid": {
        "another format": lambda i, e, t: i.import_of({**t, "format": "other"}),
        "no base64": lambda i, e, t: i.import_of({**t, "content_base64": "%%%%"}),
        "other bytes": lambda i, e, t: i.import_of({**t, "content_base64": "AAAA"}),
        "base64 with bits to spare": lambda i, e, t: i.import_of({**t, "content_base64": t["content_base64"] + "AB=="}),
        "another session's": lambda i, e, t: {**e.import_of(t)},
        "another thread": lambda i, e, t: i.import_of(t, session_thread_id="sthr_" + "0" * 32),
        "signed by no algorithm": lambda i, e, t: i.import_of(
            {**t, "projection_signature": {**t["projection_signature"], "algorithm": "none"}}
        ),
    },
    "source_projection_unavailable": {
        "a stranger's signature": lambda i, e, t: i.import_of(
            {**t, "projection_signature": signature(STRANGER, t["projection_signature"]["statement_digest"])}
        ),
        "signed by the catalogue": lambda i, e, t: i.import_of(
            {**t, "projection_signature": signature(CATALOGUE, t["projection_signature"]["statement_digest"])}
        ),
        "a prefix beyond the end": lambda i, e, t: i.import_of(resigned(t, capsule__through_sequence=10_000)),
    },
    "capsule_unavailable": {
        "past its final expiry": lambda i, e, t: i.import_of(
            resigned(t, capsule__artifact__retention__final_expiry={"expiry_type": "at", "expires_at": at(-HOUR)})
        ),
        "said to be erased": lambda i, e, t: i.import_of(
            resigned(
                t,
                capsule__artifact__availability={"availability_type": "erased"},
                capsule__artifact__retention__availability={"availability_type": "erased"},
            )
        ),
        "a checkpoint that is gone": lambda i, e, t: i.import_of(resigned(t, capsule__checkpoint_id="ckpt_" + "0" * 32)),
    },
    "secret_scrub_failed": {
        "not passed": lambda i, e, t: i.import_of(resigned(t, capsule__secret_scrub_receipt__scrub_result="failed")),
        "of something else": lambda i, e, t: i.import_of(resigned(t, capsule__secret_scrub_receipt__inspected_digest=digest("x"))),
        "bytes that do not open": lambda i, e, t: i.import_of(with_content(t, b"anything")),
        "more than can be scanned": lambda i, e, t: i.import_of(with_content(t, bytes(300 * 1024))),
    },
    "target_unqualified": {
        "lacks the capability": lambda i, e, t: i.import_of(t, target=qualified(target(), qualified_capabilities=["steering"])),
        "over": lambda i, e, t: i.import_of(t, target=qualified(target(), valid_until=at(-HOUR))),
        "not begun": lambda i, e, t: i.import_of(t, target=qualified(target(), valid_from=at(HOUR))),
        "another target than its": lambda i, e, t: i.import_of(t, target={**target(), "agent_id": "agent-2"}),
        "another authority": lambda i, e, t: i.import_of(t, target=qualified(target(), authority="me")),
    },
    "capsule_incompatible": {
        "not listed": lambda i, e, t: i.import_of(t, target=target(importer_id="importer-9")),
        "listed at another revision": lambda i, e, t: i.import_of(t, target=qualified(target(), catalog_revision_digest=digest("y"))),
        "no longer": lambda i, e, t: i.import_of(resigned(t, capsule__compatibility_expires_at=at(-HOUR))),
        "not the same Run's tools": lambda i, e, t: i.import_of(t, use_kind="same_run_recovery"),
    },
}  # fmt: skip


@pytest.mark.parametrize(("reason", "name"), [(reason, name) for reason, made in REASONS.items() for name in made])
def test_each_reason_is_reached_over_http(idle: Idle, elsewhere: Idle, transfer: Document, reason: str, name: str) -> None:
    asked = elsewhere if name == "another session's" else idle

    assert asked.outcome(REASONS[reason][name](idle, elsewhere, transfer)) == reason


class TestConsulting:
    def test_keys_that_are_away(self, shared: World, idle: Idle, transfer: Document, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared.capsule_keys, "away", True)
        assert idle.outcome(idle.import_of(transfer)) == "projector_unavailable"
        # Whoever comes with a worse request is told of that first.
        assert idle.outcome(idle.import_of({**transfer, "format": "other"})) == "capsule_invalid"

    def test_a_keyring_that_is_away(self, shared: World, idle: Idle, transfer: Document, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(*_: Any, **__: Any) -> Any:
            raise KeyringUnavailable("away")

        assert idle.outcome(idle.import_of(transfer)) == "imported"
        shared.sealer.forget_all()
        monkeypatch.setattr(shared.keyring, "secrets", away)
        monkeypatch.setattr(shared.keyring, "destroyed", away)
        assert idle.outcome(idle.import_of(transfer)) == "projector_unavailable"

    def test_a_statement_that_cannot_be_read(self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        idle = idle_session(client)
        made = idle.created()
        monkeypatch.setattr(shared.sealer, "open", lambda _: b"{")
        assert idle.outcome(idle.import_of(made["transfer"])) == "projector_unavailable"

    def test_content_that_was_erased_since(self, shared: World, client: httpx.Client) -> None:
        idle = idle_session(client, subject="erased")
        made = idle.created()
        shared.keyring.destroy([SecretRef("capsule", WORKSPACE, made["capsule_id"])])
        assert idle.outcome(idle.import_of(made["transfer"])) == "capsule_unavailable"

    def test_a_session_that_was_erased_since(self, shared: World, client: httpx.Client) -> None:
        idle = idle_session(client)
        made = idle.created()
        shared.keyring.destroy([SecretRef("session", WORKSPACE, idle.session_id)])
        shared.sealer.forget_all()
        assert idle.outcome(idle.import_of(made["transfer"])) == "source_projection_unavailable"

    def test_a_qualification_that_was_withdrawn(self, shared: World, idle: Idle, transfer: Document) -> None:
        made = target(platform_identifier="linux/arm64")
        body = listed(idle, transfer, made)
        shared.withdrawn.add(made["qualification_receipt"]["receipt_digest"])
        assert idle.outcome(body) == "target_unqualified"

    def test_credentials_that_an_older_scrubber_let_through(
        self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        idle = idle_session(client)
        made = idle.created()
        found = "connectors.gateway.capsule_import.found_in"
        monkeypatch.setattr(found, lambda content: "a_kind" if b"0b1c7a6e" in content else None)
        assert idle.outcome(idle.import_of(made["transfer"])) == "secret_scrub_failed"

    @pytest.mark.parametrize("text", ["cursor\tsks_" + "a" * 43, '{"password": "hunter2hunter2x"}'])
    def test_a_credential_behind_an_escape(self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        """As a scrubber would have let it through that looked at less."""
        idle = idle_session(client)
        with monkeypatch.context() as lax:
            lax.setattr("connectors.gateway.capsules.found_in", lambda _: None)
            made = idle.created(continuation={"native_session_id": "s", "thread_cursor": text})
        assert idle.outcome(idle.import_of(made["transfer"])) == "secret_scrub_failed"

    @pytest.mark.parametrize("error", [BlobStoreUnavailable("away"), ContentUnavailable("it is not in the blob store")])
    def test_a_blob_store_that_is_away_decides_nothing(
        self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, error: StreamsError
    ) -> None:
        idle = idle_session(client)
        body = idle.import_of(idle.created()["transfer"])

        def away(_: Any) -> bytes:
            raise error

        before = len(events_of(idle))
        with monkeypatch.context() as without:
            without.setattr(shared.sealer, "open", away)
            response = idle.imports(body, idempotency_key="while away")
            assert response.status_code == 503
            assert "retry-after" in response.headers
            assert len(events_of(idle)) == before
            # Whoever comes with a worse request is told of that first.
            assert idle.outcome({**body, "transfer": {**body["transfer"], "format": "other"}}) == "capsule_invalid"
        assert idle.imports(body, idempotency_key="while away").json()["outcome"] == "imported"


class TestForm:
    @pytest.mark.parametrize("headers", [{}, {"checkfu-version": "2026-08-30"}, {"checkfu-version": ""}])
    def test_the_version_is_required(self, idle: Idle, transfer: Document, headers: dict[str, str]) -> None:
        response = idle.client.post(f"{idle.path}/import", json=idle.import_of(transfer), headers={**key(), **headers})
        assert code_of(response) == (400, "request.malformed")

    def test_so_are_key_and_media_type(self, idle: Idle, transfer: Document) -> None:
        response = idle.client.post(f"{idle.path}/import", json=idle.import_of(transfer), headers=VERSION)
        assert code_of(response) == (400, "request.malformed")
        text = {**key(), **VERSION, "content-type": "text/plain"}
        response = idle.client.post(f"{idle.path}/import", content=json.dumps(idle.import_of(transfer)), headers=text)
        assert code_of(response) == (415, "request.unsupported_media_type")

    def test_an_id_of_another_form_is_invalid_and_one_of_nobody_is_not_found(self, idle: Idle, transfer: Document) -> None:
        for path, expected in (("sess_1", (422, "request.invalid")), ("sess_" + "0" * 32, (404, "resource.not_found"))):
            response = idle.client.post(
                f"/v1/sessions/{path}/continuation-capsules/import", json=idle.import_of(transfer), headers={**key(), **VERSION}
            )
            assert code_of(response) == expected

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("session_thread_id", "sthr_1"), ("session_thread_id", None), ("use_kind", "other"),
            ("transfer.capsule.through_sequence", 2**53),
            ("transfer.capsule.artifact.byte_count", 2**30 + 1), ("transfer.capsule.artifact.byte_count", -1),
            ("transfer.capsule.artifact.content_digest", "sha256:0"), ("transfer.capsule.included_state", ["memory"]),
            ("transfer.capsule.id", ""), ("transfer.capsule.id", "x" * 256), ("transfer.schema_version", "1"),
            ("transfer.capsule.artifact.retention.policy.mode", "other"), ("transfer.capsule.compatibility_expires_at", "tomorrow"),
            ("transfer.capsule.compatibility_expires_at", "2026-02-30T00:00:00Z"), ("transfer.content_base64", 1), ("target.note", "?"),
            ("transfer.capsule.artifact.retention.final_expiry", {"expiry_type": "never"}),
        ],
    )  # fmt: skip
    def test_wrong_types_and_bounds_are_no_request(self, idle: Idle, transfer: Document, path: str, value: Any) -> None:
        body: Any = copy.deepcopy(idle.import_of(transfer))
        *way, last = path.split(".")
        place = body
        for name in way:
            place = place[name]
        place[last] = value
        assert code_of(idle.imports(body)) == (422, "request.invalid")

    def test_a_request_without_transfer_is_malformed(self, idle: Idle, transfer: Document) -> None:
        body = idle.import_of(transfer)
        del body["transfer"]
        assert code_of(idle.imports(body)) == (422, "request.invalid")

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            (b'{"transfer":{"content_base64":"","content_base64":""}}', "request.malformed"),
            (b'{"transfer":{"content_base64":"AAAA', "request.malformed"),
            (b"not json", "request.malformed"), (b"", "request.malformed"), (b"\xff\xfe", "request.malformed"),
            (b"[" * 100_000, "request.malformed"), (b'{"a":1.0}', "request.invalid"),
        ],
    )  # fmt: skip
    def test_bodies_that_are_no_json(self, idle: Idle, text: bytes, code: str) -> None:
        headers = {**key(), **VERSION, "content-type": "application/json"}
        assert idle.client.post(f"{idle.path}/import", content=text, headers=headers).json()["code"] == code

    def test_scopes(self, shared: World, idle: Idle, transfer: Document) -> None:
        for scope, status in (("capsules:write", 403), ("sessions:write", 403), ("capsules:import", 200)):
            assert idle.imports(idle.import_of(transfer), client=shared.client(scope)).status_code == status
        assert idle.imports(idle.import_of(transfer), client=shared.client(workspace_id=OTHER_WORKSPACE)).status_code == 404

    def test_a_closed_session_takes_none(self, client: httpx.Client) -> None:
        idle = idle_session(client)
        made = idle.created()
        post(client, f"/v1/sessions/{idle.session_id}/close")
        assert code_of(idle.imports(idle.import_of(made["transfer"]))) == (409, "runtime.session_closed")


class TestSize:
    @staticmethod
    def body(idle: Idle, transfer: Document, size: int, chunk: int = 64 * 1024) -> Iterator[bytes]:
        """A request whose content is `size` zeros, piece by piece."""
        text = json.dumps(idle.import_of({**transfer, "content_base64": "<>"})).encode()
        before, after = text.split(b"<>")
        yield before
        groups = size // 3
        while groups > 0:
            yield b"AAAA" * min(groups, chunk // 4)
            groups -= chunk // 4
        yield after

    def test_content_is_never_held_as_a_whole(self, idle: Idle, transfer: Document) -> None:
        headers = {**key(), **VERSION, "content-type": "application/json"}
        tracemalloc.start()
        try:
            response = idle.client.post(f"{idle.path}/import", content=self.body(idle, transfer, 48 * 2**20), headers=headers)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert response.json() == {"outcome": "refused", "reason": "capsule_invalid"}
        assert peak < 12 * 2**20, peak

    def test_what_is_above_the_limit_is_refused_as_too_large(self, shared: World, idle: Idle, transfer: Document) -> None:
        small = replace(shared.gateway.limits, capsule_bytes_max=3 * 2**20)
        shared.gateway.limits, before = small, shared.gateway.limits
        headers = {**key(), **VERSION, "content-type": "application/json"}
        try:
            response = idle.client.post(f"{idle.path}/import", content=self.body(idle, transfer, 3 * 2**20 + 3), headers=headers)
            assert code_of(response) == (413, "request.too_large")
            response = idle.client.post(f"{idle.path}/import", content=self.body(idle, transfer, 3 * 2**20), headers={**headers, **key()})
            assert response.json()["reason"] == "capsule_invalid"
        finally:
            shared.gateway.limits = before

    @pytest.mark.parametrize("claimed", [10 * 2**30, 2**62])
    def test_a_length_that_nobody_takes_is_refused_by_its_header(self, idle: Idle, claimed: int) -> None:
        with socket.create_connection((idle.client.base_url.host, idle.client.base_url.port or 80), timeout=10) as connection:
            lines = [
                f"POST {idle.path}/import HTTP/1.1", "host: here", f"authorization: {idle.client.headers['authorization']}",
                "content-type: application/json", "checkfu-version: 2026-08-29", f"idempotency-key: long-{claimed}",
                f"content-length: {claimed}", "", "{",
            ]  # fmt: skip
            connection.sendall("\r\n".join(lines).encode())
            assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]
