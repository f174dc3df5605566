"""A transfer that may be imported, everything signed; and faults, each with the reason that it is refused for.

A fault changes the request or what is known. Those of statements come before everything is signed anew (`before`), as somebody who
holds the keys could make them; those of bytes and signatures come after it.
"""

import base64
import copy
from typing import Any

import msgspec
from msgspec import Struct, structs

from connectors.edge.capsule_statements import SigningUnavailable
from streams.capsules import checks, digests
from streams.capsules.model import ImportCapsule, moment_of
from streams.custody.signing import PublicKey, SigningKey, is_signed

NOW = 1_790_000_000_000_000
HOUR = 3_600_000_000
WORKSPACE, SESSION, THREAD = "ws_" + "a" * 32, "sess_" + "1" * 32, "sthr_" + "2" * 32
CONTENT = b"sealed bytes of a continuation"
PROJECTOR, CATALOGUE, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
Document = dict[str, Any]


class TrustedKeys:
    """Those of `trusted`, by purpose."""

    def __init__(self, trusted: dict[str, list[PublicKey]] | None = None) -> None:
        keys = {"retention": [PROJECTOR.public], "qualifications": [CATALOGUE.public]} if trusted is None else trusted
        self.keys = {(purpose, key.key_id): key for purpose, found in keys.items() for key in found}

    def verdict(self, purpose: checks.Purpose, key_id: str, told: bytes, signature: bytes) -> checks.Verdict:
        key = self.keys.get((purpose, key_id))
        if key is None:
            return "unknown"
        return "good" if is_signed(key, signature, told) else "wrong"


