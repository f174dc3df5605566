"""What is known of capsules: where one lies, what was decided of it, and whether the prefix that it names can be read.

A capsule is the event that tells of it: its id has the digits of that event's, and so has an import's. What was asked before is found
in the same way, by names that no caller's Idempotency-Key can be (there is a line break in them).
"""

from functools import partial
from typing import Final

import msgspec
from msgspec import Raw, Struct

from connectors.edge.compose import Incoming, SessionFacts
from connectors.edge.principal import Principal
from connectors.gateway.boundaries import event_at
from connectors.gateway.call import Call
from connectors.gateway.lineage import lineage_of
from connectors.gateway.service import Gateway
from streams.custody.capsules import CapsulePlace
from streams.errors import NotFound, RecordUnreadable, StreamsError
from streams.log.record import decode_event
from streams.projections.sessions import SessionRow
from streams.session.events import NONE, SEALED, CapsuleAttributes, Event, read
from streams.session.ids import event_ids, is_id
from streams.session.refusals import CHECKPOINT_BOUNDARY
from streams.session.words import CONTENT_OMITTED

_PAGE: Final = 100
_PAGE_BYTES: Final = 1024 * 1024
_PAGES_MAX: Final = 100
UNREADABLE: Final = "content.unreadable"


class StoredCapsule(Struct, frozen=True):
    """The content of `capsule.created`. `transfer` as it was answered."""

    expiry_day: str
    transfer: Raw


def place_of(facts: SessionFacts, expiry_day: str, capsule_id: str) -> CapsulePlace:
    return CapsulePlace(facts.workspace_id, facts.session_id, facts.subject_id, expiry_day, capsule_id)


def asked(principal: Principal, *named: str) -> Incoming:
    """A request of our own, named by what it is about: whoever asks for the same means the same command."""
    return Incoming(principal=principal, idempotency_key="\n".join(("capsule", *named)), method="", path="", body=b"")


async def event_id_of(gateway: Gateway, facts: SessionFacts, incoming: Incoming) -> str:
    """Of the one event that a request leads to. Raises `KeyringUnavailable`."""
    naming = partial(gateway.composer.naming, facts, incoming)
    named = naming() if gateway.composer.knows(facts.workspace_id) else await gateway.in_thread(naming)
    return str(event_ids(named.command_id)(0))


async def fingerprint_of(gateway: Gateway, facts: SessionFacts, incoming: Incoming, digest: str) -> str:
    """Of a request: keyed, so that it tells nothing of what was asked. `digest` is that of its body."""
    event_id = await event_id_of(gateway, facts, asked(incoming.principal, "request", incoming.method, incoming.path, digest))
    return f"hmac-sha256:{event_id.removeprefix('evt_')}"


def with_prefix(event_id: str, prefix: str) -> str:
    return f"{prefix}_{event_id.removeprefix('evt_')}"


async def event_named(gateway: Gateway, call: Call, session_id: str, event_id: str, event_type: str) -> Event | None:
    """None where the session has no such event. Raises `NotFound` where there is no such session, and what the owner raises."""
    principal = call.principal
    try:
        sequence = await gateway.owners.event_named(
            principal.workspace_id, session_id, event_id, subject_id=principal.subject_id,
            position=call.position(), wait_s=gateway.limits.position_wait_s,
        )  # fmt: skip
    except NotFound:
        return None
    try:
        event = await event_at(gateway, call, session_id, sequence)
    except StreamsError as error:
        if error.code != CHECKPOINT_BOUNDARY:
            raise
        raise StreamsError(f"{session_id}: {event_id} cannot be read at {sequence}") from error
    return event if event.type == event_type else None


async def capsule_of(gateway: Gateway, call: Call, session_id: str, capsule_id: str) -> Event | None:
    """The event that told of a capsule."""
    if not is_id(capsule_id, "cap"):
        return None
    return await event_named(gateway, call, session_id, f"evt_{capsule_id.removeprefix('cap_')}", "capsule.created")


async def is_revoked(gateway: Gateway, call: Call, facts: SessionFacts, capsule_id: str) -> bool:
    event_id = await event_id_of(gateway, facts, asked(call.principal, "revoked", capsule_id))
    return await event_named(gateway, call, facts.session_id, event_id, "capsule.revoked") is not None


async def stored(gateway: Gateway, event: Event) -> StoredCapsule:
    """Raises `ContentUnavailable`, `KeyringUnavailable`, `BlobStoreUnavailable`."""
    return msgspec.json.decode(await gateway.in_thread(partial(gateway.sealer.open, event)), type=StoredCapsule)


async def row_at_end(gateway: Gateway, call: Call, session_id: str) -> SessionRow:
    """The session as it stands at the end of its log, so that what was just told of is there. Raises what the owner raises."""
    principal = call.principal
    page = await gateway.owners.events(
        principal.workspace_id, session_id, subject_id=principal.subject_id, after=0, limit=1, max_bytes=1,
        position=call.position(), wait_s=gateway.limits.position_wait_s, at_end=True,
    )  # fmt: skip
    principal.require_sight_of(session_id, page.session.workspace_id, page.session.subject_id)
    return page.session


async def unreadable(gateway: Gateway, call: Call, row: SessionRow, through: int) -> str | None:
    """Why the prefix up to a position cannot be read (content.*); None: it can.

    Content ages in its order, and an erasure takes all of it: what came first tells for all, in the session and each of its ancestors.
    """
    if through > row.sequence:
        return UNREADABLE
    for stretch in await lineage_of(gateway, call, row):
        last = through if stretch.through is None else stretch.through
        event = await _first_content(gateway, call, stretch.session_id, last)
        reason = event if isinstance(event, str) else None if event is None else await _why_closed(gateway, event)
        if reason is not None:
            return reason
    return None


async def _first_content(gateway: Gateway, call: Call, session_id: str, last: int) -> Event | str | None:
    """The first event of content; the reason where one before it is gone. A history that has none within many pages has nothing to be
    unreadable."""
    after, principal = 0, call.principal
    for _ in range(_PAGES_MAX):
        if after >= last:
            break
        page = await gateway.owners.events(
            principal.workspace_id, session_id, subject_id=principal.subject_id, after=after, limit=_PAGE, max_bytes=_PAGE_BYTES,
            wait_s=gateway.limits.position_wait_s,
        )  # fmt: skip
        if page.gaps and page.gaps[0].first_sequence <= last:
            return UNREADABLE
        for value in page.events:
            try:
                event = decode_event(value)
            except RecordUnreadable:
                return UNREADABLE
            if event.sequence > last:
                return None
            if event.content.state != NONE:
                return event
        if page.next_after <= after:
            break
        after = page.next_after
    return None


async def _why_closed(gateway: Gateway, event: Event) -> str | None:
    reference = event.content.key_reference
    if event.content.state != SEALED or reference is None:
        return CONTENT_OMITTED
    closed = await gateway.in_thread(partial(gateway.sealer.why_closed, event.workspace_id, (reference,)))
    return closed.get(reference)


def attributes_of(event: Event) -> CapsuleAttributes:
    return read(event, CapsuleAttributes)
