"""The eight reasons to refuse an import, in their order: the first check that fails is the reason (design 05, "Capsules").

A check is a function of the request and of what is known at this moment (`Known`), which its caller has found out: nothing is looked
up here. Times in microseconds since the epoch.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

from msgspec import Struct

from streams.capsules import digests
from streams.capsules.model import (
    ALGORITHM,
    CATALOGUE_AUTHORITY,
    CHECKPOINT_IMPORT,
    ENCODING,
    FORMAT,
    PASSED,
    RETAINED,
    RETENTION_AUTHORITY,
    SAME_RUN,
    SCHEMA_VERSION,
    ExpiryAt,
    ImportCapsule,
    OwnerSubject,
    OwnerWorkspace,
    Signature,
    microseconds,
)

Reason = Literal[
    "capsule_absent", "capsule_invalid", "projector_unavailable", "source_projection_unavailable", "capsule_unavailable",
    "secret_scrub_failed", "target_unqualified", "capsule_incompatible",
]  # fmt: skip
Purpose = Literal["retention", "qualifications"]
Verdict = Literal["good", "wrong", "unknown"]
"""`unknown` is also a key that is revoked."""

SAME_DIGESTS: Final[Mapping[str, str]] = {
    f"source_{name}": name
    for name in (
        "environment_snapshot_digest", "admission_snapshot_digest", "runtime_tuple_digest", "model_manifest_digest",
        "tool_manifest_digest", "resource_manifest_digest", "capture_policy_digest",
    )
}  # fmt: skip
"""Of the source, and of the target that the same Run goes on in."""


class Keys(Protocol):
    def verdict(self, purpose: Purpose, key_id: str, told: bytes, signature: bytes) -> Verdict:
        """Whether a key of this purpose has signed `told`."""
        ...


class Custody(Struct, frozen=True):
    """What retention custody has under the capsule's id, in the session where it lies."""

    session_id: str
    revoked: bool = False


class Arrived(Struct, frozen=True):
    """What came as content. `decoded` is false where it was no base64: size and digest say nothing then."""

    byte_count: int
    digest: str
    decoded: bool = True


class Current(Struct, frozen=True):
    """What the projector says now: retained, expired, erased or omitted, of the capsule's bytes and of its checkpoint."""

    content: str
    checkpoint: str


class Known(Struct, frozen=True, kw_only=True):
    """`custody` is None where there is no such capsule; `current` is None where the projector's key or statement cannot be consulted.
    `source_readable`: whether the prefix that the capsule names can be. `scanned_clean` is None before the content was scanned:
    what comes after it cannot be judged then."""

    now: int
    workspace_id: str
    session_id: str
    custody: Custody | None
    arrived: Arrived
    current: Current | None
    source_readable: bool
    keys: Keys
    receipt_revoked: bool
    scanned_clean: bool | None


Check = Callable[[ImportCapsule, Known], bool]
"""Whether it holds."""


def refusal(request: ImportCapsule, known: Known) -> Reason | None:
    """Why the import is refused; None: it is not."""
    if known.scanned_clean is None:
        raise RuntimeError("what was not scanned is not imported")
    return next((reason for reason, check in CHECKS.items() if not check(request, known)), None)


def refusal_before_scan(request: ImportCapsule, known: Known) -> Reason | None:
    """As `refusal`, of the checks that come before the scan: who is refused by them need not be scanned."""
    before = list(CHECKS)[: list(CHECKS).index("secret_scrub_failed")]
    return next((reason for reason in before if not CHECKS[reason](request, known)), None)


def _is_there(request: ImportCapsule, known: Known) -> bool:
    """Of another workspace is as if there were none."""
    custody, capsule = known.custody, request.transfer.capsule
    return custody is not None and not custody.revoked and capsule.workspace_id == known.workspace_id


def _is_valid(request: ImportCapsule, known: Known) -> bool:
    transfer = request.transfer
    constants = (transfer.format, transfer.schema_version, transfer.content_encoding) == (FORMAT, SCHEMA_VERSION, ENCODING)
    return constants and _bytes_agree(request, known) and _fields_agree(request, known) and _statements_agree(request)


def _bytes_agree(request: ImportCapsule, known: Known) -> bool:
    artifact, arrived = request.transfer.capsule.artifact, known.arrived
    return arrived.decoded and (artifact.byte_count, artifact.content_digest) == (arrived.byte_count, arrived.digest)


