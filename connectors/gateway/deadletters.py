"""What a source could not read goes to the dead letters, sealed, so that nothing is dropped silently."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from connectors.edge.compose import SessionFacts
from connectors.gateway import bodies
from connectors.gateway import fields as f
from connectors.gateway.answers import Answer
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.custody.dead_letters import Address, Letter, seal_dead_letter
from streams.custody.sealing import content_expiry_day
from streams.errors import BrokerUnavailable, Retriable, StreamsError
from streams.session.dead_letters import DeadLetter

KEPT_DAYS = 90
"""As long as the topic keeps them."""


class DeadLetterStored(Struct, frozen=True, forbid_unknown_fields=True):
    """Stored at least once: a letter that is sent again may be stored again."""

    session_id: f.SessionId


async def store(gateway: Gateway, call: Call, body: bodies.DeadLetterBody) -> Answer:
    facts = await gateway.facts_of(call, call.path["session_id"])
    letter = await gateway.in_thread(partial(_sealed, gateway, facts, body))
    loop = asyncio.get_running_loop()
    stored: asyncio.Future[None] = loop.create_future()

    def settle(error: StreamsError | None) -> None:
        if stored.done():
            return
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error if isinstance(error, Retriable) else BrokerUnavailable(error.detail))

    gateway.dead_letters.send_dead_letter(letter, facts.session_id, partial(_enter, loop, settle))
    try:
        await asyncio.wait_for(stored, gateway.settings.request_timeout_s)
    except TimeoutError:
        raise BrokerUnavailable("the dead letter was not stored in time") from None
    return Answer(201, msgspec.json.encode(DeadLetterStored(facts.session_id)))


def _enter(loop: asyncio.AbstractEventLoop, settle: Callable[[StreamsError | None], None], error: StreamsError | None) -> None:
    """From the delivery thread into the loop; a loop that is gone has nobody waiting."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle, error)


def _sealed(gateway: Gateway, facts: SessionFacts, body: bodies.DeadLetterBody) -> DeadLetter:
    now = gateway.clock()
    address = Address(content_expiry_day(now, KEPT_DAYS), body.source_kind, None, body.source_index, facts.workspace_id)
    sealed = seal_dead_letter(gateway.sealer, address, Letter(key=None, value=body.record, place=body.place))
    return DeadLetter(
        origin=address.origin,
        offset=address.offset,
        session_id=facts.session_id,
        workspace_id=facts.workspace_id,
        reason=body.reason,
        detail="met by a source",
        recorded_at=now,
        key_day=sealed.key_day,
        ciphertext=sealed.ciphertext,
        digest=sealed.digest,
    )


ROUTES = (
    Route(
        method="POST", path="/v1/sessions/{session_id}/dead-letters", name="store_dead_letter",
        summary="Keep what a source could not read, sealed", handler=store, scope="sessions:import", body=bodies.DeadLetterBody,
        answer=DeadLetterStored, status=201, change=True, command=False,
    ),
)  # fmt: skip
