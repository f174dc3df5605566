"""Routes of checkpoints: tell of one, list them, give out what one retains.

A checkpoint names uploads of its session; their sizes and digests come from the uploads themselves. What a provider keeps is named by
a reference, which is content and sealed as such. Listings are free of secrets: no bytes, no key ids, no paths.
"""

import json

from msgspec import Struct, structs

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent, SessionFacts
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Changed, plain
from connectors.gateway.answers import Sequence as Position
from connectors.gateway.boundaries import event_at, outside
from connectors.gateway.call import Call
from connectors.gateway.changes import append_one
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.errors import ContentUnavailable, Invalid, NotFound
from streams.projections.checkpoints import CheckpointRow
from streams.sealed_blobs import Place, Uploaded
from streams.session.events import CheckpointAttributes
from streams.session.limits import LONGEST_CHECKPOINT_WINDOW_S, NATIVE_BYTES_MAX
from streams.session.words import CONTENT_EXPIRED, NATIVE, NO_SNAPSHOT, REBUILD, REFERENCED, STORED, ZDR

_PATH = "/v1/sessions/{session_id}/checkpoints"


class CheckpointCreated(Changed, kw_only=True, forbid_unknown_fields=True):
    """`expires_at` never moves. Without retained bytes (zero data retention) the checkpoint is metadata only."""

    checkpoint_id: f.CheckpointId
    expires_at: f.Moment
    retained: bool


