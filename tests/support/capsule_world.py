"""A session that a capsule can be made of, over HTTP, and requests to import it: signed anew with whatever a test changes."""

import base64
import copy
from typing import Any

import httpx
from msgspec import Struct

from streams.capsules import digests
from streams.capsules.model import moment_of
from streams.clock import now_us
from tests.support.capsules import CATALOGUE, HOUR, PROJECTOR, Document, digest, signature
from tests.support.gateway import key, new_session, post
from tests.support.workers import worker_of

VERSION = {"checkfu-version": "2026-08-29"}
NAMES = (
    "environment_snapshot", "admission_snapshot", "runtime_tuple", "model_manifest", "tool_manifest", "resource_manifest", "capture_policy",
)  # fmt: skip


class Idle(Struct, frozen=True):
    """A session whose only Run is over, with a thread and a checkpoint of native material."""

    client: httpx.Client
    session_id: str
    thread_id: str
    checkpoint_id: str

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.session_id}/continuation-capsules"

    def asks(self, **changes: Any) -> Document:
        """A body that makes a capsule."""
        return {**asks(self.thread_id, self.checkpoint_id), **changes}

    def created(self, **changes: Any) -> Document:
        return dict(post(self.client, self.path, self.asks(**changes), status=201))

    def import_of(self, transfer: Document, **changes: Any) -> Document:
        return {"session_thread_id": self.thread_id, "target": target(), "transfer": transfer, **changes}

    def imports(self, body: Any, *, client: httpx.Client | None = None, **headers: str) -> httpx.Response:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return (client or self.client).post(f"{self.path}/import", json=body, headers={**key(), **VERSION, **given})

    def outcome(self, body: Document) -> str:
        """`imported`, or the reason."""
        response = self.imports(body)
        assert response.status_code == 200, response.text
        answer = response.json()
        return str(answer["outcome"] if answer["outcome"] == "imported" else answer["reason"])


def asks(thread_id: str, checkpoint_id: str, **changes: Any) -> Document:
    """A body that makes a capsule."""
    source = {f"{name}_digest": digest(name) for name in NAMES}
    source |= {"agent_id": "agent-1", "environment_id": "env-1", "adapter_version_identifier": "adapter/1"}
    return {
        "session_thread_id": thread_id,
        "checkpoint_id": checkpoint_id,
        "source": {**source, "agent_version_number": 3, "platform_identifier": "linux/amd64"},
        "continuation": {"native_session_id": "0b1c7a6e-native-session", "thread_cursor": "message-17"},
        "compatible_importers": [compatible(target())],
        "compatibility_expires_at": at(5 * HOUR),
        **changes,
    }


def at(after_us: int) -> str:
    return moment_of(now_us() + after_us)


def idle_session(client: httpx.Client, **session: Any) -> Idle:
    return worked(client, new_session(client, **session))


def worked(client: httpx.Client, session_id: str) -> Idle:
    """A session in which a Run came and went."""
    thread = post(client, f"/v1/sessions/{session_id}/threads", {"kind": "main"}, status=201)
    worker = worker_of(client, session_id, harness="h", harness_revision="h1", environment_revision="e1")
    worker.say("one")
    checkpoint = worker.checkpoint(native=b"native")
    worker.post(f"{worker.run}/complete", {"outcome": "done"})
    return Idle(client, session_id, thread["thread_id"], checkpoint["checkpoint_id"])


_UNTIL = at(HOUR)
_FROM = moment_of(now_us() - HOUR)


def target(**changes: Any) -> Document:
    """A qualified one; `changes` of the target itself, under a receipt that covers them."""
    made: Document = {
        "importer_id": "importer-1", "agent_id": "agent-1", "agent_version_number": 3, "environment_id": "env-1",
        **{f"{name}_digest": digest(name) for name in NAMES}, "filesystem_digest": digest("files"),
        "adapter_version_identifier": "adapter/1", "driver_version_identifier": "driver/1", "continuation_schema_identifier": "schema/1",
        "platform_identifier": "linux/amd64", "tool_manifest_digest": digest("other tools"),
        "qualification_receipt": {
            "authority": "server_runtime_tuple_catalog", "catalog_entry_id": "entry-1", "catalog_revision_digest": digest("revision"),
            "target_digest": digest("none"), "qualified_capabilities": ["checkpoint_import"], "valid_from": _FROM, "valid_until": _UNTIL,
            "receipt_digest": digest("none"), "signature": signature(CATALOGUE, digest("none")),
        },
        **changes,
    }  # fmt: skip
    return qualified(made)


def qualified(made: Document, **changes: Any) -> Document:
    """The target under a receipt with these changes, signed by the catalogue."""
    made = copy.deepcopy(made)
    receipt = made["qualification_receipt"]
    receipt["target_digest"] = _digest_of({name: value for name, value in made.items() if name != "qualification_receipt"})
    receipt.update(changes)
    receipt["receipt_digest"] = _digest_of({name: value for name, value in receipt.items() if name not in ("receipt_digest", "signature")})
    receipt["signature"] = signature(CATALOGUE, receipt["receipt_digest"])
    return made


def compatible(made: Document) -> Document:
    receipt = made["qualification_receipt"]
    return {
        "importer_id": made["importer_id"],
        "target_digest": receipt["target_digest"],
        "catalog_revision_digest": receipt["catalog_revision_digest"],
    }


def resigned(transfer: Document, **changes: Any) -> Document:
    """The transfer with changes (dotted paths, with `__` for the dot), as the projector itself would have signed it."""
    transfer = copy.deepcopy(transfer)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = transfer
        for name in way:
            place = place[name]
        place[last] = value
    retention = transfer["capsule"]["artifact"]["retention"]
    retention["statement_digest"] = _digest_of(
        {name: value for name, value in retention.items() if name not in ("statement_digest", "signature")}
    )
    retention["signature"] = signature(PROJECTOR, retention["statement_digest"])
    told = {name: transfer[name] for name in ("format", "schema_version", "capsule", "exported_at")}
    transfer["projection_signature"] = signature(PROJECTOR, _digest_of(told))
    return transfer


def with_content(transfer: Document, content: bytes) -> Document:
    """The transfer of other bytes, signed."""
    told = digests.digest_of_bytes(content)
    return resigned(
        transfer,
        content_base64=base64.b64encode(content).decode(),
        capsule__artifact__byte_count=len(content),
        capsule__artifact__retention__byte_count=len(content),
        capsule__artifact__content_digest=told,
        capsule__artifact__retention__content_digest=told,
        capsule__secret_scrub_receipt__inspected_digest=told,
    )


def _digest_of(statement: Document) -> str:
    return digests.digest_of(statement)
