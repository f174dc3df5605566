"""Routes of threads and Turns: where conversation stands, and when."""

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Changed
from connectors.gateway.call import Call
from connectors.gateway.changes import append_one
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.session.events import ThreadAttributes, TurnAttributes


class ThreadOpened(Changed, kw_only=True, forbid_unknown_fields=True):
    thread_id: f.ThreadId


class TurnChanged(Changed, kw_only=True, forbid_unknown_fields=True):
    turn_id: f.TurnId


async def open_thread(gateway: Gateway, call: Call, body: bodies.OpenThread) -> Answer:
    def event(naming: Naming) -> NewEvent:
        attributes = ThreadAttributes(kind=body.kind, parent_thread_id=body.parent_thread_id)
        return NewEvent(type="thread.opened", thread_id=naming.of("sthr"), attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event)
    return done.told(201, ThreadOpened, thread_id=done.naming.of("sthr"))


async def start_turn(gateway: Gateway, call: Call, body: bodies.StartTurn) -> Answer:
    def event(naming: Naming) -> NewEvent:
        return NewEvent(
            type="turn.started", turn_id=naming.of("turn"), thread_id=body.thread_id, actor=body.actor, content=f.content_text(body.content)
        )

    done = await append_one(gateway, call, event)
    return done.told(201, TurnChanged, turn_id=done.naming.of("turn"))


async def complete_turn(gateway: Gateway, call: Call, body: bodies.CompleteTurn) -> Answer:
    turn_id = call.path["turn_id"]

    def event(_: Naming) -> NewEvent:
        attributes = TurnAttributes(outcome=body.outcome)
        return NewEvent(type="turn.completed", turn_id=turn_id, attributes=attributes, content=f.content_text(body.content))

    done = await append_one(gateway, call, event)
    return done.told(200, TurnChanged, turn_id=turn_id)


ROUTES = (
    Route(
        method="POST", path="/v1/sessions/{session_id}/threads", name="open_thread", summary="Open a thread", handler=open_thread,
        scope="sessions:write", body=bodies.OpenThread, answer=ThreadOpened, status=201, change=True,
    ),
    Route(
        method="POST", path="/v1/sessions/{session_id}/turns", name="start_turn", summary="Start a Turn", handler=start_turn,
        scope="sessions:write", body=bodies.StartTurn, answer=TurnChanged, status=201, change=True,
    ),
    Route(
        method="POST", path="/v1/sessions/{session_id}/turns/{turn_id}/complete", name="complete_turn", summary="Complete a Turn",
        handler=complete_turn, scope="sessions:write", body=bodies.CompleteTurn, answer=TurnChanged, change=True,
        refusals=("runtime.already_settled",),
    ),
)  # fmt: skip
