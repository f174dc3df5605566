"""A session told command by command on the pure core, with a clock and ids that a test names.

Each accepted command is also folded from its events alone, and both ways must give the same items.
"""

from datetime import UTC, datetime, timedelta

from msgspec import structs

from streams.session import chain
from streams.session.commands import Command, Kind, Report
from streams.session.decide import AUTHORITY, Decision, decide
from streams.session.events import (
    SEALED,
    AttemptAttributes,
    Attributes,
    Content,
    Draft,
    Event,
    KeyReference,
    RunAttributes,
    SessionAttributes,
)
from streams.session.ids import derive_event_id
from streams.session.items import AttemptState, DictItems, HistoryState, Item, LineageState, RunState, SessionState
from streams.session.outcomes import Grant, Rejected
from streams.session.state import evolve
from tests.support.examples import made_up_id

SECOND = 1_000_000
NOON = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z in microseconds."""
SESSION, WORKSPACE, SUBJECT = made_up_id("sess"), made_up_id("ws"), made_up_id("subj")
WORKER, OTHER, PERSON = made_up_id("key", "worker"), made_up_id("key", "other"), made_up_id("key", "person")
WINDOW_DAYS = 30


def sealed(now: int = NOON, *, days_on: int = 1, subject_id: str | None = SUBJECT, session_id: str = SESSION) -> Content:
    """Content as a gateway seals it: the day after the one on which the window ends."""
    day = datetime.fromtimestamp(now / SECOND, UTC) + timedelta(days=WINDOW_DAYS + days_on)
    return Content(SEALED, KeyReference(subject_id, session_id, day.strftime("%Y-%m-%d")), bytes(64), bytes(32))


def part(event_type: str, attributes: Attributes | None = None, **fields: object) -> Draft:
    """A draft whose place in a command is not known yet."""
    return Draft(event_id="", session_id=SESSION, type=event_type, workspace_id=WORKSPACE, command_id="", attributes=attributes, **fields)  # type: ignore[arg-type]


class Story:
    """`tell` sends a command; what was accepted is in `items` and `events`."""

    def __init__(self, now: int = NOON, session_id: str = SESSION) -> None:
        self.now = now
        self.session_id = session_id
        self.items = DictItems()
        self.folded = DictItems()
        self.events: list[Event] = []
        self.commands = 0
        self.took_over_at = 0

    # -- asking

    def command(
        self,
        *parts: Draft,
        kind: Kind = Kind.APPEND,
        by: str = PERSON,
        importing: bool = False,
        report: Report | None = None,
        **fields: object,
    ) -> Command:
        """The next command, with the ids that its place gives it."""
        ours = self.session_id == SESSION
        command_id = made_up_id("cmd", self.commands if ours else f"{self.session_id} {self.commands}")
        drafts = tuple(
            structs.replace(
                draft,
                command_id=command_id,
                event_id=derive_event_id(command_id, index),
                session_id=draft.session_id if ours else self.session_id,
            )
            for index, draft in enumerate(parts)
        )
        given = {"command_id": command_id, "session_id": self.session_id, "workspace_id": WORKSPACE, "issued_at": self.now}
        rest = {"request_digest": bytes(32), "not_after": self.now + 10 * SECOND, "importing": importing, "report": report}
        return Command(**{**given, **rest, **fields}, kind=kind, principal_id=by, drafts=drafts)  # type: ignore[arg-type]

    def decide(self, command: Command) -> Decision | Rejected:
        """Decides, and keeps what was accepted. Checks what every decision owes."""
        offset = self.commands
        self.commands += 1
        before = dict(self.items.items)
        decision = decide(self.items, command, self.now, offset, self.took_over_at)
        assert decision == decide(self.items, command, self.now, offset, self.took_over_at), "decided differently the second time"
        assert self.items.items == before, "deciding changed what it read"
        if isinstance(decision, Decision):
            self._keep(command, decision, offset)
        return decision

    def tell(self, *parts: Draft, **more: object) -> Decision:
        decision = self.decide(self.command(*parts, **more))  # type: ignore[arg-type]
        assert isinstance(decision, Decision), decision
        return decision

    def refusal(self, *parts: Draft, **more: object) -> str:
        """The code with which the command is refused."""
        decision = self.decide(self.command(*parts, **more))  # type: ignore[arg-type]
        assert isinstance(decision, Rejected), [draft.type for draft in decision.drafts]
        return decision.code

    def _keep(self, command: Command, decision: Decision, offset: int) -> None:
        header = self.items.get("session", "")
        previous = header.last_hash if isinstance(header, SessionState) else chain.genesis(self.session_id)
        sequence = header.sequence if isinstance(header, SessionState) else 0
        assert decision.first_sequence == (sequence + 1 if decision.drafts else 0)
        assert len(decision.origins) == len(decision.drafts)
        for draft, origin in zip(decision.drafts, decision.origins, strict=True):
            assert origin == AUTHORITY or draft is command.drafts[origin]
        last = len(decision.drafts) - 1
        for index, draft in enumerate(decision.drafts):
            added = {
                "sequence": decision.first_sequence + index,
                "command_offset": offset,
                "command_last": index == last,
                "accepted_at": decision.accepted_at,
                "previous_hash": previous,
            }
            previous = chain.event_hash(draft, None, **added)  # type: ignore[arg-type]
            event = Event(**structs.asdict(draft), **added, hash=previous)
            self.events.append(event)
            self.folded.put(evolve(self.folded, event))
        self.items.put(decision.chained(previous) if decision.drafts else decision.changed)
        if decision.drafts:
            assert as_logged(self.items) == as_logged(self.folded), "events do not fold to what was decided"

    # -- what has been told

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def header(self) -> SessionState:
        item = self.items.get("session", "")
        assert isinstance(item, SessionState)
        return item

    def run(self, run_id: str | None = None) -> RunState:
        item = self.items.get("run", run_id or made_up_id("run"))
        assert isinstance(item, RunState)
        return item

    def attempt(self, run_id: str | None = None) -> AttemptState:
        item = self.items.get("attempt", run_id or made_up_id("run"))
        assert isinstance(item, AttemptState)
        return item

    # -- usual beginnings

    def created(
        self, *, origin: str = "live", days: int = WINDOW_DAYS, mode: str = "standard", subject_id: str | None = SUBJECT
    ) -> "Story":
        attributes = SessionAttributes(origin=origin, policy_mode=mode, content_window_days=days)
        self.tell(part("session.created", attributes, subject_id=subject_id), importing=origin == "imported")
        return self

    def with_run(self, run_id: str | None = None, **attributes: object) -> "Story":
        self.tell(part("run.accepted", RunAttributes(**attributes), run_id=run_id or made_up_id("run")))  # type: ignore[arg-type]
        return self

    def with_imported_run(self, run_id: str | None = None) -> "Story":
        run_id = run_id or made_up_id("run")
        accepted = part("run.accepted", RunAttributes(origin="imported"), run_id=run_id)
        self.tell(accepted, part("attempt.started", run_id=run_id), importing=True)
        return self

    def claim_parts(self, label: str = "1", run_id: str | None = None) -> Draft:
        digest = "sha256:" + label.encode().hex().rjust(64, "0")
        return part("attempt.started", AttemptAttributes(claim_digest=digest), run_id=run_id or made_up_id("run"))

    def claim(self, by: str = WORKER, label: str = "1", lease_ms: int = 30_000, run_id: str | None = None) -> Grant:
        decision = self.tell(self.claim_parts(label, run_id), kind=Kind.CLAIM, by=by, lease_ms=lease_ms)
        assert decision.grant is not None
        return decision.grant

    def report(self, grant: Grant, seen: int | None = None) -> Report:
        """What the holder of the grant proves; it has seen all that happened, unless `seen` says otherwise."""
        at = self.run(grant.run_id).sequence if seen is None else seen
        return Report(grant.run_id, grant.generation, grant.native_task_id, at)

    def working(self, **run: object) -> Grant:
        """A session with a Run that a worker holds."""
        return self.created().with_run(**run).claim()


def as_logged(items: DictItems) -> dict[tuple[str, str], Item]:
    """The items, but for what a renewal or an erasure changes: it is not in the log."""
    logged = {key: _as_logged(item) for key, item in items.items.items()}
    return {key: item for key, item in logged.items() if item != HistoryState()}


def _as_logged(item: Item) -> Item:
    match item:
        case AttemptState():
            return structs.replace(item, lease_ms=0, lease_expires_at=None)
        case HistoryState():
            return structs.replace(item, erased_through=0, checkpoints_erased_through=0)
        case LineageState():
            return structs.replace(item, erased=False)
    return item
