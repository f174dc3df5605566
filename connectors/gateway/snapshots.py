"""Takes in what a worker retains, snapshots and native material: sealed on its way to the blob store, some MiB of it here at once.

An upload is no command and no event: it becomes recovery material once a checkpoint names it, and is swept where none does.
What a session under zero data retention is sent is counted and dropped here: its checkpoints are metadata only.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator
from typing import Final

from msgspec import Struct

from connectors.edge import fields as f
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, plain
from connectors.gateway.call import Call
from connectors.gateway.changes import report_of
from connectors.gateway.holders import require_not_fenced
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.errors import Invalid
from streams.sealed_blobs import Place
from streams.session.words import ZDR

OCTETS: Final = "application/octet-stream"
_SHA_256: Final = re.compile(r"(?:^|,)\s*sha-256\s*=\s*:([A-Za-z0-9+/]+=*):\s*(?:,|$)")


class SnapshotStored(Struct, frozen=True, forbid_unknown_fields=True):
    """`upload_id` is what a checkpoint names. `digest` is of the sealed bytes; null where the session keeps none."""

    session_id: f.SessionId
    upload_id: f.UploadId
    bytes: f.Count
    digest: f.Digest | None


async def upload(gateway: Gateway, call: Call, _: bodies.NoQuery) -> Answer:
    key = call.principal.principal_id
    gateway.transfer_shares.take(key)
    try:
        return await _upload(gateway, call)
    finally:
        gateway.transfer_shares.give_back(key)


async def _upload(gateway: Gateway, call: Call) -> Answer:
    if (call.header("content-type") or "").strip().lower() != OCTETS:
        raise Invalid(f"Content-Type: expected {OCTETS}", code="request.unsupported_media_type")
    if call.header("content-encoding") not in (None, "identity"):
        raise Invalid("Content-Encoding: none is supported", code="request.unsupported_media_type")
    expected = _expected_digest(call.header("repr-digest"))
    report = report_of(call, position_needed=False)
    facts = await gateway.facts_of(call, call.path["session_id"])
    await gateway.require_not_erased(facts, (facts.session_id,))
    await require_not_fenced(gateway, call, facts.session_id, report)
    upload_id = await gateway.upload_id(call, facts)
    bytes_max = gateway.limits.upload_bytes_max
    chunks = call.chunks(bytes_max, gateway.settings.upload_total_s)
    if facts.policy_mode == ZDR:
        size = await _dropped(chunks, expected)
        return plain(SnapshotStored(facts.session_id, upload_id, size, None), 201)
    stored = await gateway.snapshots.upload(
        Place(facts.workspace_id, facts.session_id), upload_id, chunks, sha256=expected, bytes_max=bytes_max
    )
    gateway.metrics.transferred("upload", stored.bytes)
    return plain(SnapshotStored(facts.session_id, stored.upload_id, stored.bytes, stored.digest), 201)


def _expected_digest(text: str | None) -> bytes | None:
    """The SHA-256 that `Repr-Digest` (RFC 9530) tells of the bytes. Raises `Invalid` (request.malformed)."""
    if text is None:
        return None
    found = _SHA_256.search(text)
    try:
        digest = b"" if found is None else base64.b64decode(found[1], validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise Invalid("Repr-Digest: expected sha-256=:<base64>:", code="request.malformed")
    return digest


async def _dropped(chunks: AsyncIterator[bytes], expected: bytes | None) -> int:
    """Counts what comes and keeps none of it. Raises `Invalid`."""
    size, hashed = 0, hashlib.sha256()
    async for chunk in chunks:
        size += len(chunk)
        hashed.update(chunk)
    if expected not in (None, hashed.digest()):
        raise Invalid("Repr-Digest: not that of the bytes that came")
    return size


ROUTES = (
    Route(
        method="POST", path="/v1/sessions/{session_id}/snapshots", name="upload_snapshot",
        summary="Upload a snapshot or native material, for a checkpoint to name", handler=upload, scope="checkpoints:write",
        answer=SnapshotStored, status=201, change=True, command=False, report="required", report_position=False,
        budget="transfers", reads_body_itself=True,
        other_body_types={OCTETS: "The bytes; `Repr-Digest: sha-256=:...:` is checked where it is given."},
        refusals=(
            "request.idempotency_mismatch", "runtime.attempt_fenced", "runtime.already_settled", "runtime.session_closed",
            "service.blob_store_unavailable",
        ),
    ),
)  # fmt: skip
