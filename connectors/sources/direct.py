"""The transport without a gateway: commands go straight to the command topic, for bulk imports beside the broker.

It composes, names and seals with the modules of `connectors.edge`, as a gateway does, under the same keys and for the
same principal, so that a file that went in over REST and one that went in this way are the same commands: neither is
taken in twice. It needs the broker and the keyring; reads are answered by the owners, as for a gateway.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Protocol

import msgspec
from msgspec import UNSET, Raw, structs

from connectors.edge.asking import asking
from connectors.edge.compose import CommandComposer, Composed, Incoming, NewEvent, SessionFacts, facts_of_row
from connectors.edge.dead_letters import DeadLetters, Unread, deliver, seal_unread
from connectors.edge.events import parse_lines, resolved
from connectors.edge.keys import KeyTable
from connectors.edge.policies import PolicyTable
from connectors.edge.principal import Principal
from connectors.owner.projector_owners import ProjectorOwners
from connectors.owner.token import internal_token
from connectors.sources.transport import Appended, Cursor, DeadLetterBody, EventPage, LogEvent, LogLink, SessionBody, SessionRow
from streams.clock import now_us
from streams.custody.sealing import Sealer
from streams.errors import ContentUnavailable, OutcomeUnknown, StreamsError
from streams.log.follower import CompactedFollower
from streams.log.position import Position
from streams.log.record import decode_event
from streams.log.topics import Topics, verify
from streams.projections.sessions import SessionRow as StoredRow
from streams.session.events import Event, SessionAttributes
from streams.session.outcomes import ACCEPTED, Outcome, Rejected
from streams.settings import Settings

_ROLE = "importer"
_READ_WAIT_S = 5.0
_PAGE_BYTES = 8 * 1024 * 1024


class Submits(Protocol):
    """What `connectors.edge.submit.Submitter` offers."""

    async def submit(self, composed: Composed) -> Outcome: ...


class DirectTransport:
    """A `connectors.sources.transport.Transport`. Belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        principal: Principal,
        *,
        policies: PolicyTable,
        composer: CommandComposer,
        submitter: Submits,
        owners: ProjectorOwners,
        sealer: Sealer,
        letters: DeadLetters,
        partition_of: Callable[[str], int],
    ) -> None:
        """Raises `NotPermitted` where the principal may not import."""
        for scope in ("sessions:import", "sessions:write", "sessions:read"):
            principal.require(scope)
        self._settings, self._principal, self._policies = settings, principal, policies
        self._composer, self._submitter, self._owners = composer, submitter, owners
        self._sealer, self._letters, self._partition_of = sealer, letters, partition_of
        self._topic = Topics(settings.topic_prefix).commands
        self._facts: dict[str, SessionFacts] = {}
        self._positions: dict[str, Position] = {}

    async def open_session(self, key: str, *, subject: str | None, metadata: Raw) -> SessionRow:
        body = msgspec.json.encode(SessionBody("imported", metadata, subject))
        incoming = Incoming(principal=self._principal, idempotency_key=key, method="POST", path="/v1/sessions", body=body)
        facts = await asyncio.to_thread(self._new_facts, incoming, subject)
        attributes = SessionAttributes(
            origin="imported", policy_mode=facts.policy_mode, content_window_days=facts.content_window_days,
            checkpoint_window_s=facts.checkpoint_window_s,
        )  # fmt: skip
        created = NewEvent(type="session.created", attributes=attributes, content=bytes(metadata))
        outcome = await self._carry_out(incoming, facts, [created])
        if outcome.status == ACCEPTED and not outcome.repeated:
            self._facts[facts.session_id] = facts
            return SessionRow(session_id=facts.session_id, sequence=outcome.last_sequence)
        if outcome.status != ACCEPTED and outcome.code != "runtime.already_exists":
            raise StreamsError(outcome.detail or "", code=outcome.code)
        row = await self._row(facts.session_id)
        self._facts[facts.session_id] = facts_of_row(row)
        source = row.source
        cursor = None if source is None else Cursor(source.kind or "", source.index, source.digest or "")
        return SessionRow(session_id=row.session_id, sequence=row.sequence, source=cursor)

    async def append(self, session_id: str, key: str, body: bytes, *, expected_sequence: int) -> Appended | Rejected:
        path = f"/v1/sessions/{session_id}/events"
        incoming = Incoming(principal=self._principal, idempotency_key=key, method="POST", path=path, body=body)
        facts = self._facts[session_id]
        naming = await asyncio.to_thread(self._composer.naming, facts, incoming)
        events = resolved(parse_lines(body), naming)
        outcome = await self._carry_out(incoming, facts, events, expected_sequence)
        if outcome.status != ACCEPTED:
            return Rejected(outcome.code or "", outcome.detail or "", outcome.last_sequence, outcome.actual_run_sequence)
        event_ids = tuple(naming.of("evt", index) for index in range(len(events)))
        return Appended(last_sequence=outcome.last_sequence, event_ids=event_ids)

    async def events(self, session_id: str, *, after_sequence: int, limit: int) -> EventPage:
        page = await self._owners.events(
            self._principal.workspace_id,
            session_id,
            after=after_sequence,
            limit=limit,
            max_bytes=_PAGE_BYTES,
            position=self._positions.get(session_id),
            wait_s=_READ_WAIT_S,
        )
        self._principal.require_sight_of(session_id, page.session.workspace_id, page.session.subject_id)
        events = [decode_event(value) for value in page.events]
        contents = await asyncio.to_thread(self._sealer.open_many, events)
        shown = tuple(_shown(event, content) for event, content in zip(events, contents, strict=True))
        return EventPage(shown, page.next_after if page.next_after < page.end_sequence else None)

    async def dead_letter(self, session_id: str, key: str, letter: DeadLetterBody) -> None:
        del key  # Stored at least once: the topic does not tell a repeat.
        unread = Unread(
            workspace_id=self._principal.workspace_id,
            session_id=session_id,
            policy_mode=self._facts[session_id].policy_mode,
            source_kind=letter.source_kind,
            source_index=letter.source_index,
            reason=letter.reason,
            place=letter.place,
            record=letter.record,
        )
        sealed = await asyncio.to_thread(seal_unread, self._sealer, unread, now_us())
        await deliver(self._letters, sealed, session_id, self._settings.request_timeout_s)

    def _new_facts(self, incoming: Incoming, subject: str | None) -> SessionFacts:
        policy = self._policies.of(self._principal.workspace_id)
        return SessionFacts(
            session_id=self._composer.session_id(incoming),
            workspace_id=self._principal.workspace_id,
            subject_id=self._composer.subject(self._principal, subject),
            policy_mode=policy.mode,
            content_window_days=policy.content_window_days,
            checkpoint_window_s=policy.checkpoint_window_s,
        )

    async def _carry_out(
        self, incoming: Incoming, facts: SessionFacts, events: Sequence[NewEvent], expected_sequence: int | None = None
    ) -> Outcome:
        compose = partial(self._composer.compose, incoming, facts, events, expected_sequence=expected_sequence, importing=True)
        outcome = await self._submitter.submit(await asyncio.to_thread(compose))
        if outcome.code == "request.expired":
            raise OutcomeUnknown("the command came too late to be decided", code=outcome.code)
        if outcome.position_offset >= 0:
            partition = self._partition_of(facts.session_id)
            self._positions[facts.session_id] = Position(self._topic, partition, outcome.position_offset)
        return outcome

    async def _row(self, session_id: str) -> StoredRow:
        return await self._owners.session(
            self._principal.workspace_id, session_id, position=self._positions.get(session_id), wait_s=_READ_WAIT_S
        )


