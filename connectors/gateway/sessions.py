"""Routes of the session itself: create, list, read, close."""

from msgspec import Struct

from connectors.edge import fields as f
from connectors.edge.compose import Naming, NewEvent, SessionFacts, facts_of_row
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, Changed, PositionText, Sequence, plain, told
from connectors.gateway.call import Call
from connectors.gateway.changes import append_one
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.errors import NotPermitted
from streams.projections.sessions import SessionRow
from streams.session.events import SessionAttributes
from streams.session.words import IMPORTED


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """Pinned at creation."""

    mode: f.PolicyMode | None
    content_window_days: f.Days | None
    checkpoint_window_s: f.CheckpointWindow | None


class SourceView(Struct, frozen=True, forbid_unknown_fields=True):
    """How far a source was taken in: its record with the highest index."""

    kind: f.Name | None
    index: f.Count
    digest: f.Digest | None


class SessionView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: f.SessionId
    workspace_id: f.WorkspaceId
    subject_id: f.SubjectId | None
    status: str
    origin: f.Origin | None
    policy: Policy
    sequence: Sequence
    position: PositionText | None
    created_at: f.Moment
    last_accepted_at: f.Moment
    counts: dict[str, f.Count]
    source: SourceView | None


class SessionsView(Struct, frozen=True, forbid_unknown_fields=True):
    """Newest first; `cursor` continues behind the last one, null at the end."""

    sessions: list[SessionView]
    cursor: str | None


class SessionCreated(Changed, kw_only=True, forbid_unknown_fields=True):
    subject_id: f.SubjectId | None
    origin: f.Origin | None
    policy: Policy


def session_view(gateway: Gateway, row: SessionRow) -> SessionView:
    source = row.source
    return SessionView(
        session_id=row.session_id,
        workspace_id=row.workspace_id,
        subject_id=row.subject_id,
        status=row.status,
        origin=row.origin,
        policy=Policy(row.policy_mode, row.content_window_days, row.checkpoint_window_s),
        sequence=row.sequence,
        position=gateway.position_text(row.session_id, row.last_command_offset),
        created_at=f.when(row.created_at),
        last_accepted_at=f.when(row.last_accepted_at),
        counts=row.counts,
        source=None if source is None else SourceView(source.kind, source.index, source.digest),
    )


async def create(gateway: Gateway, call: Call, body: bodies.CreateSession) -> Answer:
    importing = body.origin == IMPORTED
    if importing and not call.principal.holds("sessions:import"):
        raise NotPermitted("origin imported: this key lacks the scope sessions:import", code="auth.scope")
    principal, composer = call.principal, gateway.composer
    policy = gateway.policies.of(principal.workspace_id)
    incoming = call.incoming()

    def named() -> SessionFacts:
        return SessionFacts(
            session_id=composer.session_id(incoming),
            workspace_id=principal.workspace_id,
            subject_id=composer.subject(principal, body.subject),
            policy_mode=policy.mode,
            content_window_days=policy.content_window_days,
            checkpoint_window_s=policy.checkpoint_window_s,
        )

    blocks = body.subject is not None or not composer.knows(principal.workspace_id)
    facts = await gateway.in_thread(named) if blocks else named()
    attributes = SessionAttributes(
        origin=body.origin, policy_mode=policy.mode, content_window_days=policy.content_window_days,
        checkpoint_window_s=policy.checkpoint_window_s,
    )  # fmt: skip

    def events(_: Naming) -> list[NewEvent]:
        return [NewEvent(type="session.created", attributes=attributes, content=f.content_text(body.metadata))]

    outcome, _, _ = await gateway.carry_out(call, facts, events, importing=importing)
    if outcome.repeated:
        # What was pinned then may differ from what would be pinned now.
        facts = await gateway.facts_of(call, facts.session_id)
    else:
        gateway.facts.put(facts)
    created = SessionCreated(
        session_id=facts.session_id,
        sequence=outcome.last_sequence,
        position=gateway.position_text(facts.session_id, outcome.position_offset),
        subject_id=facts.subject_id,
        origin=body.origin,
        policy=Policy(facts.policy_mode, facts.content_window_days, facts.checkpoint_window_s),
    )
    return told(201, created, outcome)


async def close(gateway: Gateway, call: Call, body: bodies.CloseSession) -> Answer:
    attributes = SessionAttributes(reason=body.reason)
    done = await append_one(
        gateway, call, lambda _: NewEvent(type="session.closed", attributes=attributes, content=f.content_text(body.content))
    )
    return done.told(200, Changed)


async def read(gateway: Gateway, call: Call, _: bodies.NoQuery) -> Answer:
    row = await gateway.session(call, call.path["session_id"])
    if row.policy_mode is not None and row.content_window_days is not None:
        gateway.facts.put(facts_of_row(row))
    return plain(session_view(gateway, row))


async def listing(gateway: Gateway, call: Call, query: bodies.SessionsQuery) -> Answer:
    principal = call.principal
    subject_id = query.subject_id
    if principal.subject_id is not None:
        if subject_id is not None and subject_id != principal.subject_id:
            return plain(SessionsView([], None))
        subject_id = principal.subject_id
    page = await gateway.owners.sessions(
        principal.workspace_id, subject_id=subject_id, cursor=query.cursor, limit=query.limit,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip
    return plain(SessionsView([session_view(gateway, row) for row in page.sessions], page.cursor))


ROUTES = (
    Route(
        method="POST", path="/v1/sessions", name="create_session", summary="Create a session", handler=create,
        scope="sessions:write", body=bodies.CreateSession, answer=SessionCreated, status=201, change=True,
        position=False, refusals=("auth.subject", "runtime.already_exists"),
    ),
    Route(
        method="GET", path="/v1/sessions", name="list_sessions", summary="List sessions, newest first", handler=listing,
        scope="sessions:read", query=bodies.SessionsQuery, answer=SessionsView,
    ),
    Route(
        method="GET", path="/v1/sessions/{session_id}", name="read_session", summary="Read a session", handler=read,
        scope="sessions:read", answer=SessionView,
    ),
    Route(
        method="POST", path="/v1/sessions/{session_id}/close", name="close_session", summary="Close a session for good",
        handler=close, scope="sessions:write", body=bodies.CloseSession, answer=Changed, change=True,
        refusals=("runtime.session_closed",),
    ),
)  # fmt: skip
