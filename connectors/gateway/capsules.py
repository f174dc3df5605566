"""Makes continuation capsules of idle sessions, and takes them back.

A session is idle where nothing of it is open (`capsule_idle.py`): no live authority goes into a capsule, and no input of a tool. It is
looked at where its log ends, and the command expects that very position: what moves in between refuses it. What is sealed is scanned
for credentials first. The capsule is an event of its session, its content the transfer as it was answered.
"""

import hashlib
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from connectors.edge import fields as f
from connectors.edge.capsule_statements import Held, SigningUnavailable, availability_of, retention_of, transfer_of
from connectors.edge.compose import Naming, NewEvent, SessionFacts
from connectors.edge.scrubbing import found_in, scrubber_version
from connectors.gateway import capsule_bodies as b
from connectors.gateway.answers import Answer, told
from connectors.gateway.call import Call
from connectors.gateway.capsule_facts import (
    StoredCapsule,
    asked,
    attributes_of,
    capsule_of,
    event_id_of,
    event_named,
    fingerprint_of,
    place_of,
    row_at_end,
    stored,
    unreadable,
    with_prefix,
)
from connectors.gateway.capsule_idle import INELIGIBLE, NOT_IDLE, WAIT_OPEN, require_idle, require_kept, unsettled
from connectors.gateway.problems import Lacking
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.capsules import model as m
from streams.capsules.digests import digest_of, digest_of_bytes
from streams.custody.days import content_expiry_day, day_end_us
from streams.errors import Invalid, NotFound, Retriable, StreamsError
from streams.projections.checkpoints import CheckpointRow
from streams.projections.sessions import SessionRow
from streams.session import refusals
from streams.session.events import CapsuleAttributes, Event
from streams.session.lifecycles import CLOSED
from streams.session.outcomes import ACCEPTED, Outcome
from streams.session.words import NATIVE

_PATH: Final = "/v1/sessions/{session_id}/continuation-capsules"
_MEDIA_TYPE: Final = "application/octet-stream"

SECRET_FOUND: Final = "runtime.secret_found"
NO_NATIVE_MATERIAL: Final = "runtime.checkpoint_not_native"


async def create(gateway: Gateway, call: Call, body: b.CreateCapsule) -> Answer:
    session_id = call.path["session_id"]
    facts, incoming = await gateway.facts_of(call, session_id), call.incoming()
    fingerprint = await fingerprint_of(gateway, facts, incoming, hashlib.sha256(call.body).hexdigest())
    event_id = await event_id_of(gateway, facts, incoming)
    page = await unsettled(gateway, call, session_id)
    row = page.session
    known = await event_named(gateway, call, session_id, event_id, "capsule.created")
    if known is not None:
        return await _again(gateway, facts, known, fingerprint)
    if row.status == CLOSED:
        raise StreamsError(f"{session_id} is closed", code=refusals.SESSION_CLOSED)
    require_kept(facts, page)
    require_idle(page, gateway.clock())
    checkpoint = await _checkpoint(gateway, call, session_id, body.checkpoint_id)
    reason = await unreadable(gateway, call, row, checkpoint.through_sequence)
    if reason is not None:
        ranges = (f"1-{checkpoint.through_sequence} {reason}",)
        raise Lacking(f"first unavailable: {ranges[0]}", code=refusals.HISTORY_UNAVAILABLE, missing=ranges)
    plaintext = msgspec.json.encode({name: value for name, value in msgspec.structs.asdict(body.continuation).items() if value is not None})
    found = await gateway.in_thread(partial(found_in, plaintext))
    if found is not None:
        raise StreamsError(f"continuation: it may hold a credential ({found})", code=SECRET_FOUND)
    now = gateway.clock()
    day = content_expiry_day(now, facts.content_window_days)
    capsule_id = with_prefix(event_id, "cap")
    sealed = await gateway.in_thread(partial(gateway.capsules.seal, place_of(facts, day, capsule_id), plaintext))
    held = Held(
        workspace_id=facts.workspace_id, session_id=session_id, subject_id=facts.subject_id,
        artifact_id=with_prefix(event_id, "art"), byte_count=len(sealed), content_digest=digest_of_bytes(sealed),
        envelope_id=capsule_id, created_at=now, expires_at=day_end_us(day), policy_mode=facts.policy_mode,
    )  # fmt: skip
    transfer = await gateway.in_thread(partial(_transfer, gateway, call, body, checkpoint, held, sealed, now))
    expires_at = min(held.expires_at, checkpoint.expires_at, f.microseconds_of(body.compatibility_expires_at))
    attributes = CapsuleAttributes(
        capsule_id=capsule_id, checkpoint_id=body.checkpoint_id, through_sequence=checkpoint.through_sequence,
        byte_count=held.byte_count, content_digest=held.content_digest, expires_at=expires_at, request_digest=fingerprint,
    )  # fmt: skip
    content = msgspec.json.encode(StoredCapsule(day, Raw(msgspec.json.encode(transfer))))

    def event(_: Naming) -> list[NewEvent]:
        return [NewEvent(type="capsule.created", thread_id=body.session_thread_id, attributes=attributes, content=content)]

    outcome, _, _ = await gateway.carry_out(call, facts, event, expected_sequence=row.sequence)
    if outcome.repeated:
        known = await event_named(gateway, call, session_id, event_id, "capsule.created")
        if known is not None:
            return await _again(gateway, facts, known, fingerprint)
    return _created(gateway, facts, outcome, capsule_id, expires_at, transfer)