def _shown(event: Event, content: bytes | ContentUnavailable | None) -> LogEvent:
    attributes = {} if event.attributes is None else structs.asdict(event.attributes)
    return LogEvent(
        event_id=event.event_id,
        sequence=event.sequence,
        type=event.type,
        thread_id=event.thread_id,
        turn_id=event.turn_id,
        run_id=event.run_id,
        links=tuple(LogLink(link.relation, link.id) for link in event.links),
        attributes={name: value for name, value in attributes.items() if value is not None},
        content=Raw(content) if isinstance(content, bytes) else UNSET,
    )


@asynccontextmanager
async def direct_transport(settings: Settings, api_key: str) -> AsyncIterator[DirectTransport]:
    """A transport for as long as an import takes. `api_key` says for whom, as it would at a gateway.

    Raises `NotPermitted`, `Misconfigured` (topics, keyring) and `BrokerUnavailable`.
    """
    await asyncio.to_thread(verify, settings)
    with ExitStack() as stack:
        followed = await asyncio.to_thread(CompactedFollower, settings, _ROLE, Topics(settings.topic_prefix).config)
        stack.callback(followed.close)
        await asyncio.to_thread(followed.wait_fresh, settings.request_timeout_s)
        principal = KeyTable(followed).principal(api_key, now_us())
        edge = stack.enter_context(asking(settings, _ROLE))
        owners = ProjectorOwners(settings, internal_token(settings.data_dir))
        stack.callback(owners.close)
        yield DirectTransport(
            settings,
            principal,
            policies=PolicyTable(followed, settings),
            composer=edge.composer,
            submitter=edge.submitter(),
            owners=owners,
            sealer=edge.sealer,
            letters=edge.commands,
            partition_of=edge.commands.partition_of,
        )
