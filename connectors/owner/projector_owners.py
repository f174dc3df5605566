"""Sessions, events, checkpoints and Runs by way of the projectors that own them.

A listing asks every owner for its own partitions and merges; each answers for its part, or the listing fails whole.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Final

import msgspec

from connectors.owner.asker import Asker, FindsOwners, all_of
from connectors.owner.messages import (
    CheckpointsQuestion,
    ClaimableQuestion,
    ClaimedQuestion,
    EventNamedQuestion,
    EventsQuestion,
    ItemQuestion,
    SessionQuestion,
    SessionsQuestion,
    UnsettledQuestion,
)
from streams.errors import Invalid, StreamsError
from streams.log.owners import GroupOwners
from streams.log.position import Position
from streams.log.topics import Topics
from streams.projections.checkpoints import CheckpointRow
from streams.projections.projector import GROUP
from streams.projections.runs import LanePlace, RunRow, lane_place
from streams.projections.sessions import SessionRow
from streams.query.pages import CheckpointsPage, EventsPage, ListingCursor, SessionsPage, UnsettledPage
from streams.settings import Settings

_row = msgspec.msgpack.Decoder(SessionRow).decode
_events_page = msgspec.msgpack.Decoder(EventsPage).decode
_sessions_page = msgspec.msgpack.Decoder(SessionsPage).decode
_sequence = msgspec.msgpack.Decoder(int).decode
_checkpoints_page = msgspec.msgpack.Decoder(CheckpointsPage).decode
_checkpoint = msgspec.msgpack.Decoder(CheckpointRow).decode
_run = msgspec.msgpack.Decoder(RunRow).decode
_unsettled_page = msgspec.msgpack.Decoder(UnsettledPage).decode
_runs = msgspec.msgpack.Decoder(tuple[RunRow, ...]).decode

_OTHERS_S: Final = 0.1
"""What other owners are waited for once one has Runs."""


class ProjectorOwners(Asker):
    """Belongs to one event loop. All reads raise `Retriable`s, `NotFound` and `Invalid`."""

    def __init__(self, settings: Settings, token: str, finder: FindsOwners | None = None) -> None:
        super().__init__(settings.partitions, token, finder or GroupOwners(settings, GROUP, Topics(settings.topic_prefix).events))

    async def session(
        self,
        workspace_id: str,
        session_id: str,
        *,
        subject_id: str | None = None,
        position: Position | None = None,
        wait_s: float = 5.0,
    ) -> SessionRow:
        """`subject_id`: the only one whose sessions are there for who asks; None: all are."""

        def question(here: str | None, left_s: float) -> SessionQuestion:
            return SessionQuestion(workspace_id, session_id, here, left_s, subject_id)

        return await self._ask_of(session_id, "session", question, _row, position, wait_s)

    async def events(
        self,
        workspace_id: str,
        session_id: str,
        *,
        subject_id: str | None = None,
        after: int,
        limit: int,
        max_bytes: int,
        wait_ms: int = 0,
        position: Position | None = None,
        wait_s: float = 5.0,
        at_end: bool = False,
    ) -> EventsPage:
        """Waits up to `wait_ms` for a first event above `after`; an empty page says that there was none. Else as `session`.

        `at_end`: from a table that holds all that the log holds now.
        """
        follow_s = wait_ms / 1000

        def question(here: str | None, left_s: float) -> EventsQuestion:
            return EventsQuestion(workspace_id, session_id, after, limit, max_bytes, follow_s, here, left_s, subject_id, at_end)

        return await self._ask_of(session_id, "events", question, _events_page, position, wait_s, more_s=follow_s)

    async def sessions(
        self,
        workspace_id: str,
        *,
        subject_id: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        position: Position | None = None,
        wait_s: float = 5.0,
    ) -> SessionsPage:
        """Newest first, from all partitions."""
        deadline_s = time.monotonic() + wait_s
        text = None if position is None else str(position)

        async def part(partition: int) -> SessionsPage:
            def question(left_s: float) -> SessionsQuestion:
                return SessionsQuestion(workspace_id, subject_id, (partition,), cursor, limit, text, left_s)

            return await self._ask(partition, "sessions", question, _sessions_page, deadline_s)

        if position is not None and position.partition >= self._partitions:
            raise Invalid(f"position {position}: no such partition", code="request.malformed")
        pages = await all_of([part(partition) for partition in range(self._partitions)])
        rows = sorted((row for page in pages for row in page.sessions), key=_place, reverse=True)
        more = len(rows) > limit or any(page.cursor for page in pages)
        return SessionsPage(tuple(rows[:limit]), str(_place(rows[limit - 1])) if more and len(rows) >= limit else None)

    async def event_named(
        self, workspace_id: str, session_id: str, event_id: str, *,
        subject_id: str | None = None, position: Position | None = None, wait_s: float = 5.0,
    ) -> int:  # fmt: skip
        """The sequence of an event; at once where it is near the session's end. Else as `session`."""

        def question(here: str | None, left_s: float) -> EventNamedQuestion:
            return EventNamedQuestion(workspace_id, session_id, event_id, here, left_s, subject_id)

        return await self._ask_of(session_id, "event_named", question, _sequence, position, wait_s)

    async def checkpoints(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, cursor: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointsPage:  # fmt: skip
        """Newest first. Else as `session`."""

        def question(here: str | None, left_s: float) -> CheckpointsQuestion:
            return CheckpointsQuestion(workspace_id, session_id, cursor, limit, here, left_s, subject_id)

        return await self._ask_of(session_id, "checkpoints", question, _checkpoints_page, position, wait_s)

    async def checkpoint(
        self, workspace_id: str, session_id: str, checkpoint_id: str, *,
        subject_id: str | None = None, position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointRow:  # fmt: skip
        """As `session`."""

        def question(here: str | None, left_s: float) -> ItemQuestion:
            return ItemQuestion(workspace_id, session_id, checkpoint_id, here, left_s, subject_id)

        return await self._ask_of(session_id, "checkpoint", question, _checkpoint, position, wait_s)

    async def run(
        self, workspace_id: str, session_id: str, run_id: str, *,
        subject_id: str | None = None, position: Position | None = None, wait_s: float = 5.0,
    ) -> RunRow:  # fmt: skip
        """As `session`."""

        def question(here: str | None, left_s: float) -> ItemQuestion:
            return ItemQuestion(workspace_id, session_id, run_id, here, left_s, subject_id)

        return await self._ask_of(session_id, "run", question, _run, position, wait_s)

    async def unsettled(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> UnsettledPage:  # fmt: skip
        """What nothing has ended yet, as of what the log holds now. Else as `session`."""

        def question(here: str | None, left_s: float) -> UnsettledQuestion:
            return UnsettledQuestion(workspace_id, session_id, limit, here, left_s, subject_id)

        return await self._ask_of(session_id, "unsettled", question, _unsettled_page, position, wait_s)

    async def claimable(
        self, workspace_id: str, lanes: Sequence[str], *,
        subject_id: str | None = None, limit: int = 10, start: LanePlace | None = None, wait_ms: int = 0, wait_s: float = 5.0,
    ) -> tuple[RunRow, ...]:  # fmt: skip
        """Runs of the lanes that may be claimed, oldest first, from `start` on, of all partitions; waits up to `wait_ms` for a first
        one, none is ().

        An owner that does not answer keeps nobody from what others have. Another worker may be faster: the authority decides.
        """
        asked = tuple(lanes)

        async def look(follow_s: float) -> tuple[RunRow, ...]:
            until_s = time.monotonic() + follow_s

            def question(partitions: tuple[int, ...], left_s: float) -> ClaimableQuestion:
                more_s = max(0.0, until_s - time.monotonic())
                return ClaimableQuestion(workspace_id, subject_id, asked, partitions, limit, more_s, min(left_s, wait_s), start)

            groups = await self._groups()
            return await _first_of([self._ask_group(group, "claimable", question, _runs, until_s + wait_s, _first_of) for group in groups])

        found = await look(0.0)
        if not found and wait_ms > 0:
            found = await look(wait_ms / 1000)
        return tuple(sorted(found, key=lane_place)[:limit])

    async def claimed(self, workspace_id: str, claim_digest: str, *, subject_id: str | None = None, wait_s: float = 5.0) -> RunRow | None:
        """The Run whose live attempt has this digest, as of what the log holds now; of several, the one that got it first.

        Every owner must answer: a grant that is not found would be followed by another one.
        """
        deadline_s = time.monotonic() + wait_s

        def question(partitions: tuple[int, ...], left_s: float) -> ClaimedQuestion:
            return ClaimedQuestion(workspace_id, subject_id, claim_digest, partitions, left_s)

        groups = await self._groups()
        found = await _all_of([self._ask_group(group, "claimed", question, _runs, deadline_s, _all_of) for group in groups])
        return min(found, key=lambda row: (row.moved_at, row.run_id), default=None)


async def _all_of(questions: Sequence[Coroutine[None, None, tuple[RunRow, ...]]]) -> tuple[RunRow, ...]:
    return tuple([row for rows in await all_of(questions) for row in rows])


async def _first_of(questions: Sequence[Coroutine[None, None, tuple[RunRow, ...]]]) -> tuple[RunRow, ...]:
    """What some have, as soon as one has something, and what others answer within a moment. Raises where none has anything and one
    failed."""
    asked = [asyncio.create_task(question) for question in questions]
    pending = set(asked)
    found: list[RunRow] = []
    failure: StreamsError | None = None
    try:
        while pending:
            done, pending = await asyncio.wait(pending, timeout=_OTHERS_S if found else None, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                try:
                    found += task.result()
                except StreamsError as error:
                    failure = error
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if failure is not None and not found:
        raise failure
    return tuple(found)


def _place(row: SessionRow) -> ListingCursor:
    return ListingCursor(row.created_at, row.session_id)
