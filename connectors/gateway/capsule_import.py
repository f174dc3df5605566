"""Imports a continuation capsule: what came is validated, and retained for the session. Nothing is launched.

The body is taken apart while it comes; its content goes to a file that has no name, and is never held as text. Then the eight checks of
`streams.capsules.checks`, in their order, of which only the scan looks at the content itself. What is imported is one event, named by
capsule, target and thread: another request for the same finds it. What is refused leaves a fact without content. Either is remembered
under the caller's Idempotency-Key.
"""

import hashlib
import tempfile
from functools import partial
from typing import IO, Final

import msgspec
from msgspec import structs

from connectors.edge.capsule_statements import SigningUnavailable
from connectors.edge.compose import SessionFacts
from connectors.edge.json_text import parse
from connectors.edge.scrubbing import SCANNED_BYTES_MAX, found_in
from connectors.gateway import bodies
from connectors.gateway import capsule_bodies as b
from connectors.gateway.answers import JSON, Answer
from connectors.gateway.call import Call
from connectors.gateway.capsule_consulting import consult
from connectors.gateway.capsule_custody import Asking, Came, again, imported, refused
from connectors.gateway.capsule_facts import (
    event_id_of,
    event_named,
    fingerprint_of,
    row_at_end,
)
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.capsules import checks
from streams.capsules import model as m
from streams.capsules.splitting import Malformed, Splitter, TooLarge
from streams.custody.capsules import CapsulePlace
from streams.errors import ContentUnavailable, Invalid

_PATH: Final = "/v1/sessions/{session_id}/continuation-capsules"
_STRUCTURE_BYTES_MAX: Final = 1024 * 1024
_IN_MEMORY_BYTES: Final = 1024 * 1024
"""Of content: what is beyond goes to a file."""
_decoder = msgspec.json.Decoder(m.ImportCapsule)

_VERSION: Final = {"checkfu-version": ({"type": "string", "enum": [b.VERSION]}, "The version of this operation's interface.")}
_SEQUENCE: Final = {
    "Session-Streams-Sequence": {
        "schema": {"type": "integer", "minimum": 1},
        "description": "Of the session, behind what was decided; it has none where nothing could be remembered.",
    }
}


async def import_capsule(gateway: Gateway, call: Call, _: bodies.NoQuery) -> Answer:
    if call.header("checkfu-version") != b.VERSION:
        raise Invalid(f"checkfu-version: required once, {b.VERSION}", code="request.malformed")
    if call.header("content-type") is None:
        raise Invalid(f"Content-Type: expected {JSON}", code="request.unsupported_media_type")
    call.require_media_type((JSON,))
    key = call.principal.principal_id
    gateway.transfer_shares.take(key)
    try:
        facts = await gateway.facts_of(call, call.path["session_id"])
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(gateway.settings.data_dir)) as content:
            came = await _taken_apart(gateway, call, content)
            return await _decided(gateway, call, facts, came)
    finally:
        gateway.transfer_shares.give_back(key)


async def _taken_apart(gateway: Gateway, call: Call, content: IO[bytes]) -> Came:
    """Raises `Invalid`."""
    content_max = gateway.limits.capsule_bytes_max
    body_max = (content_max + 2) // 3 * 4 + _STRUCTURE_BYTES_MAX
    splitter = Splitter(content_max=content_max, skeleton_max=_STRUCTURE_BYTES_MAX)

    def take(piece: bytes) -> None:
        content.write(splitter.feed(piece))

    try:
        async for piece in call.chunks(body_max, gateway.limits.body_total_s):
            await gateway.in_thread(partial(take, piece))
        skeleton, arrived = await gateway.in_thread(splitter.finish)
    except TooLarge as error:
        raise Invalid(str(error), code="request.too_large") from None
    except Malformed as error:
        raise Invalid(str(error), code="request.malformed") from None
    request = parse(skeleton, _decoder, gateway.limits.json_depth_max)
    digest = hashlib.sha256(skeleton + arrived.digest.encode()).hexdigest()
    content.seek(0)
    return Came(request, arrived, digest, content)


async def _decided(gateway: Gateway, call: Call, facts: SessionFacts, came: Came) -> Answer:
    incoming = structs.replace(call.incoming(), body=came.digest.encode())
    fingerprint = await fingerprint_of(gateway, facts, incoming, came.digest)
    event_id = await event_id_of(gateway, facts, incoming)
    # What was told of a moment ago, by whichever gateway, is there from here on.
    row = await row_at_end(gateway, call, facts.session_id)
    decided = await event_named(gateway, call, facts.session_id, event_id, "capsule.decided")
    if decided is not None:
        return await again(gateway, call, facts, decided, fingerprint)
    consulted = await consult(gateway, call, facts, row, came.request)
    known = checks.Known(
        now=gateway.clock(),
        workspace_id=facts.workspace_id,
        session_id=facts.session_id,
        custody=consulted.custody,
        arrived=came.arrived,
        current=consulted.now.current,
        source_readable=consulted.source_readable,
        keys=gateway.capsules.keys,
        receipt_revoked=consulted.receipt_revoked,
        scanned_clean=None,
    )
    asking = Asking(gateway, call, facts, incoming, fingerprint)
    reason = await _reason(gateway, came, known, consulted.now.place)
    if reason == "projector_unavailable" and consulted.now.unread is not None:
        raise consulted.now.unread
    if reason is None:
        try:
            return await imported(asking, came, consulted.now.checkpoint_ends, known.now)
        except SigningUnavailable:
            reason = "projector_unavailable"
    return await refused(asking, came.request, reason)


async def _reason(gateway: Gateway, came: Came, known: checks.Known, place: CapsulePlace | None) -> checks.Reason | None:
    try:
        reason = await gateway.in_thread(partial(checks.refusal_before_scan, came.request, known))
        if reason is not None:
            return reason
        clean = await gateway.in_thread(partial(_scan, gateway, came, place))
        return await gateway.in_thread(partial(checks.refusal, came.request, structs.replace(known, scanned_clean=clean)))
    except SigningUnavailable:
        return "projector_unavailable"


def _scan(gateway: Gateway, came: Came, place: CapsulePlace | None) -> bool:
    """Whether nothing was found in the content, opened here and kept nowhere. Blocks. What cannot be opened cannot be vouched for."""
    if place is None or came.arrived.byte_count > SCANNED_BYTES_MAX:
        return False
    try:
        return found_in(gateway.capsules.open(place, came.content.read())) is None
    except ContentUnavailable:
        return False


ROUTES = (
    Route(
        method="POST", path=_PATH + "/import", name="import_continuation_capsule",
        summary="Import a qualified native continuation capsule: custody of it, and nothing is launched", handler=import_capsule,
        scope="capsules:import", body=m.ImportCapsule, answer=b.ImportedCapsule | b.RefusedImport, change=True, budget="transfers",
        reads_body_itself=True, headers=_VERSION, answer_headers=_SEQUENCE, strict_path=True,
    ),
)  # fmt: skip
