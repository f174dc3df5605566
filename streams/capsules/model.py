"""The request of an import, field by field as the seed has it (*Import a qualified native continuation capsule*).

What has the wrong type, is missing, unknown or out of bounds is no request. A wrong *constant* within `target` or `transfer` is one,
and is refused with a reason (`checks.py`), so constants are texts here. Ids that the seed gives no pattern are any 1..255 characters.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

FORMAT: Final = "checkfu.session-continuation-capsule"
SCHEMA_VERSION: Final = 1
ENCODING: Final = "base64"
ALGORITHM: Final = "ed25519"
RETAINED: Final = "retained"
PASSED: Final = "passed"
CATALOGUE_AUTHORITY: Final = "server_runtime_tuple_catalog"
RETENTION_AUTHORITY: Final = "server_retention_projector"
SAME_RUN: Final = "same_run_recovery"
IDLE_HANDOFF: Final = "idle_handoff"
CHECKPOINT_IMPORT: Final = "checkpoint_import"
"""The capability that a target must be qualified for."""

BYTE_COUNT_MAX: Final = 2**30
INTEGER_MAX: Final = 2**53 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"

SessionId = Annotated[str, Meta(pattern=r"^sess_[0-9a-f]{32}$(?!\n)", max_length=37)]
ThreadId = Annotated[str, Meta(pattern=r"^sthr_[0-9a-f]{32}$(?!\n)", max_length=37)]
Id = Annotated[str, Meta(min_length=1, max_length=255)]
Constant = Annotated[str, Meta(max_length=255, description="Another text than the one that is told of is refused with a reason")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$(?!\n)", max_length=71)]
ByteCount = Annotated[int, Meta(ge=0, le=BYTE_COUNT_MAX)]
Whole = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Moment = Annotated[str, Meta(pattern=rf"^{_TIME}$(?!\n)", max_length=40, description="RFC 3339, with an offset")]
UseKind = Literal["same_run_recovery", "idle_handoff"]
IncludedState = Literal["native_session_id", "thread_cursor"]


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything here: what is signed has no field that nobody looked at."""


class Signature(Shape, frozen=True, kw_only=True):
    """`signature` is base64 of 64 bytes, over the ASCII of `statement_digest`."""

    algorithm: Constant
    key_id: Id
    statement_digest: Digest
    signature: Annotated[str, Meta(max_length=255)]


class QualificationReceipt(Shape, frozen=True, kw_only=True):
    authority: Constant
    catalog_entry_id: Id
    catalog_revision_digest: Digest
    target_digest: Digest
    qualified_capabilities: Annotated[tuple[Id, ...], Meta(max_length=64)]
    valid_from: Moment
    valid_until: Moment
    receipt_digest: Digest
    signature: Signature

    def __post_init__(self) -> None:
        _require_moments(self.valid_from, self.valid_until)


class Target(Shape, frozen=True, kw_only=True):
    importer_id: Id
    agent_id: Id
    agent_version_number: Whole
    environment_id: Id
    environment_snapshot_digest: Digest
    admission_snapshot_digest: Digest
    runtime_tuple_digest: Digest
    adapter_version_identifier: Id
    driver_version_identifier: Id
    continuation_schema_identifier: Id
    platform_identifier: Id
    model_manifest_digest: Digest
    tool_manifest_digest: Digest
    resource_manifest_digest: Digest
    capture_policy_digest: Digest
    filesystem_digest: Digest
    qualification_receipt: QualificationReceipt


class Availability(Shape, frozen=True, kw_only=True):
    """`custody_digest` is there where the bytes are."""

    availability_type: Constant
    custody_digest: Digest | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.availability_type == RETAINED and self.custody_digest is UNSET:
            raise ValueError("custody_digest: required of what is retained")


class Policy(Shape, frozen=True, kw_only=True):
    mode: Literal["standard", "zdr"]


class ExpiryAt(Shape, frozen=True, kw_only=True, tag_field="expiry_type", tag="at"):
    expires_at: Moment

    def __post_init__(self) -> None:
        _require_moments(self.expires_at)


class ExpiryNone(Shape, frozen=True, kw_only=True, tag_field="expiry_type", tag="none"):
    pass


class OwnerWorkspace(Shape, frozen=True, kw_only=True, tag_field="kind", tag="workspace"):
    workspace_id: Id


