"""Custody of imports: retained as an event that capsule, target and thread name, remembered for whoever asked, and read.

It ends with its time, its day, its subject and its session, and with its capsule's revocation.
"""

import base64
from functools import partial
from typing import IO

import msgspec
from msgspec import Raw, Struct, structs

from connectors.edge.capsule_statements import Held, availability_of, retention_of
from connectors.edge.compose import Incoming, NewEvent, SessionFacts
from connectors.gateway import bodies
from connectors.gateway import capsule_bodies as b
from connectors.gateway.answers import Answer
from connectors.gateway.call import Call
from connectors.gateway.capsule_facts import (
    UNREADABLE,
    asked,
    attributes_of,
    event_id_of,
    event_named,
    is_revoked,
    with_prefix,
)
from connectors.gateway.capsules import outcome_of
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.capsules import checks
from streams.capsules import model as m
from streams.capsules.digests import target_digest
from streams.custody.days import content_expiry_day, day_end_us
from streams.errors import ContentUnavailable, Invalid, KeyringUnavailable, NotFound, StreamsError
from streams.session.events import CapsuleAttributes, Event
from streams.session.ids import is_id
from streams.session.outcomes import Outcome
from streams.session.words import CONTENT_EXPIRED

_Body = b.ImportedCapsule | b.RefusedImport


class StoredImport(Struct, frozen=True):
    """The content of `capsule.imported`: custody as it was answered, and the transfer with its bytes."""

    custody: b.ImportedCapsule
    transfer: Raw


class Came(Struct):
    """A request, taken apart. `content` is what came as content, from its beginning."""

    request: m.ImportCapsule
    arrived: checks.Arrived
    digest: str
    content: IO[bytes]


class Asking(Struct, frozen=True):
    """One request: who asks, of which session, and by what it is known again."""

    gateway: Gateway
    call: Call
    facts: SessionFacts
    incoming: Incoming
    fingerprint: str


async def imported(asking: Asking, came: Came, checkpoint_ends: int, now: int) -> Answer:
    """Retains it, unless that was done before, and answers. Raises `SigningUnavailable`."""
    gateway, call, facts = asking.gateway, asking.call, asking.facts
    request, capsule = came.request, came.request.transfer.capsule
    digest = target_digest(request.target)
    own = asked(call.principal, "imported", capsule.id, digest, request.session_thread_id)
    event_id = await event_id_of(gateway, facts, own)
    event = await event_named(gateway, call, facts.session_id, event_id, "capsule.imported")
    expected = None
    if event is not None:
        custody = await _custody(gateway, event)
    else:
        import_id = with_prefix(event_id, "cimp")
        custody = await gateway.in_thread(partial(_made, asking, came, import_id, digest, checkpoint_ends, now))
        outcome = await _retain(asking, own, came, custody)
        expected = None if call.expected_sequence() is None else outcome.last_sequence
        event = await event_named(gateway, call, facts.session_id, event_id, "capsule.imported") if outcome.repeated else None
        custody = custody if event is None else await _custody(gateway, event)
    told = CapsuleAttributes(
        capsule_id=capsule.id, import_id=custody.import_id, outcome="imported", request_digest=asking.fingerprint, target_digest=digest
    )
    return await _told(asking, told, custody, expected)


def _made(asking: Asking, came: Came, import_id: str, digest: str, checkpoint_ends: int, now: int) -> b.ImportedCapsule:
    """Custody, and the projector's statement on it. Raises `SigningUnavailable`."""
    facts, request, capsule = asking.facts, came.request, came.request.transfer.capsule
    expiry = capsule.artifact.retention.final_expiry
    policy_ends = day_end_us(content_expiry_day(now, facts.content_window_days))
    ends = [policy_ends, checkpoint_ends, m.microseconds(capsule.compatibility_expires_at)]
    if isinstance(expiry, m.ExpiryAt):
        ends.append(m.microseconds(expiry.expires_at))
    held = Held(
        workspace_id=facts.workspace_id,
        session_id=facts.session_id,
        subject_id=facts.subject_id,
        artifact_id=import_id,
        byte_count=came.arrived.byte_count,
        content_digest=came.arrived.digest,
        envelope_id=capsule.artifact.retention.erasure_envelope_id,
        created_at=now,
        expires_at=min(ends),
        policy_mode=facts.policy_mode,
    )
    return b.ImportedCapsule(
        import_id=import_id,
        session_id=facts.session_id,
        session_thread_id=request.session_thread_id,
        capsule_id=capsule.id,
        checkpoint_id=capsule.checkpoint_id,
        through_sequence=capsule.through_sequence,
        use_kind=request.use_kind,
        importer_id=request.target.importer_id,
        target_digest=digest,
        content_digest=held.content_digest,
        byte_count=held.byte_count,
        availability=availability_of(held),
        retention=retention_of(asking.gateway.capsules.keys, held, now),
        imported_at=m.moment_of(now),
        expires_at=m.moment_of(held.expires_at),
    )


async def _retain(asking: Asking, own: Incoming, came: Came, custody: b.ImportedCapsule) -> Outcome:
    """Custody as an event, its content sealed as all content: it ends with its day, its subject and its session."""
    came.content.seek(0)
    encoded = base64.b64encode(came.content.read()).decode()
    transfer = structs.replace(came.request.transfer, content_base64=encoded)
    content = msgspec.json.encode(StoredImport(custody, Raw(msgspec.json.encode(transfer))))
    attributes = CapsuleAttributes(
        capsule_id=custody.capsule_id, import_id=custody.import_id, checkpoint_id=custody.checkpoint_id,
        through_sequence=custody.through_sequence, byte_count=custody.byte_count, content_digest=custody.content_digest,
        target_digest=custody.target_digest, use_kind=custody.use_kind, expires_at=m.microseconds(custody.expires_at),
    )  # fmt: skip
    event = NewEvent(type="capsule.imported", thread_id=custody.session_thread_id, attributes=attributes, content=content)
    return await _appended(asking, event, own, None)


