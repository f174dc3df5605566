"""The other side of an import, in memory: the gateway's reading of bodies and the pure core, without sealing and Kafka.

Faults are values that a test passes in: `lose_answers` counts down appends that take effect and whose answer is lost,
`away` counts down calls that fail before they do anything, `forget_keys` makes Idempotency-Keys be forgotten, as they
are after a day.
"""

import hashlib
import itertools

import msgspec
from msgspec import Raw, structs

from connectors.edge.compose import Naming
from connectors.edge.events import parse_lines, resolved
from connectors.sources.transport import Appended, Cursor, DeadLetterBody, EventPage, LogEvent, LogLink, SessionRow
from streams.errors import BrokerUnavailable, NotFound, OutcomeUnknown
from streams.session.commands import Command, Kind
from streams.session.decide import Decision, decide
from streams.session.events import Draft, Event, SessionAttributes
from streams.session.ids import derive_event_id
from streams.session.outcomes import Rejected
from streams.session.state import DictItems
from streams.session.vocabulary import misplaced, misplaced_attribute

WORKSPACE = "ws_" + "5" * 32
PRINCIPAL = "key_" + "6" * 32
_NOW = 1_760_000_000_000_000


def _id(prefix: str, *parts: str) -> str:
    return f"{prefix}_{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:32]}"