async def _checkpoint(gateway: Gateway, call: Call, session_id: str, checkpoint_id: str) -> CheckpointRow:
    """Raises `NotFound`, `StreamsError`."""
    row = await gateway.owners.checkpoint(
        call.principal.workspace_id, session_id, checkpoint_id, subject_id=call.principal.subject_id,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip
    if row.origin_session_id != session_id or row.continuation_kind != NATIVE:
        raise StreamsError(f"{checkpoint_id}: a capsule needs native material of the session itself", code=NO_NATIVE_MATERIAL)
    if row.expires_at <= gateway.clock():
        raise StreamsError(f"{checkpoint_id} expired", code=refusals.CHECKPOINT_EXPIRED)
    return row


def _transfer(
    gateway: Gateway, call: Call, body: b.CreateCapsule, checkpoint: CheckpointRow, held: Held, sealed: bytes, now: int
) -> m.Transfer:
    """Signed by the retention projector. Raises `Retriable` where it cannot sign now."""
    source, continuation = body.source, body.continuation
    included: list[m.IncludedState] = ["native_session_id"]
    if continuation.thread_cursor is not None:
        included.append("thread_cursor")
    try:
        artifact = m.Artifact(
            id=held.artifact_id,
            session_id=held.session_id,
            media_type=_MEDIA_TYPE,
            byte_count=held.byte_count,
            content_digest=held.content_digest,
            producer_actor_id=call.principal.principal_id,
            work_unit_id=checkpoint.run_id or checkpoint.checkpoint_id,
            availability=availability_of(held),
            availability_recorded_at=m.moment_of(now),
            retention=retention_of(gateway.capsules.keys, held, now),
            created_at=m.moment_of(now),
        )
        capsule = m.Capsule(
            id=held.envelope_id,
            workspace_id=held.workspace_id,
            session_id=held.session_id,
            session_thread_id=body.session_thread_id,
            source_actor_id=call.principal.principal_id,
            through_sequence=checkpoint.through_sequence,
            source_agent_id=source.agent_id,
            source_agent_version_number=source.agent_version_number,
            source_environment_id=source.environment_id,
            source_environment_snapshot_digest=source.environment_snapshot_digest,
            source_admission_snapshot_digest=source.admission_snapshot_digest,
            source_runtime_tuple_digest=source.runtime_tuple_digest,
            source_model_manifest_digest=source.model_manifest_digest,
            source_tool_manifest_digest=source.tool_manifest_digest,
            source_resource_manifest_digest=source.resource_manifest_digest,
            source_capture_policy_digest=source.capture_policy_digest,
            adapter_version_identifier=source.adapter_version_identifier,
            platform_identifier=source.platform_identifier,
            native_session_id_digest=digest_of_bytes(continuation.native_session_id.encode()),
            checkpoint_id=checkpoint.checkpoint_id,
            included_state=tuple(included),
            encryption=m.Encryption(key_reference_digest=digest_of({"workspace_id": held.workspace_id, "secret": held.envelope_id})),
            artifact=artifact,
            secret_scrub_receipt=m.ScrubReceipt(
                scrub_result=m.PASSED, scrubber_version_identifier=scrubber_version(), inspected_digest=held.content_digest
            ),
            compatible_importers=body.compatible_importers,
            compatibility_expires_at=m.moment_of(f.microseconds_of(body.compatibility_expires_at)),
        )
        return transfer_of(gateway.capsules.keys, capsule, sealed, now)
    except SigningUnavailable as error:
        raise Retriable("the retention projector cannot sign now", code="service.unavailable") from error


async def _again(gateway: Gateway, facts: SessionFacts, event: Event, fingerprint: str) -> Answer:
    """The answer that a request had. Raises `Invalid` (request.idempotency_mismatch), `ContentUnavailable`."""
    attributes = attributes_of(event)
    if attributes.request_digest != fingerprint:
        raise Invalid("this Idempotency-Key was used with another request", code="request.idempotency_mismatch")
    found = await stored(gateway, event)
    transfer = msgspec.json.decode(found.transfer, type=m.Transfer)
    return _created(gateway, facts, outcome_of(event), attributes.capsule_id or "", attributes.expires_at or 0, transfer)


def outcome_of(event: Event) -> Outcome:
    """As it was told when the event was accepted."""
    return Outcome(
        command_id=event.command_id, correlation=0, session_id=event.session_id, status=ACCEPTED, first_sequence=event.sequence,
        last_sequence=event.sequence, position_offset=event.command_offset, decided_at=event.accepted_at, repeated=True,
    )  # fmt: skip


def _created(gateway: Gateway, facts: SessionFacts, outcome: Outcome, capsule_id: str, expires_at: int, transfer: m.Transfer) -> Answer:
    body = b.CapsuleCreated(
        session_id=facts.session_id,
        sequence=outcome.last_sequence,
        position=gateway.position_text(facts.session_id, outcome.position_offset),
        capsule_id=capsule_id,
        expires_at=f.when(expires_at),
        transfer=transfer,
    )
    return told(201, body, outcome)


async def revoke(gateway: Gateway, call: Call, body: b.RevokeCapsule) -> Answer:
    """The fact first, then the secret: who asks again destroys it where the first time did not come so far. A closed session is told
    nothing more, and nothing of it can be imported; its capsules' secrets go all the same."""
    session_id, capsule_id = call.path["session_id"], call.path["capsule_id"]
    facts = await gateway.facts_of(call, session_id)
    row = await row_at_end(gateway, call, session_id)
    if await capsule_of(gateway, call, session_id, capsule_id) is None:
        raise NotFound(f"session {session_id} has no capsule {capsule_id}")
    incoming = asked(call.principal, "revoked", capsule_id)
    known = await event_named(gateway, call, session_id, await event_id_of(gateway, facts, incoming), "capsule.revoked")
    if known is not None:
        outcome = outcome_of(known)
    elif row.status == CLOSED:
        outcome = _standing(row)
    else:
        attributes = CapsuleAttributes(capsule_id=capsule_id)
        event = NewEvent(type="capsule.revoked", attributes=attributes)
        outcome, _, _ = await gateway.carry_out(call, facts, lambda _: [event], incoming=incoming)
    # The secret's own name is all that is needed of the place.
    await gateway.in_thread(partial(gateway.capsules.destroy, place_of(facts, "", capsule_id)))
    answer = b.CapsuleRevoked(
        session_id=session_id, sequence=outcome.last_sequence, position=gateway.position_text(session_id, outcome.position_offset),
        capsule_id=capsule_id,
    )  # fmt: skip
    return told(200, answer, outcome)


def _standing(row: SessionRow) -> Outcome:
    """Where a session stands that nothing was appended to."""
    return Outcome(
        command_id="", correlation=0, session_id=row.session_id, status=ACCEPTED, first_sequence=0, last_sequence=row.sequence,
        position_offset=row.last_command_offset, decided_at=row.last_accepted_at,
    )  # fmt: skip


ROUTES = (
    Route(
        method="POST", path=_PATH, name="create_continuation_capsule",
        summary="Make a continuation capsule of an idle session (docs/capsules.md)", handler=create, scope="capsules:write",
        body=b.CreateCapsule, answer=b.CapsuleCreated, status=201, change=True,
        refusals=(
            NOT_IDLE, WAIT_OPEN, INELIGIBLE, SECRET_FOUND, NO_NATIVE_MATERIAL, refusals.CHECKPOINT_EXPIRED, refusals.HISTORY_UNAVAILABLE,
        ),
    ),
    Route(
        method="POST", path=_PATH + "/{capsule_id}/revoke", name="revoke_continuation_capsule",
        summary="Revoke a continuation capsule: nobody imports it any more, and nothing opens it", handler=revoke, scope="capsules:write",
        body=b.RevokeCapsule, answer=b.CapsuleRevoked, change=True,
    ),
)  # fmt: skip