class CapsuleKeysInMemory(TrustedKeys):
    """Signs too. `away`: cannot be consulted."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    def sign(self, purpose: checks.Purpose, told: bytes) -> tuple[str, bytes]:
        self._require()
        key = {"retention": PROJECTOR, "qualifications": CATALOGUE}[purpose]
        return key.public.key_id, key.sign_bytes(told)

    def verdict(self, purpose: checks.Purpose, key_id: str, told: bytes, signature: bytes) -> checks.Verdict:
        self._require()
        return super().verdict(purpose, key_id, told, signature)

    def _require(self) -> None:
        if self.away:
            raise SigningUnavailable("away")


def digest(text: str) -> str:
    return digests.digest_of_bytes(text.encode())


def known(**changes: Any) -> checks.Known:
    found = checks.Known(
        now=NOW, workspace_id=WORKSPACE, session_id=SESSION, custody=checks.Custody(SESSION),
        arrived=checks.Arrived(len(CONTENT), digests.digest_of_bytes(CONTENT)), current=checks.Current("retained", "retained"),
        source_readable=True, keys=TrustedKeys(), receipt_revoked=False, scanned_clean=True,
    )  # fmt: skip
    return structs.replace(found, **changes)


def unsigned(
    *, workspace_id: str = WORKSPACE, session_id: str = SESSION, thread_id: str = THREAD, capsule_id: str = "cap_" + "3" * 32
) -> Document:
    """Without digests and signatures that fit: `signed` makes them."""
    nobody = {"algorithm": "ed25519", "key_id": "none", "statement_digest": digest("none"), "signature": ""}
    retained = {"availability_type": "retained", "custody_digest": digest("custody")}
    content_digest = digests.digest_of_bytes(CONTENT)
    names = (
        "environment_snapshot",
        "admission_snapshot",
        "runtime_tuple",
        "model_manifest",
        "tool_manifest",
        "resource_manifest",
        "capture_policy",
    )
    retention = {
        "authority": "server_retention_projector", "workspace_id": workspace_id, "session_id": session_id, "artifact_id": "art-1",
        "byte_count": len(CONTENT), "content_digest": content_digest, "availability": retained,
        "availability_recorded_at": moment_of(NOW - HOUR), "artifact_created_at": moment_of(NOW - HOUR), "policy": {"mode": "standard"},
        "policy_digest": digest("none"), "final_expiry": {"expiry_type": "at", "expires_at": moment_of(NOW + 9 * HOUR)},
        "erasure_owner": {"kind": "workspace", "workspace_id": workspace_id}, "erasure_resource": {"kind": "session", "id": session_id},
        "erasure_envelope_id": capsule_id, "recorded_at": moment_of(NOW - HOUR), "statement_digest": digest("none"), "signature": nobody,
    }  # fmt: skip
    artifact = {
        "id": "art-1", "session_id": session_id, "media_type": "application/octet-stream", "byte_count": len(CONTENT),
        "content_digest": content_digest, "producer_actor_id": "actor-1", "work_unit_id": "run_" + "4" * 32, "availability": retained,
        "availability_recorded_at": moment_of(NOW - HOUR), "retention": retention, "created_at": moment_of(NOW - HOUR),
    }  # fmt: skip
    capsule = {
        "id": capsule_id, "workspace_id": workspace_id, "session_id": session_id, "session_thread_id": thread_id,
        "source_actor_id": "actor-1", "through_sequence": 7, "source_agent_id": "agent-1", "source_agent_version_number": 3,
        "source_environment_id": "env-1", **{f"source_{name}_digest": digest(name) for name in names},
        "adapter_version_identifier": "adapter/1", "platform_identifier": "linux/amd64", "native_session_id_digest": digest("native"),
        "checkpoint_id": "ckpt_" + "5" * 32, "included_state": ["native_session_id"], "encryption": {"key_reference_digest": digest("key")},
        "artifact": artifact,
        "secret_scrub_receipt": {"scrub_result": "passed", "scrubber_version_identifier": "scrub/1", "inspected_digest": content_digest},
        "compatible_importers": [], "compatibility_expires_at": moment_of(NOW + 5 * HOUR),
    }  # fmt: skip
    target = {
        "importer_id": "importer-1", "agent_id": "agent-1", "agent_version_number": 3, "environment_id": "env-1",
        **{f"{name}_digest": digest(name) for name in names}, "filesystem_digest": digest("files"),
        "adapter_version_identifier": "adapter/1", "driver_version_identifier": "driver/1", "continuation_schema_identifier": "schema/1",
        "platform_identifier": "linux/amd64",
        "qualification_receipt": {
            "authority": "server_runtime_tuple_catalog", "catalog_entry_id": "entry-1", "catalog_revision_digest": digest("revision"),
            "target_digest": digest("none"), "qualified_capabilities": ["checkpoint_import"], "valid_from": moment_of(NOW - HOUR),
            "valid_until": moment_of(NOW + HOUR), "receipt_digest": digest("none"), "signature": nobody,
        },
    }  # fmt: skip
    # What the same Run must find unchanged differs here, so that asking for it is asking for too much.
    target["filesystem_digest"], target["tool_manifest_digest"] = digest("other files"), digest("other tools")
    transfer = {
        "format": "checkfu.session-continuation-capsule", "schema_version": 1, "capsule": capsule, "projection_signature": nobody,
        "content_encoding": "base64", "content_base64": base64.b64encode(CONTENT).decode(), "exported_at": moment_of(NOW),
    }  # fmt: skip
    return {"session_thread_id": thread_id, "target": target, "transfer": transfer}


def signature(key: SigningKey, told: str) -> Document:
    signed = base64.b64encode(key.sign_bytes(told.encode())).decode()
    return {"algorithm": "ed25519", "key_id": key.public.key_id, "statement_digest": told, "signature": signed}


def signed(document: Document, *, projector: SigningKey = PROJECTOR, catalogue: SigningKey = CATALOGUE, listed: bool = True) -> Document:
    """Every digest that of its statement, every signature by its signer; `listed`: the target is among the compatible ones."""
    document = copy.deepcopy(document)
    target, capsule = document["target"], document["transfer"]["capsule"]
    receipt, retention = target["qualification_receipt"], capsule["artifact"]["retention"]
    receipt["target_digest"] = digests.target_digest(parsed(document).target)
    receipt["receipt_digest"] = digests.receipt_digest(parsed(document).target.qualification_receipt)
    receipt["signature"] = signature(catalogue, receipt["receipt_digest"])
    retention["policy_digest"] = digests.policy_digest(parsed(document).transfer.capsule.artifact.retention.policy)
    retention["statement_digest"] = digests.retention_digest(parsed(document).transfer.capsule.artifact.retention)
    retention["signature"] = signature(projector, retention["statement_digest"])
    if listed:
        capsule["compatible_importers"] = [
            {
                "importer_id": target["importer_id"], "target_digest": receipt["target_digest"],
                "catalog_revision_digest": receipt["catalog_revision_digest"],
            }
        ]  # fmt: skip
    document["transfer"]["projection_signature"] = signature(projector, digests.projection_digest(parsed(document).transfer))
    return document


def parsed(document: Document) -> ImportCapsule:
    return msgspec.convert(document, ImportCapsule)


def at(document: Document, path: str, value: Any) -> None:
    """Sets what a dotted path leads to."""
    *way, last = path.split(".")
    for name in way:
        document = document[name]
    assert last in document, path
    document[last] = value


class Fault(Struct, frozen=True, kw_only=True):
    """`before` and `after` are paths and values within the request; `known` changes what is known; `signers` who signs."""

    name: str
    reason: checks.Reason
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    known: dict[str, Any] = {}
    signers: dict[str, Any] = {}
    unlisted: bool = False


_CAPSULE, _RECEIPT = "transfer.capsule", "target.qualification_receipt"
_ARTIFACT = f"{_CAPSULE}.artifact"
_RETENTION = f"{_ARTIFACT}.retention"
_GONE = {"availability_type": "erased", "custody_digest": digest("custody")}

FAULTS = (
    Fault(name="unknown id", reason="capsule_absent", known={"custody": None}),
    Fault(name="revoked", reason="capsule_absent", known={"custody": checks.Custody(SESSION, revoked=True)}),
    Fault(name="another workspace's", reason="capsule_absent", known={"workspace_id": "ws_" + "b" * 32}),
    Fault(name="another format", reason="capsule_invalid", before={"transfer.format": "checkfu.session-bundle"}),
    Fault(name="another version", reason="capsule_invalid", before={"transfer.schema_version": 2}),
    Fault(name="another encoding", reason="capsule_invalid", before={"transfer.content_encoding": "base64url"}),
    Fault(name="no base64", reason="capsule_invalid", known={"arrived": checks.Arrived(0, digest(""), decoded=False)}),
    Fault(name="a byte too few", reason="capsule_invalid",
          known={"arrived": checks.Arrived(len(CONTENT) - 1, digests.digest_of_bytes(CONTENT))}),
    Fault(name="other bytes", reason="capsule_invalid", known={"arrived": checks.Arrived(len(CONTENT), digest("other"))}),
    Fault(name="another thread", reason="capsule_invalid", before={"session_thread_id": "sthr_" + "9" * 32}),
    Fault(name="another session", reason="capsule_invalid", known={"session_id": "sess_" + "9" * 32}),
    Fault(name="another artifact", reason="capsule_invalid", before={f"{_RETENTION}.artifact_id": "art-2"}),
    Fault(name="another authority", reason="capsule_invalid", before={f"{_RETENTION}.authority": "somebody"}),
    Fault(name="another statement", reason="capsule_invalid", after={f"{_RETENTION}.statement_digest": digest("other")}),
    Fault(name="a malformed signature", reason="capsule_invalid", after={"transfer.projection_signature.signature": "AAAA"}),
    Fault(name="a weaker algorithm", reason="capsule_invalid", after={"transfer.projection_signature.algorithm": "hs256"}),
    Fault(name="no projector", reason="projector_unavailable", known={"current": None}),
    Fault(name="no projector, for the same Run", reason="projector_unavailable", known={"current": None},
          before={"use_kind": "same_run_recovery", "target.tool_manifest_digest": digest("tool_manifest")}),
    Fault(name="no projector, for what a subject owns", reason="projector_unavailable", known={"current": None},
          before={f"{_RETENTION}.erasure_owner": {"kind": "subject", "subject_id": "subj_" + "6" * 32}}),
    Fault(name="a key that nobody knows", reason="source_projection_unavailable", signers={"projector": STRANGER}),
    Fault(name="a prefix that nobody can read", reason="source_projection_unavailable", known={"source_readable": False}),
    Fault(name="a forged signature", reason="source_projection_unavailable",
          after={"transfer.projection_signature.signature": base64.b64encode(bytes(64)).decode()}),
    Fault(name="erased, by its statement", reason="capsule_unavailable",
          before={f"{_ARTIFACT}.availability": _GONE, f"{_RETENTION}.availability": _GONE}),
    Fault(name="past its final expiry", reason="capsule_unavailable", before={f"{_RETENTION}.final_expiry.expires_at": moment_of(NOW)}),
    Fault(name="erased since", reason="capsule_unavailable", known={"current": checks.Current("erased", "retained")}),
    Fault(name="expired since", reason="capsule_unavailable", known={"current": checks.Current("expired", "retained")}),
    Fault(name="its checkpoint expired", reason="capsule_unavailable", known={"current": checks.Current("retained", "expired")}),
    Fault(name="scrub failed", reason="secret_scrub_failed", before={f"{_CAPSULE}.secret_scrub_receipt.scrub_result": "failed"}),
    Fault(name="scrubbed something else", reason="secret_scrub_failed",
          before={f"{_CAPSULE}.secret_scrub_receipt.inspected_digest": digest("other")}),
    Fault(name="a credential is found", reason="secret_scrub_failed", known={"scanned_clean": False}),
    Fault(name="lacks the capability", reason="target_unqualified", before={f"{_RECEIPT}.qualified_capabilities": ["steering"]}),
    Fault(name="not yet valid", reason="target_unqualified", before={f"{_RECEIPT}.valid_from": moment_of(NOW + 1)}),
    Fault(name="no longer valid", reason="target_unqualified", before={f"{_RECEIPT}.valid_until": moment_of(NOW)}),
    Fault(name="another catalogue", reason="target_unqualified", before={f"{_RECEIPT}.authority": "somebody"}),
    Fault(name="qualified by a stranger", reason="target_unqualified", signers={"catalogue": STRANGER}),
    Fault(name="qualification withdrawn", reason="target_unqualified", known={"receipt_revoked": True}),
    Fault(name="a qualification of another algorithm", reason="target_unqualified", after={f"{_RECEIPT}.signature.algorithm": "rsa"}),
    Fault(name="another target than is qualified", reason="target_unqualified", after={"target.agent_id": "agent-2"}),
    Fault(name="not listed", reason="capsule_incompatible", unlisted=True),
    Fault(name="compatible no longer", reason="capsule_incompatible", before={f"{_CAPSULE}.compatibility_expires_at": moment_of(NOW)}),
    Fault(name="not the same Run's tools", reason="capsule_incompatible", before={"use_kind": "same_run_recovery"}),
)  # fmt: skip


def faulty(*faults: Fault) -> tuple[ImportCapsule, checks.Known]:
    """One request with all of the faults, and what is known then. What an earlier one says of something, a later one may not unsay."""
    document, facts, signers = unsigned(), {}, {}
    document["use_kind"] = "idle_handoff"
    for fault in faults:
        for path, value in fault.before.items():
            at(document, path, value)
        facts.update(fault.known)
        signers.update(fault.signers)
    document = signed(document, listed=not any(fault.unlisted for fault in faults), **signers)
    for fault in faults:
        for path, value in fault.after.items():
            at(document, path, value)
    return parsed(document), known(**facts)


def together(first: Fault, second: Fault) -> bool:
    """Whether one request can have both: they do not change the same thing."""
    ours = set(first.before) | set(first.after) | set(first.known) | set(first.signers)
    return ours.isdisjoint(set(second.before) | set(second.after) | set(second.known) | set(second.signers))
