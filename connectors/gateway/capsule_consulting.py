"""Consults what an import is judged by: retention custody, the retention projector, the log, and the catalogue.

The projector is asked by being able to sign, and by what it has stored being there: what cannot be asked now says nothing, and an import
is refused for that. Where the event's own content cannot be read (its text lies in a blob store that is away), that is no matter of the
projector: if nothing before it is wrong, nothing is decided, and the request may be sent again.
"""

from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from connectors.edge.capsule_statements import SigningUnavailable
from connectors.edge.compose import SessionFacts
from connectors.gateway.call import Call
from connectors.gateway.capsule_facts import attributes_of, capsule_of, is_revoked, place_of, stored, unreadable
from connectors.gateway.service import Gateway
from streams.capsules import checks
from streams.capsules import model as m
from streams.custody.capsules import CapsulePlace
from streams.errors import BlobStoreUnavailable, ContentUnavailable, KeyringUnavailable, NotFound, Retriable
from streams.projections.sessions import SessionRow
from streams.session.events import Event
from streams.session.ids import is_id
from streams.session.words import CONTENT_ERASED, CONTENT_EXPIRED, CONTENT_OMITTED

_WORDS: Final = {CONTENT_ERASED: "erased", CONTENT_EXPIRED: "expired", CONTENT_OMITTED: "omitted"}
_PROBE: Final = b"consulted"


class _Now(Struct, frozen=True, kw_only=True):
    """`place` opens the capsule's private part, where it can be; `checkpoint_ends` in microseconds since the epoch. `unread`: why what is
    retained of the capsule cannot be read now, where that is all that `current` lacks."""

    current: checks.Current | None = None
    place: CapsulePlace | None = None
    checkpoint_ends: int = 0
    unread: Retriable | None = None


class Consulted(Struct, frozen=True, kw_only=True):
    custody: checks.Custody | None
    now: _Now
    source_readable: bool
    receipt_revoked: bool


async def consult(gateway: Gateway, call: Call, facts: SessionFacts, row: SessionRow, request: m.ImportCapsule) -> Consulted:
    """`row` is the session's at the end of its log. Raises what owners raise."""
    capsule = request.transfer.capsule
    event, own = await _found(gateway, call, facts, capsule)
    now = await _current(gateway, call, own, event, capsule)
    receipt = request.target.qualification_receipt.receipt_digest
    return Consulted(
        custody=None if event is None else checks.Custody(own.session_id, await is_revoked(gateway, call, own, capsule.id)),
        now=now,
        source_readable=event is not None and await _is_readable(gateway, call, row, capsule.through_sequence),
        receipt_revoked=await gateway.in_thread(partial(gateway.capsules.is_withdrawn, receipt)),
    )


async def _is_readable(gateway: Gateway, call: Call, row: SessionRow, through: int) -> bool:
    try:
        return await unreadable(gateway, call, row, through) is None
    except KeyringUnavailable:
        return False


async def _found(gateway: Gateway, call: Call, facts: SessionFacts, capsule: m.Capsule) -> tuple[Event | None, SessionFacts]:
    """The event that told of the capsule, in this session or else in the one that it names, and that session."""
    for session_id in dict.fromkeys((facts.session_id, capsule.session_id)):
        try:
            own = await gateway.facts_of(call, session_id)
        except NotFound:
            continue
        event = await capsule_of(gateway, call, session_id, capsule.id)
        if event is not None:
            return event, own
    return None, facts


async def _current(gateway: Gateway, call: Call, own: SessionFacts, event: Event | None, capsule: m.Capsule) -> _Now:
    """What the projector says now, where the private part is sealed, and when the checkpoint ends."""
    try:
        await gateway.in_thread(partial(gateway.capsules.keys.sign, "retention", _PROBE))
        if event is None:
            return _Now(current=checks.Current(m.RETAINED, m.RETAINED))
        checkpoint, ends = await _checkpoint(gateway, call, own, capsule.checkpoint_id)
        try:
            found = await stored(gateway, event)
            place = place_of(own, found.expiry_day, attributes_of(event).capsule_id or "")
            over = await gateway.in_thread(partial(gateway.capsules.is_destroyed, place))
        except ContentUnavailable as error:
            if error.code not in _WORDS:
                return _Now(unread=Retriable("what is retained of the capsule cannot be read now", code="service.unavailable"))
            return _Now(current=checks.Current(_WORDS[error.code], checkpoint), checkpoint_ends=ends)
        except BlobStoreUnavailable as error:
            return _Now(unread=error)
    except (SigningUnavailable, KeyringUnavailable, msgspec.DecodeError):
        return _Now()
    return _Now(current=checks.Current("erased" if over else m.RETAINED, checkpoint), place=place, checkpoint_ends=ends)


async def _checkpoint(gateway: Gateway, call: Call, own: SessionFacts, checkpoint_id: str) -> tuple[str, int]:
    """What is so of a checkpoint now, and when it ends."""
    if not is_id(checkpoint_id, "ckpt"):
        return "erased", 0
    try:
        row = await gateway.owners.checkpoint(
            own.workspace_id, own.session_id, checkpoint_id, subject_id=call.principal.subject_id,
            wait_s=gateway.limits.position_wait_s,
        )  # fmt: skip
    except NotFound:
        return "erased", 0
    return ("expired" if row.expires_at <= gateway.clock() else m.RETAINED), row.expires_at
