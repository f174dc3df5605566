"""What is said of a capsule and signed: the retention projector's statement on its bytes, and the transfer as a whole.

A statement is made of values; who signs is given. An erasure of the owner or of the resource that a statement names ends what it is of.
"""

import base64
from typing import Protocol

from msgspec import Struct, structs

from streams.capsules import digests
from streams.capsules.checks import Purpose, Verdict
from streams.capsules.model import (
    ALGORITHM,
    ENCODING,
    FORMAT,
    RETAINED,
    RETENTION_AUTHORITY,
    SCHEMA_VERSION,
    Availability,
    Capsule,
    ExpiryAt,
    OwnerSubject,
    OwnerWorkspace,
    Policy,
    Resource,
    Retention,
    Signature,
    Transfer,
    moment_of,
)
from streams.session.words import ZDR

_UNSIGNED = Signature(algorithm=ALGORITHM, key_id="-", statement_digest="sha256:" + "0" * 64, signature="")


class CapsuleKeys(Protocol):
    """Who signs for the retention projector and for the support catalogue now, and whose signatures count."""

    def sign(self, purpose: Purpose, told: bytes) -> tuple[str, bytes]:
        """The key's id and the signature. Raises `SigningUnavailable`."""
        ...

    def verdict(self, purpose: Purpose, key_id: str, told: bytes, signature: bytes) -> Verdict:
        """Raises `SigningUnavailable`."""
        ...


class SigningUnavailable(Exception):
    """The keys cannot be consulted now."""


class Held(Struct, frozen=True, kw_only=True):
    """Bytes under retention, and whose they are. Times in microseconds since the epoch; `policy_mode` is the one that the session is
    pinned to."""

    workspace_id: str
    session_id: str
    subject_id: str | None
    artifact_id: str
    byte_count: int
    content_digest: str
    envelope_id: str
    created_at: int
    expires_at: int
    policy_mode: str


def signed(keys: CapsuleKeys, purpose: Purpose, digest: str) -> Signature:
    """Raises `SigningUnavailable`."""
    key_id, signature = keys.sign(purpose, digest.encode())
    return Signature(algorithm=ALGORITHM, key_id=key_id, statement_digest=digest, signature=base64.b64encode(signature).decode())


def availability_of(held: Held) -> Availability:
    custody = {
        "workspace_id": held.workspace_id, "session_id": held.session_id, "artifact_id": held.artifact_id,
        "content_digest": held.content_digest, "erasure_envelope_id": held.envelope_id,
    }  # fmt: skip
    return Availability(availability_type=RETAINED, custody_digest=digests.digest_of(custody))


def retention_of(keys: CapsuleKeys, held: Held, now: int) -> Retention:
    """What the projector says at `now` of bytes that are retained. Raises `SigningUnavailable`."""
    policy = Policy(mode="zdr" if held.policy_mode == ZDR else "standard")
    owner = (
        OwnerWorkspace(workspace_id=held.workspace_id)
        if held.subject_id is None
        else OwnerSubject(subject_id=held.subject_id, workspace_id=held.workspace_id)
    )
    statement = Retention(
        authority=RETENTION_AUTHORITY,
        workspace_id=held.workspace_id,
        session_id=held.session_id,
        artifact_id=held.artifact_id,
        byte_count=held.byte_count,
        content_digest=held.content_digest,
        availability=availability_of(held),
        availability_recorded_at=moment_of(held.created_at),
        artifact_created_at=moment_of(held.created_at),
        policy=policy,
        policy_digest=digests.policy_digest(policy),
        final_expiry=ExpiryAt(expires_at=moment_of(held.expires_at)),
        erasure_owner=owner,
        erasure_resource=Resource(kind="session", id=held.session_id),
        erasure_envelope_id=held.envelope_id,
        recorded_at=moment_of(now),
        statement_digest=_UNSIGNED.statement_digest,
        signature=_UNSIGNED,
    )
    digest = digests.retention_digest(statement)
    return structs.replace(statement, statement_digest=digest, signature=signed(keys, "retention", digest))


def transfer_of(keys: CapsuleKeys, capsule: Capsule, sealed: bytes, now: int) -> Transfer:
    """Raises `SigningUnavailable`."""
    exported_at = moment_of(now)
    digest = digests.capsule_digest(FORMAT, SCHEMA_VERSION, capsule, exported_at)
    return Transfer(
        format=FORMAT,
        schema_version=SCHEMA_VERSION,
        capsule=capsule,
        projection_signature=signed(keys, "retention", digest),
        content_encoding=ENCODING,
        content_base64=base64.b64encode(sealed).decode(),
        exported_at=exported_at,
    )
