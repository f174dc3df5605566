"""One session's import: what the log lacks is sent, batch by batch, and nothing twice.

Rules upheld here:

- the log says where to go on: the session's source cursor, and `expected_sequence` on every batch, so that a second
  run adds nothing whatever its age, and two importers of one file cannot both append;
- a batch's key is a digest of its place and bytes, so that the same batch sent again is told its first outcome;
- where the other side is away, the same call is made again for `patience_s`;
- a broken line becomes a dead letter before anything behind it is sent.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from connectors.sources.bodies import Batch, Group
from connectors.sources.files import PlannedSession, SourceUnusable
from connectors.sources.parts import Part, parts_of
from connectors.sources.patience import patiently
from connectors.sources.records import Broken
from connectors.sources.transport import DeadLetterBody, LogEvent, SessionRow, Transport
from streams.errors import Invalid, ProjectionBehind
from streams.session.outcomes import Rejected

PAGE_EVENTS = 500
_RESTARTS = 20
_RESTART_DELAY_MAX_S = 2.0
LETTERS_TOLD = 5
"""Places of dead letters that an import remembers."""
_PLACE_MAX = 3000
"""Characters of a path that a dead letter tells, from its end."""

T = TypeVar("T")


class _SessionMoved(Exception):
    """The session stands elsewhere than expected: look again and go on from there."""


class SessionImport:
    """The import of one planned session. Counters grow as batches are acknowledged, and `on_advance` is told."""

    def __init__(
        self,
        transport: Transport,
        plan: PlannedSession,
        *,
        patience_s: float = 120.0,
        on_advance: Callable[["SessionImport"], None] = lambda work: None,
    ) -> None:
        self.plan = plan
        self.session_id: str | None = None
        self.records_added = 0
        self.events_added = 0
        self.bytes_read = 0
        self.letter_places: list[str] = []
        """Of the first dead letters: `FILE:LINE: reason`."""
        self._readable = False
        self._on_advance = on_advance
        self._letters: set[str] = set()
        self._transport = transport
        self._patience_s = patience_s
        self._parts: list[Part] = []
        self._sequence = 0

    @property
    def dead_letters(self) -> int:
        return len(self._letters)

    @property
    def unreadable(self) -> bool:
        """Whether the source had lines, and not one of them was a record."""
        return bool(self._letters) and not self._readable

    async def catch_up(self, *, final: bool) -> None:
        """Sends what the files hold and the log does not.

        Raises SourceUnusable, SourceChanged, and `streams.errors` that no repetition helps against.
        """
        for attempt in range(_RESTARTS):
            try:
                if self.session_id is None:
                    await self._open()
                for part in self._parts:
                    await self._send(part, final=final)
                self._advanced()
                return
            except _SessionMoved:
                self.forget()
                await asyncio.sleep(min(0.1 * attempt, _RESTART_DELAY_MAX_S))
        raise Invalid("another writer keeps appending to this session", code="runtime.sequence_conflict")

    def release(self) -> None:
        """Closes the files; the import is over."""
        for part in self._parts:
            part.close()
        self._parts = []

    def forget(self) -> None:
        """The next `catch_up` looks at log and files afresh."""
        self.release()
        self.session_id = None

    def _advanced(self) -> None:
        self.bytes_read = sum(part.bytes_read for part in self._parts)
        self._on_advance(self)

    # Where the log stands

    async def _open(self) -> None:
        row = await self._patiently(self._current_row)
        self.session_id, self._sequence = row.session_id, row.sequence
        self._parts = parts_of(self.plan, row.session_id)
        if row.source is None and row.sequence <= 1:
            return
        if not self._take_cursor(row):
            await self._read_log()

    async def _current_row(self) -> SessionRow:
        row = await self._transport.open_session(self.plan.key, subject=self.plan.subject, metadata=self.plan.metadata)
        if row.sequence < self._sequence:
            # The session was seen further on: its table has yet to come there.
            raise ProjectionBehind(f"{row.session_id} is told at {row.sequence}, and stands at {self._sequence}", retry_after_s=0.1)
        return row

    def _take_cursor(self, row: SessionRow) -> bool:
        """Whether the session's cursor says enough: there is one, and one part that it can belong to."""
        if row.source is None or len(self._parts) > 1 or row.source.kind != self._parts[0].source_kind:
            return False
        progress = self._parts[0].progress
        progress.cursor = row.source.index
        progress.digests[row.source.index] = row.source.digest
        return True

    async def _read_log(self) -> None:
        """Every part's cursor, event ids and digests, from the events themselves."""
        after = 0
        while True:
            page = await self._patiently(partial(self._transport.events, self._id(), after_sequence=after, limit=PAGE_EVENTS))
            for event in page.events:
                self._note(event)
            if page.next_after_sequence is None:
                return
            after = page.next_after_sequence

    def _note(self, event: LogEvent) -> None:
        index, digest = event.attribute("source_index"), event.attribute("source_digest")
        if not isinstance(index, int) or not isinstance(digest, str):
            return
        for part in self._parts:
            if event.attribute("source_kind") == part.source_kind and part.thread_id in (None, event.thread_id):
                part.progress.event_ids[index] = event.event_id
                part.progress.digests[index] = digest
                part.progress.cursor = max(part.progress.cursor, index)
                return

    # Sending

    async def _send(self, part: Part, *, final: bool) -> None:
        batch = Batch()
        try:
            for item in part.advance(final=final):
                batch = await self._take(part, batch, item)
        except SourceUnusable:
            # What a source gave whole before it broke off is kept.
            await self._flush(part, batch)
            raise
        await self._flush(part, batch)
        part.progress.check_reached()

    async def _take(self, part: Part, batch: Batch, item: Group | Broken) -> Batch:
        """The batch that is being filled after `item`."""
        progress = part.progress
        self._readable = self._readable or isinstance(item, Group)
        if progress.includes(item):
            return batch
        if isinstance(item, Broken):
            await self._dead_letter(part, item)
            return batch
        if progress.cursor >= 0 and not progress.event_ids:
            # Links lead back to records of an earlier run: their event ids are in the log alone.
            await self._read_log()
            progress.check_passed()
        if not batch.fits(item):
            await self._flush(part, batch)
            batch = Batch()
        batch.add(item)
        return batch

    async def _flush(self, part: Part, batch: Batch) -> None:
        if not batch:
            return
        body = batch.encode(part.progress.event_ids)
        key = self._key("batch", part, batch.groups[0].index, body)
        answer = await self._patiently(partial(self._transport.append, self._id(), key, body, expected_sequence=self._sequence))
        if isinstance(answer, Rejected):
            if answer.code == "runtime.sequence_conflict":
                self._sequence = max(self._sequence, answer.actual_sequence or 0)
                raise _SessionMoved
            raise Invalid(f"records from {batch.groups[0].index} refused: {answer.detail}", code=answer.code)
        for index, place in batch.content_places().items():
            part.progress.event_ids[index] = answer.event_ids[place]
        part.progress.cursor = batch.groups[-1].index
        self._sequence = answer.last_sequence
        self.records_added += len(batch.groups)
        self.events_added += batch.event_count
        self._advanced()

    async def _dead_letter(self, part: Part, line: Broken) -> None:
        letter = DeadLetterBody(
            source_kind=part.source_kind,
            reason=line.reason,
            place=f"{part.name[-_PLACE_MAX:]}:{line.index + 1} ({line.byte_count} bytes, {line.digest})",
            record=line.text,
            source_index=line.index,
        )
        key = self._key("dead-letter", part, line.index, line.digest.encode())
        await self._patiently(partial(self._transport.dead_letter, self._id(), key, letter))
        if key not in self._letters and len(self._letters) < LETTERS_TOLD:
            self.letter_places.append(f"{part.name}:{line.index + 1}: {line.reason}")
        self._letters.add(key)

    def _key(self, purpose: str, part: Part, index: int, body: bytes) -> str:
        fields = (purpose, self._id(), part.source_kind, part.thread_id or "", str(index), hashlib.sha256(body).hexdigest())
        return f"import:{hashlib.sha256(chr(10).join(fields).encode()).hexdigest()}"

    def _patiently(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        return patiently(call, self._patience_s)

    def _id(self) -> str:
        assert self.session_id is not None
        return self.session_id
