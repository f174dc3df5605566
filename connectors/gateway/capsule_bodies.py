"""What is asked of capsules and answered, but for the import itself, whose request is `streams.capsules.model.ImportCapsule`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from connectors.edge import fields as f
from connectors.gateway.answers import Changed
from streams.capsules import model as m
from streams.capsules.checks import Reason

VERSION: Final = "2026-08-29"
"""Of the interface of imports: the only one there is."""


class CapsuleSource(f.Body, frozen=True, kw_only=True):
    """What the session ran on, as its harness knows it."""

    agent_id: m.Id
    agent_version_number: m.Whole
    environment_id: m.Id
    environment_snapshot_digest: m.Digest
    admission_snapshot_digest: m.Digest
    runtime_tuple_digest: m.Digest
    model_manifest_digest: m.Digest
    tool_manifest_digest: m.Digest
    resource_manifest_digest: m.Digest
    capture_policy_digest: m.Digest
    adapter_version_identifier: m.Id
    platform_identifier: m.Id


class Continuation(f.Body, frozen=True, kw_only=True):
    """The private part: sealed, and shown to nobody again. Nothing of a Run under way, and no tool's input, belongs here."""

    native_session_id: Annotated[str, Meta(min_length=1, max_length=4096)]
    thread_cursor: Annotated[str, Meta(min_length=1, max_length=16384)] | None = None


class CreateCapsule(f.Body, frozen=True, kw_only=True):
    """`checkpoint_id`: a checkpoint of this session with native material, whose boundary the capsule has."""

    session_thread_id: m.ThreadId
    checkpoint_id: f.CheckpointId
    source: CapsuleSource
    continuation: Continuation
    compatible_importers: Annotated[tuple[m.CompatibleImporter, ...], Meta(max_length=256)] = ()
    compatibility_expires_at: f.Moment


class RevokeCapsule(f.Body, frozen=True):
    """Nothing is to be said."""


class CapsuleCreated(Changed, kw_only=True, forbid_unknown_fields=True):
    """`transfer` is what another place imports, as it stands."""

    capsule_id: f.CapsuleId
    expires_at: f.Moment
    transfer: m.Transfer


class CapsuleRevoked(Changed, kw_only=True, forbid_unknown_fields=True):
    capsule_id: f.CapsuleId


class ImportedCapsule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="outcome", tag="imported"):
    """Custody of an import. `retention` is the retention projector's statement on it; nothing was launched."""

    import_id: f.ImportId
    session_id: f.SessionId
    session_thread_id: f.ThreadId
    capsule_id: m.Id
    checkpoint_id: m.Id
    through_sequence: m.Whole
    use_kind: m.UseKind
    importer_id: m.Id
    target_digest: m.Digest
    content_digest: m.Digest
    byte_count: m.ByteCount
    availability: m.Availability
    retention: m.Retention
    imported_at: m.Moment
    expires_at: m.Moment


class RefusedImport(Struct, frozen=True, forbid_unknown_fields=True, tag_field="outcome", tag="refused"):
    reason: Reason