class ImportService:
    """A `connectors.sources.transport.Transport`. `appends` counts calls of `append` that were accepted anew."""

    def __init__(self) -> None:
        self.logs: dict[str, list[LogEvent]] = {}
        self.subjects: dict[str, str | None] = {}
        self.letters: dict[str, tuple[str, DeadLetterBody]] = {}
        self.accepted: dict[str, list[Event]] = {}
        """By session, what the core accepted, without content and unchained."""
        self.appends = 0
        self.lose_answers = 0
        self.away = 0
        self.forget_keys = False
        self._items: dict[str, DictItems] = {}
        self._told: dict[tuple[str, str], tuple[bytes, Appended]] = {}
        self._offsets = itertools.count(1)

    # What a transport offers

    async def open_session(self, key: str, *, subject: str | None, metadata: Raw) -> SessionRow:
        self._be_away()
        session_id = _id("sess", key)
        if session_id not in self._items:
            self._items[session_id], self.logs[session_id], self.subjects[session_id] = DictItems(), [], subject
            attributes = SessionAttributes(origin="imported", policy_mode="standard", content_window_days=30)
            draft = self._draft(session_id, _id("cmd", session_id, key), 0, "session.created", attributes=attributes)
            answer = self._decide(session_id, draft.command_id, [draft], [bytes(metadata)], None)
            assert isinstance(answer, Appended), answer
        return self.row(session_id)

    async def append(self, session_id: str, key: str, body: bytes, *, expected_sequence: int) -> Appended | Rejected:
        self._be_away()
        assert 1 <= len(key) <= 255
        told = self._told.get((session_id, key))
        if told is not None and not self.forget_keys:
            assert told[0] == body, "a key came again with another body"
            return told[1]
        naming = Naming(_id("cmd", session_id, key, str(next(self._offsets)) if self.forget_keys else ""))
        events = resolved(parse_lines(body), naming)
        drafts = [
            self._draft(
                session_id,
                naming.command_id,
                index,
                event.type,
                **{
                    name: getattr(event, name)
                    for name in ("thread_id", "turn_id", "run_id", "attempt_generation", "occurred_at", "links", "attributes")
                },
            )
            for index, event in enumerate(events)
        ]
        answer = self._decide(session_id, naming.command_id, drafts, [event.content for event in events], expected_sequence)
        if isinstance(answer, Appended):
            self.appends += 1
            self._told[(session_id, key)] = (body, answer)
        if self.lose_answers:
            self.lose_answers -= 1
            raise OutcomeUnknown("the answer was lost")
        return answer

    async def events(self, session_id: str, *, after_sequence: int, limit: int) -> EventPage:
        self._be_away()
        log = self.logs.get(session_id)
        if log is None:
            raise NotFound(session_id)
        page = log[after_sequence : after_sequence + limit]
        return EventPage(tuple(page), page[-1].sequence if after_sequence + limit < len(log) else None)

    async def dead_letter(self, session_id: str, key: str, letter: DeadLetterBody) -> None:
        self._be_away()
        self.letters[key] = (session_id, letter)

    # What a test looks at

    def row(self, session_id: str) -> SessionRow:
        cursor: Cursor | None = None
        for event in self.logs[session_id]:
            kind, index, digest = (event.attribute(f"source_{name}") for name in ("kind", "index", "digest"))
            if isinstance(kind, str) and isinstance(index, int) and isinstance(digest, str) and (cursor is None or index > cursor.index):
                cursor = Cursor(kind, index, digest)
        return SessionRow(session_id=session_id, sequence=len(self.logs[session_id]), source=cursor)

    def snapshot(self) -> dict[str, list[LogEvent]]:
        """Every session's events, without what only names them: ids of events and links to them become sequences."""
        return {session_id: [_renamed(event, log) for event in log] for session_id, log in self.logs.items()}

    # Inside

    def _be_away(self) -> None:
        if self.away:
            self.away -= 1
            raise BrokerUnavailable("away", retry_after_s=0.0)

    def _draft(self, session_id: str, command_id: str, index: int, event_type: str, **fields: object) -> Draft:
        draft = Draft(
            event_id=derive_event_id(command_id, index),
            session_id=session_id,
            type=event_type,
            workspace_id=WORKSPACE,
            command_id=command_id,
            **fields,  # type: ignore[arg-type]
        )
        assert misplaced(draft) is None, (misplaced(draft), draft)
        assert draft.attributes is None or misplaced_attribute(event_type, draft.attributes) is None, draft
        return draft

    def _decide(
        self, session_id: str, command_id: str, drafts: list[Draft], contents: list[bytes | None], expected: int | None
    ) -> Appended | Rejected:
        command = Command(
            command_id=command_id,
            session_id=session_id,
            workspace_id=WORKSPACE,
            kind=Kind.APPEND,
            principal_id=PRINCIPAL,
            request_digest=bytes(32),
            issued_at=_NOW,
            not_after=_NOW + 1,
            expected_sequence=expected,
            importing=True,
            drafts=tuple(drafts),
        )
        command_offset = next(self._offsets)
        decision = decide(self._items[session_id], command, _NOW, command_offset)
        if isinstance(decision, Rejected):
            return decision
        self._items[session_id].put(decision.changed)
        held = {draft.event_id: content for draft, content in zip(drafts, contents, strict=True)}
        self._keep(session_id, decision, command_offset)
        log = self.logs[session_id]
        log += [_shown(draft, decision.first_sequence + place, held.get(draft.event_id)) for place, draft in enumerate(decision.drafts)]
        return Appended(last_sequence=len(log), event_ids=tuple(draft.event_id for draft in drafts))

    def _keep(self, session_id: str, decision: Decision, command_offset: int) -> None:
        last = len(decision.drafts) - 1
        self.accepted.setdefault(session_id, []).extend(
            _event(draft, sequence=decision.first_sequence + place, command_offset=command_offset, command_last=place == last)
            for place, draft in enumerate(decision.drafts)
        )


def _event(draft: Draft, **added: int | bool) -> Event:
    fields = {name: getattr(draft, name) for name in draft.__struct_fields__}
    return Event(**fields, **added, accepted_at=_NOW, previous_hash=bytes(32), hash=bytes(32))


def _shown(draft: Draft, sequence: int, content: bytes | None) -> LogEvent:
    attributes = None if draft.attributes is None else {k: v for k, v in structs.asdict(draft.attributes).items() if v is not None}
    shown = LogEvent(
        event_id=draft.event_id,
        sequence=sequence,
        type=draft.type,
        thread_id=draft.thread_id,
        turn_id=draft.turn_id,
        run_id=draft.run_id,
        links=tuple(LogLink(link.relation, link.id) for link in draft.links),
        attributes=attributes,
        **({} if content is None else {"content": Raw(content)}),
    )
    # Through JSON and back, as a client would have it.
    return msgspec.json.decode(msgspec.json.encode(shown), type=LogEvent)


def _renamed(event: LogEvent, log: list[LogEvent]) -> LogEvent:
    places = {each.event_id: f"#{each.sequence}" for each in log}
    links = tuple(LogLink(link.relation, places.get(link.id, link.id)) for link in event.links)
    return structs.replace(event, event_id=places[event.event_id], links=links)