class CheckpointView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`through_sequence` is a position of `origin_session_id`: the session itself, unless a fork brought the checkpoint along."""

    id: f.CheckpointId
    session_id: f.SessionId
    origin_session_id: f.SessionId
    run_id: f.RunId | None
    through_sequence: Position
    through_event_id: f.EventId
    harness_revision: f.Name | None
    environment_revision: f.Name | None
    continuation_kind: f.ContinuationKind
    created_at: f.Moment
    expires_at: f.Moment


class CheckpointsView(Struct, frozen=True, forbid_unknown_fields=True):
    """Newest first; `next_cursor` continues behind the last one, null at the end. Those that have expired stay listed."""

    checkpoints: list[CheckpointView]
    next_cursor: str | None


async def create(gateway: Gateway, call: Call, body: bodies.CreateCheckpoint) -> Answer:
    facts = await gateway.facts_of(call, call.path["session_id"])
    through = await event_at(gateway, call, facts.session_id, body.through_sequence)
    if through.event_id != body.through_event_id:
        raise outside(f"through_event_id: {through.event_id} stands at {body.through_sequence}")
    material, content = await _material(gateway, facts, body)
    report = call.report()
    assert report is not None, "the route requires it"

    def event(naming: Naming) -> NewEvent:
        attributes = structs.replace(
            material,
            checkpoint_id=naming.of("ckpt"),
            through_sequence=body.through_sequence,
            through_event_id=through.event_id,
            through_hash=through.hash.hex(),
            harness=body.harness,
            harness_revision=body.harness_revision,
            environment_revision=body.environment_revision,
            continuation_kind=NATIVE if isinstance(body.continuation, bodies.NativeContinuation) else REBUILD,
        )
        return NewEvent(type="checkpoint.created", run_id=report.run_id, attributes=attributes, content=content)

    done = await append_one(gateway, call, event, report=report)
    window_s = min(facts.checkpoint_window_s or LONGEST_CHECKPOINT_WINDOW_S, LONGEST_CHECKPOINT_WINDOW_S)
    return done.told(
        201,
        CheckpointCreated,
        checkpoint_id=done.naming.of("ckpt"),
        expires_at=f.when(done.outcome.decided_at + window_s * 1_000_000),
        retained=material.snapshot_kind != NO_SNAPSHOT,
    )


async def _material(gateway: Gateway, facts: SessionFacts, body: bodies.CreateCheckpoint) -> tuple[CheckpointAttributes, bytes | None]:
    """What tells of what is retained, in attributes and in content. Raises `Invalid`."""
    snapshot = body.snapshot
    if snapshot is not None and (snapshot.upload_id is None) == (snapshot.provider is None and snapshot.reference is None):
        raise Invalid("snapshot: either upload_id, or provider and reference - at `$.snapshot`")
    if snapshot is not None and (snapshot.provider is None) != (snapshot.reference is None):
        raise Invalid("snapshot: provider and reference come together - at `$.snapshot`")
    if facts.policy_mode == ZDR:
        return CheckpointAttributes(snapshot_kind=NO_SNAPSHOT), None
    if snapshot is None:
        raise Invalid("snapshot: required, since this session retains one - at `$.snapshot`")
    content = None
    if snapshot.upload_id is not None:
        stored = await _uploaded(gateway, facts, snapshot.upload_id, "$.snapshot.upload_id")
        told = CheckpointAttributes(
            snapshot_kind=STORED, snapshot_id=stored.upload_id, snapshot_bytes=stored.bytes, snapshot_digest=stored.digest
        )
    else:
        told = CheckpointAttributes(snapshot_kind=REFERENCED)
        content = json.dumps({"provider": snapshot.provider, "reference": snapshot.reference}, ensure_ascii=False).encode()
    if isinstance(body.continuation, bodies.NativeContinuation):
        native = await _uploaded(gateway, facts, body.continuation.upload_id, "$.continuation.upload_id")
        if native.bytes > NATIVE_BYTES_MAX:
            raise Invalid(f"continuation: native material has at most {NATIVE_BYTES_MAX} bytes - at `$.continuation.upload_id`")
        told = structs.replace(told, native_id=native.upload_id, native_bytes=native.bytes, native_digest=native.digest)
    return told, content


async def _uploaded(gateway: Gateway, facts: SessionFacts, upload_id: str, place: str) -> Uploaded:
    try:
        return await gateway.snapshots.find(Place(facts.workspace_id, facts.session_id), upload_id)
    except NotFound:
        raise Invalid(f"{upload_id}: no upload of this session - at `{place}`") from None
    except ContentUnavailable as error:
        if error.code != CONTENT_EXPIRED:
            raise
        # What takes its bytes away may be on its way already.
        raise Invalid(f"{error.detail} - at `{place}`") from None


async def listing(gateway: Gateway, call: Call, query: bodies.CheckpointsQuery) -> Answer:
    principal = call.principal
    page = await gateway.owners.checkpoints(
        principal.workspace_id, call.path["session_id"], subject_id=principal.subject_id, cursor=query.cursor, limit=query.limit,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip
    return plain(CheckpointsView([_view(row) for row in page.checkpoints], page.cursor))


def _view(row: CheckpointRow) -> CheckpointView:
    return CheckpointView(
        id=row.checkpoint_id,
        session_id=row.session_id,
        origin_session_id=row.origin_session_id,
        run_id=row.run_id,
        through_sequence=row.through_sequence,
        through_event_id=row.through_event_id,
        harness_revision=row.harness_revision,
        environment_revision=row.environment_revision,
        continuation_kind=row.continuation_kind,
        created_at=f.when(row.created_at),
        expires_at=f.when(row.expires_at),
    )


async def checkpoint_of(gateway: Gateway, call: Call, session_id: str, checkpoint_id: str) -> CheckpointRow:
    """Raises `NotFound`, and what the owner raises."""
    principal = call.principal
    return await gateway.owners.checkpoint(
        principal.workspace_id, session_id, checkpoint_id, subject_id=principal.subject_id,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip


ROUTES = (
    Route(
        method="POST", path=_PATH, name="create_checkpoint", summary="Tell of a checkpoint of the Run that the report names",
        handler=create, scope="checkpoints:write", body=bodies.CreateCheckpoint, answer=CheckpointCreated, status=201, change=True,
        report="required",
        refusals=(
            "runtime.attempt_fenced", "runtime.already_settled", "runtime.position_conflict", "runtime.run_unavailable",
            "runtime.transition_refused", "runtime.already_exists", "runtime.checkpoint_boundary", "service.blob_store_unavailable",
        ),
    ),
    Route(
        method="GET", path=_PATH, name="list_checkpoints", summary="List checkpoints, newest first", handler=listing,
        scope="checkpoints:read", query=bodies.CheckpointsQuery, answer=CheckpointsView,
    ),
)  # fmt: skip
