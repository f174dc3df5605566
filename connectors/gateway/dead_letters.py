"""What a source could not read goes to the dead letters, sealed, so that nothing is dropped silently."""

from functools import partial

import msgspec
from msgspec import Struct

from connectors.edge import fields as f
from connectors.edge.dead_letters import Unread, deliver, seal_unread
from connectors.gateway import bodies
from connectors.gateway.answers import Answer
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway


class DeadLetterStored(Struct, frozen=True, forbid_unknown_fields=True):
    """Stored at least once: a letter that is sent again may be stored again."""

    session_id: f.SessionId


async def store(gateway: Gateway, call: Call, body: bodies.DeadLetterBody) -> Answer:
    facts = await gateway.facts_of(call, call.path["session_id"])
    await gateway.require_not_erased(facts, (facts.session_id,))
    unread = Unread(
        workspace_id=facts.workspace_id,
        session_id=facts.session_id,
        policy_mode=facts.policy_mode,
        source_kind=body.source_kind,
        source_index=body.source_index,
        reason=body.reason,
        place=body.place,
        record=body.record,
    )
    letter = await gateway.in_thread(partial(seal_unread, gateway.sealer, unread, gateway.clock()))
    await deliver(gateway.dead_letters, letter, facts.session_id, gateway.settings.request_timeout_s)
    return Answer(201, msgspec.json.encode(DeadLetterStored(facts.session_id)))


ROUTES = (
    Route(
        method="POST", path="/v1/sessions/{session_id}/dead-letters", name="store_dead_letter",
        summary="Keep what a source could not read, sealed", handler=store, scope="sessions:import", body=bodies.DeadLetterBody,
        answer=DeadLetterStored, status=201, change=True, command=False,
    ),
)  # fmt: skip