async def refused(asking: Asking, request: m.ImportCapsule, reason: checks.Reason) -> Answer:
    capsule_id = request.transfer.capsule.id
    told = CapsuleAttributes(
        capsule_id=capsule_id if is_id(capsule_id, "cap") else None,
        outcome="refused",
        reason=reason,
        request_digest=asking.fingerprint,
    )
    body = b.RefusedImport(reason)
    try:
        return await _told(asking, told, body, None)
    except (ContentUnavailable, KeyringUnavailable):
        # Nothing more is told of an erased session, nor of any while the keyring is away: it is refused as often as it is asked.
        return Answer(200, msgspec.json.encode(body))


async def _told(asking: Asking, attributes: CapsuleAttributes, body: _Body, expected: int | None) -> Answer:
    """Remembers what was decided, under the caller's key, and answers it."""
    gateway, call, facts = asking.gateway, asking.call, asking.facts
    event = NewEvent(type="capsule.decided", attributes=attributes)
    outcome, _, event_ids = await gateway.carry_out(call, facts, lambda _: [event], incoming=asking.incoming, expected_sequence=expected)
    if outcome.repeated:
        known = await event_named(gateway, call, facts.session_id, event_ids[0], "capsule.decided")
        if known is not None:
            return await again(gateway, call, facts, known, asking.fingerprint)
    return _answer(gateway, facts, outcome, body)


async def _appended(asking: Asking, event: NewEvent, incoming: Incoming, expected: int | None) -> Outcome:
    """The body came among the transfers; the command has its place among the changes."""
    gateway = asking.gateway
    gateway.changes.take()
    try:
        outcome, _, _ = await gateway.carry_out(asking.call, asking.facts, lambda _: [event], incoming=incoming, expected_sequence=expected)
    finally:
        gateway.changes.give_back()
    return outcome


async def again(gateway: Gateway, call: Call, facts: SessionFacts, event: Event, fingerprint: str) -> Answer:
    """The answer that a request had. Raises `Invalid` (request.idempotency_mismatch), `ContentUnavailable`."""
    attributes = attributes_of(event)
    if attributes.request_digest != fingerprint:
        raise Invalid("this Idempotency-Key was used with another request", code="request.idempotency_mismatch")
    body: _Body
    if attributes.import_id is not None:
        body = await _read(gateway, call, facts.session_id, attributes.import_id)
    else:
        body = msgspec.convert({"outcome": "refused", "reason": attributes.reason}, b.RefusedImport)
    return _answer(gateway, facts, outcome_of(event), body)


def _answer(gateway: Gateway, facts: SessionFacts, outcome: Outcome, body: _Body) -> Answer:
    """Position and sequence stand in headers: the body has its own members and no other."""
    position = gateway.position_text(facts.session_id, outcome.position_offset)
    headers = [(b"session-streams-sequence", str(outcome.last_sequence).encode())]
    if position is not None:
        headers.append((b"session-streams-position", position.encode()))
    if outcome.repeated:
        headers.append((b"session-streams-repeated", b"true"))
    return Answer(200, msgspec.json.encode(body), headers)


async def _custody(gateway: Gateway, event: Event) -> b.ImportedCapsule:
    """Raises `ContentUnavailable`, `KeyringUnavailable`."""
    content = await gateway.in_thread(partial(gateway.sealer.open, event))
    return msgspec.json.decode(content, type=StoredImport).custody


async def _read(gateway: Gateway, call: Call, session_id: str, import_id: str) -> b.ImportedCapsule:
    """Raises `NotFound`; `ContentUnavailable` where custody has ended."""
    event = await event_named(gateway, call, session_id, f"evt_{import_id.removeprefix('cimp_')}", "capsule.imported")
    if event is None:
        raise NotFound(f"session {session_id} has no import {import_id}")
    facts = await gateway.facts_of(call, session_id)
    attributes = attributes_of(event)
    if (attributes.expires_at or 0) <= gateway.clock():
        raise ContentUnavailable(f"{import_id}: custody has expired", code=CONTENT_EXPIRED)
    if await is_revoked(gateway, call, facts, attributes.capsule_id or ""):
        raise ContentUnavailable(f"{import_id}: its capsule is revoked", code=CONTENT_EXPIRED)
    try:
        return await _custody(gateway, event)
    except ContentUnavailable as error:
        if error.code == UNREADABLE:
            raise StreamsError(f"{import_id}: custody cannot be read") from error
        raise


async def read_import(gateway: Gateway, call: Call, _: bodies.NoQuery) -> Answer:
    await gateway.facts_of(call, call.path["session_id"])
    return Answer(200, msgspec.json.encode(await _read(gateway, call, call.path["session_id"], call.path["import_id"])))


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/continuation-capsules/imports/{import_id}", name="read_capsule_import",
        summary="Custody of an import, never its content", handler=read_import, scope="capsules:import", answer=b.ImportedCapsule,
        refusals=("content.expired", "content.erased"),
    ),
)  # fmt: skip
