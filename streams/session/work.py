"""One command at work: the items as its drafts leave them so far, and what will be appended.

Everything lives in an overlay that is dropped whole when the command is refused. What an accepted draft changes is what
`folds` says of the event that it becomes, so that deciding and rebuilding cannot differ.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct, structs

from streams.session import history
from streams.session.commands import Command, Kind
from streams.session.days import FIRST_DAY, LAST_DAY, US_PER_DAY, day_of, written
from streams.session.events import NONE, Attributes, Draft, Link
from streams.session.folds import FOLDS
from streams.session.ids import EventId, event_ids
from streams.session.items import (
    HEADER,
    AttemptState,
    Item,
    ItemKey,
    Items,
    RunState,
    SessionState,
    attempt_of,
    history_of,
    run_of,
    session_of,
)
from streams.session.lifecycles import LIVE_ATTEMPT, SETTLED_RUN
from streams.session.outcomes import Grant, Recovery

AUTHORITY: Final = -1
"""Origin of a draft that the authority made or completed."""


class Decision(Struct, frozen=True, gc=False, kw_only=True):
    """What an accepted command leads to.

    `drafts` become the events `first_sequence`, `first_sequence` + 1, ...; `origins[i]` says which of the command's drafts
    `drafts[i]` is, unchanged, so that its bytes may be passed through (`AUTHORITY`: none). `changed` holds every changed
    item as it is afterwards; the header's `last_hash` is still the one before. Without drafts, `first_sequence` is 0.
    `run_sequence` is the position of the Run that was reported into or granted. `sent` is to be sent to other sessions in the
    same transaction.
    """

    drafts: tuple[Draft, ...]
    origins: Sequence[int]
    changed: dict[ItemKey, Item]
    first_sequence: int
    accepted_at: int
    grant: Grant | None = None
    run_sequence: int | None = None
    sent: tuple[Command, ...] = ()

    def chained(self, last_hash: bytes) -> dict[ItemKey, Item]:
        """`changed`, with the hash of the last event in the header."""
        header = self.changed.get(HEADER)
        if not isinstance(header, SessionState):
            return self.changed
        return {**self.changed, HEADER: structs.replace(header, last_hash=last_hash)}


class Work:
    """`Items`, as the command has changed them. Times in microseconds since the epoch, UTC."""

    __slots__ = (
        "_changed", "_command_offset", "_contents", "_days", "_drafts", "_first", "_items", "_known", "_made", "_moved_runs", "_origins",
        "_sequence", "_took_over_at", "accepted_at", "command", "event_id", "header", "index", "recovery", "reported", "sent", "told",
    )  # fmt: skip

    def __init__(self, items: Items, command: Command, now: int, command_offset: int, took_over_at: int) -> None:
        self.command = command
        self.header = session_of(items)
        self.accepted_at = now if self.header is None else max(now, self.header.last_accepted_at)
        self.index = 0
        """Of the draft at hand among the command's."""
        self.reported: str | None = None
        """The Run whose current attempt the command's principal has proved to hold."""
        self.told: str | None = None
        """The Run whose attempt the answer tells of, as a grant, if it is still live then."""
        self.recovery: Recovery | None = None
        """What the answer tells beside the grant."""
        self.sent: tuple[Command, ...] = ()
        """To other sessions."""
        self.event_id: Callable[[int], EventId] = event_ids(command.command_id)
        self._items = items
        self._command_offset = command_offset
        self._took_over_at = took_over_at
        self._known: dict[ItemKey, Item | None] = {}
        self._changed: dict[ItemKey, None] = {}
        self._first = self._sequence = 0 if self.header is None else self.header.sequence
        self._moved_runs: dict[str, int] = {}
        self._contents: dict[str, history.Span] | None = None
        self._drafts: list[Draft] = []
        self._origins: list[int] = []
        self._made = 0
        self._days: frozenset[str] | None = None

    def get(self, kind: str, item_id: str) -> Item | None:
        key = (kind, item_id)
        known = self._known
        if key in known:
            return known[key]
        item = known[key] = self._items.get(kind, item_id)
        return item

    def append_plain(self, draft: Draft, origin: int) -> int:
        """Accepts a draft that changes the counters only, its content aside (`note`). Returns its position."""
        self._sequence = sequence = self._sequence + 1
        if draft.run_id is not None:
            self._moved_runs[draft.run_id] = sequence
        self._drafts.append(draft)
        self._origins.append(origin)
        return sequence

    def note(self, place: str | None, first: int, last: int) -> None:
        """Content lies at these positions, and perhaps between them (`history.place_of`); none of them before those noted last."""
        contents = self._contents
        if place is None:
            return
        if contents is None:
            self._contents = {place: (first, last)}
        else:
            contents[place] = (contents.get(place, (first, last))[0], last)

    def append(self, draft: Draft, origin: int) -> None:
        """Accepts a draft, without what follows from it (`consequences.append`)."""
        at = self.append_plain(draft, origin)
        if draft.content.state != NONE:
            self.note(history.place_of(draft.content), at, at)
        change = FOLDS[draft.type]
        if change is not None:
            self.put(change(self, draft, self._sequence, self.accepted_at))
            if draft.type.startswith("session."):
                self.header = session_of(self)

    def put(self, changes: Sequence[tuple[ItemKey, Item]]) -> None:
        for key, item in changes:
            self._known[key] = item
            self._changed[key] = None

    def make(
        self,
        event_type: str,
        run: RunState | None,
        attributes: Attributes | None = None,
        *,
        links: tuple[Link, ...] = (),
        generation: int | None = None,
        native_task_id: str | None = None,
    ) -> Draft:
        """A draft of the authority's own, in a Run or in none. Its id follows those of the command's drafts."""
        command = self.command
        event_id = self.event_id(len(command.drafts) + self._made)
        self._made += 1
        return Draft(
            event_id=event_id,
            session_id=command.session_id,
            type=event_type,
            workspace_id=command.workspace_id,
            thread_id=None if run is None else run.thread_id,
            turn_id=None if run is None else run.turn_id,
            run_id=None if run is None else run.run_id,
            attempt_generation=generation,
            native_task_id=native_task_id,
            command_id=command.command_id,
            links=links,
            attributes=attributes,
        )

    def lapsed(self, attempt: AttemptState) -> bool:
        """Whether the attempt's lease is over."""
        deadline = self.deadline(attempt)
        return deadline is not None and self.accepted_at > deadline

    def deadline(self, attempt: AttemptState) -> int | None:
        """The last microsecond of the attempt's lease; None: it has none. After a takeover every lease is granted its length once
        more: renewals could not be decided meanwhile."""
        if attempt.lease_expires_at is None:
            return None
        return max(attempt.lease_expires_at, self._took_over_at + attempt.lease_ms * 1000)

    def days(self, window_days: int) -> frozenset[str]:
        """The expiry days that content accepted now may name: they end no sooner than the content expires, and no more
        than two days (and a minute, for clocks that differ) after it."""
        if self._days is None:
            expires_at = self.accepted_at + window_days * US_PER_DAY
            first = day_of(expires_at - 1)
            # A gateway whose clock is a minute ahead has seen midnight first.
            last = day_of(expires_at + 60_000_000) + 1
            self._days = _days(first, last)
        return self._days

    def _granted(self, attempt: AttemptState, run_sequence: int) -> Grant:
        """Whoever holds the lease is told what was granted; who asks whether it is over, when it will be."""
        deadline = self.deadline(attempt) if self.command.kind is Kind.LAPSE else attempt.lease_expires_at
        return Grant(
            run_id=attempt.run_id,
            generation=attempt.generation,
            native_task_id=attempt.native_task_id,
            lease_expires_at=deadline or 0,
            run_sequence=run_sequence,
            recovery=None if self.recovery is None else structs.replace(self.recovery, frontier_sequence=self._sequence),
        )

    def decision(self) -> Decision:
        """What the command led to, once all its drafts are accepted."""
        for run_id, sequence in self._moved_runs.items():
            run = run_of(self, run_id)
            if run is not None:
                self.put(((("run", run_id), structs.replace(run, sequence=sequence)),))
        if self._drafts and self.header is not None:
            header, contents = self.header, self._contents
            # Nearly all content is of the day that the header names already: no history is read for it.
            today = None if contents is None or len(contents) > 1 else contents.get(header.content_day or "")
            header = structs.replace(
                header,
                sequence=self._sequence,
                last_accepted_at=self.accepted_at,
                last_command_offset=self._command_offset,
                content_last=header.content_last if today is None else today[1],
            )
            if contents is None or today is not None:
                self.put(((HEADER, header),))
            else:
                self.put(history.noted(header, history_of(self), contents))
        about = self.told or self.reported
        at = None if about is None else run_of(self, about)
        attempt = None if self.told is None else attempt_of(self, self.told)
        live = attempt is not None and attempt.status in LIVE_ATTEMPT and at is not None and at.status not in SETTLED_RUN
        return Decision(
            drafts=tuple(self._drafts),
            origins=self._origins,
            changed={key: item for key in self._changed if (item := self._known[key]) is not None},
            first_sequence=self._first + 1 if self._drafts else 0,
            accepted_at=self.accepted_at,
            grant=self._granted(attempt, at.sequence) if live and attempt is not None and at is not None else None,
            run_sequence=None if at is None else at.sequence,
            sent=self.sent,
        )


@lru_cache(maxsize=64)
def _days(first: int, last: int) -> frozenset[str]:
    """From ordinal to ordinal. Commands of one day ask for the same few."""
    return frozenset(written(day) for day in range(max(first, FIRST_DAY), min(last, LAST_DAY) + 1))