class OwnerSubject(Shape, frozen=True, kw_only=True, tag_field="kind", tag="subject"):
    subject_id: Id
    workspace_id: Id | UnsetType = UNSET


class Resource(Shape, frozen=True, kw_only=True):
    kind: Id
    id: Id


class Retention(Shape, frozen=True, kw_only=True):
    """What the retention projector said of the bytes when it was asked last."""

    authority: Constant
    workspace_id: Id
    session_id: SessionId
    artifact_id: Id
    byte_count: ByteCount
    content_digest: Digest
    availability: Availability
    availability_recorded_at: Moment
    artifact_created_at: Moment
    policy: Policy
    policy_digest: Digest
    final_expiry: ExpiryAt | ExpiryNone
    erasure_owner: OwnerWorkspace | OwnerSubject
    erasure_resource: Resource
    erasure_envelope_id: Id
    recorded_at: Moment
    statement_digest: Digest
    signature: Signature

    def __post_init__(self) -> None:
        _require_moments(self.availability_recorded_at, self.artifact_created_at, self.recorded_at)


class Artifact(Shape, frozen=True, kw_only=True):
    """The sealed bytes, which digest and count are of. `work_unit_id` is the Run that they are of."""

    id: Id
    session_id: SessionId
    media_type: Id
    byte_count: ByteCount
    content_digest: Digest
    producer_actor_id: Id
    work_unit_id: Id
    availability: Availability
    availability_recorded_at: Moment
    retention: Retention
    created_at: Moment

    def __post_init__(self) -> None:
        _require_moments(self.availability_recorded_at, self.created_at)


class Encryption(Shape, frozen=True, kw_only=True):
    key_reference_digest: Digest


class ScrubReceipt(Shape, frozen=True, kw_only=True):
    scrub_result: Constant
    scrubber_version_identifier: Id
    inspected_digest: Digest


class CompatibleImporter(Shape, frozen=True, kw_only=True):
    importer_id: Id
    target_digest: Digest
    catalog_revision_digest: Digest


class Capsule(Shape, frozen=True, kw_only=True):
    id: Id
    workspace_id: Id
    session_id: SessionId
    session_thread_id: ThreadId
    source_actor_id: Id
    through_sequence: Whole
    source_agent_id: Id
    source_agent_version_number: Whole
    source_environment_id: Id
    source_environment_snapshot_digest: Digest
    source_admission_snapshot_digest: Digest
    source_runtime_tuple_digest: Digest
    source_model_manifest_digest: Digest
    source_tool_manifest_digest: Digest
    source_resource_manifest_digest: Digest
    source_capture_policy_digest: Digest
    adapter_version_identifier: Id
    platform_identifier: Id
    native_session_id_digest: Digest
    checkpoint_id: Id
    included_state: Annotated[tuple[IncludedState, ...], Meta(max_length=2)]
    encryption: Encryption
    artifact: Artifact
    secret_scrub_receipt: ScrubReceipt
    compatible_importers: Annotated[tuple[CompatibleImporter, ...], Meta(max_length=256)]
    compatibility_expires_at: Moment

    def __post_init__(self) -> None:
        _require_moments(self.compatibility_expires_at)


class Transfer(Shape, frozen=True, kw_only=True):
    """A capsule under way. Of what was taken in, `content_base64` is empty: it was taken out while it came (`splitting.py`)."""

    format: Constant
    schema_version: Whole
    capsule: Capsule
    projection_signature: Signature
    content_encoding: Constant
    content_base64: Annotated[str, Meta(description="Base64 of the sealed bytes, of one spelling: padded, no line breaks")]
    exported_at: Moment

    def __post_init__(self) -> None:
        _require_moments(self.exported_at)


class ImportCapsule(Shape, frozen=True, kw_only=True):
    session_thread_id: ThreadId
    target: Target
    transfer: Transfer
    use_kind: UseKind = "idle_handoff"


def microseconds(moment: str) -> int:
    """Since the epoch. Raises `ValueError` for a moment that no calendar has."""
    try:
        return (datetime.fromisoformat(moment) - _EPOCH) // timedelta(microseconds=1)
    except OverflowError as error:
        raise ValueError(f"{moment}: outside of the calendar") from error


def moment_of(us: int) -> str:
    """The inverse, in UTC with six digits of a second."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _require_moments(*moments: str) -> None:
    for each in moments:
        if re.fullmatch(_TIME, each) is not None:
            microseconds(each)