def _fields_agree(request: ImportCapsule, known: Known) -> bool:
    """Session, thread, artifact and retention tell of the same thing."""
    capsule = request.transfer.capsule
    artifact, retention = capsule.artifact, capsule.artifact.retention
    sessions = {known.session_id, capsule.session_id, artifact.session_id, retention.session_id}
    if known.custody is not None:
        sessions.add(known.custody.session_id)
    owner = retention.erasure_owner
    workspaces = {capsule.workspace_id, retention.workspace_id}
    if isinstance(owner, OwnerWorkspace) or (isinstance(owner, OwnerSubject) and isinstance(owner.workspace_id, str)):
        workspaces.add(str(owner.workspace_id))
    told = (artifact.id, artifact.byte_count, artifact.content_digest, artifact.availability, artifact.availability_recorded_at)
    retained = (
        retention.artifact_id, retention.byte_count, retention.content_digest, retention.availability, retention.availability_recorded_at
    )  # fmt: skip
    return (
        len(sessions) == 1
        and len(workspaces) == 1
        and request.session_thread_id == capsule.session_thread_id
        and told == retained
        and artifact.created_at == retention.artifact_created_at
        and retention.authority == RETENTION_AUTHORITY
    )


def _statements_agree(request: ImportCapsule) -> bool:
    """Each digest is that of its statement, each signature's own is the one that it signs, and each signature could be one."""
    transfer, retention = request.transfer, request.transfer.capsule.artifact.retention
    projected = digests.projection_digest(transfer)
    retained = digests.retention_digest(retention)
    return (
        retention.policy_digest == digests.policy_digest(retention.policy)
        and retention.statement_digest == retained
        and _could_sign(retention.signature, retained)
        and _could_sign(transfer.projection_signature, projected)
    )


def _projector_answers(request: ImportCapsule, known: Known) -> bool:
    return known.current is not None


def _source_is_projected(request: ImportCapsule, known: Known) -> bool:
    """By keys of the projector that are still trusted, of a prefix that can still be read."""
    transfer = request.transfer
    signatures = (transfer.projection_signature, transfer.capsule.artifact.retention.signature)
    return known.source_readable and all(_signed(known.keys, "retention", each) for each in signatures)


def _is_retained(request: ImportCapsule, known: Known) -> bool:
    """By what the statement says, and by what is so now."""
    retention = request.transfer.capsule.artifact.retention
    expiry = retention.final_expiry
    passed = isinstance(expiry, ExpiryAt) and microseconds(expiry.expires_at) <= known.now
    current = known.current
    now_retained = current is not None and (current.content, current.checkpoint) == (RETAINED, RETAINED)
    return retention.availability.availability_type == RETAINED and not passed and now_retained


def _is_scrubbed(request: ImportCapsule, known: Known) -> bool:
    capsule = request.transfer.capsule
    receipt = capsule.secret_scrub_receipt
    inspected = receipt.inspected_digest == capsule.artifact.content_digest
    return receipt.scrub_result == PASSED and inspected and known.scanned_clean is not False


def _is_qualified(request: ImportCapsule, known: Known) -> bool:
    target = request.target
    receipt = target.qualification_receipt
    digest = digests.receipt_digest(receipt)
    return (
        receipt.authority == CATALOGUE_AUTHORITY
        and CHECKPOINT_IMPORT in receipt.qualified_capabilities
        and microseconds(receipt.valid_from) <= known.now < microseconds(receipt.valid_until)
        and receipt.target_digest == digests.target_digest(target)
        and receipt.receipt_digest == digest
        and _could_sign(receipt.signature, digest)
        and _signed(known.keys, "qualifications", receipt.signature)
        and not known.receipt_revoked
    )


def _is_compatible(request: ImportCapsule, known: Known) -> bool:
    capsule, target = request.transfer.capsule, request.target
    asked = (target.importer_id, digests.target_digest(target), target.qualification_receipt.catalog_revision_digest)
    listed = any((each.importer_id, each.target_digest, each.catalog_revision_digest) == asked for each in capsule.compatible_importers)
    same = request.use_kind != SAME_RUN or all(getattr(capsule, ours) == getattr(target, theirs) for ours, theirs in SAME_DIGESTS.items())
    return listed and same and known.now < microseconds(capsule.compatibility_expires_at)


def _could_sign(signature: Signature, digest: str) -> bool:
    """Whether it is a signature of this digest, by whomever."""
    known = signature.algorithm == ALGORITHM and signature.statement_digest == digest
    return known and digests.signature_bytes(signature.signature) is not None


def _signed(keys: Keys, purpose: Purpose, signature: Signature) -> bool:
    found = digests.signature_bytes(signature.signature)
    return found is not None and keys.verdict(purpose, signature.key_id, signature.statement_digest.encode(), found) == "good"


CHECKS: Final[Mapping[Reason, Check]] = {
    "capsule_absent": _is_there,
    "capsule_invalid": _is_valid,
    "projector_unavailable": _projector_answers,
    "source_projection_unavailable": _source_is_projected,
    "capsule_unavailable": _is_retained,
    "secret_scrub_failed": _is_scrubbed,
    "target_unqualified": _is_qualified,
    "capsule_incompatible": _is_compatible,
}
"""In the order in which they are made."""
