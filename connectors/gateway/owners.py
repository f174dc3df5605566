"""Reads by way of the owners: each session's row and events lie with the process that owns their partition.

- Who owns what, the projectors' consumer group says; it is asked again when an owner is not there or says 421.
- A question goes on being asked until its budget is used up; then the caller hears why, and when to come again.
- A listing asks every owner for its own partitions and merges; each answers for its part, or the listing fails whole.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from connectors.gateway.wire import Broken, Connections
from connectors.owner.messages import PREFIX, AppliedQuestion, EventsQuestion, Refusal, SessionQuestion, SessionsQuestion, refused
from connectors.owner.token import HEADER
from streams.errors import BrokerUnavailable, Invalid, NotOwner, StreamsError
from streams.log.owners import GroupOwners
from streams.log.partitioner import partition_of
from streams.log.position import Position
from streams.log.topics import Topics
from streams.projections.projector import GROUP
from streams.projections.sessions import SessionRow
from streams.query.pages import EventsPage, ListingCursor, SessionsPage
from streams.settings import Settings

_ANSWER_MARGIN_S: Final = 1.0
"""An owner that waits to the end of the budget still gets its refusal through."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25

Answer = TypeVar("Answer")

_log = structlog.get_logger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_refusal = msgspec.msgpack.Decoder(Refusal).decode
_row = msgspec.msgpack.Decoder(SessionRow).decode
_events_page = msgspec.msgpack.Decoder(EventsPage).decode
_sessions_page = msgspec.msgpack.Decoder(SessionsPage).decode
_nothing = msgspec.msgpack.Decoder(None).decode


class FindsOwners(Protocol):
    """`streams.log.owners.GroupOwners`."""

    def owners(self, timeout_s: float = ...) -> dict[int, str]: ...


class OwnerClient:
    """Belongs to one event loop. All reads raise `Retriable`s, `NotFound` and `Invalid`."""

    def __init__(self, settings: Settings, token: str, finder: FindsOwners | None = None) -> None:
        self._partitions = settings.partitions
        self._finder = finder or GroupOwners(settings, GROUP, Topics(settings.topic_prefix).events)
        self._head = b"%s: %s\r\ncontent-type: application/msgpack\r\n" % (HEADER, token.encode())
        self._connections = Connections()
        self._owners: dict[int, str] = {}
        self._looked_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def session(self, workspace_id: str, session_id: str, *, position: Position | None = None, wait_s: float = 5.0) -> SessionRow:
        deadline_s = time.monotonic() + wait_s
        partition = self._partition(session_id)
        here = await self._passed_elsewhere(position, partition, deadline_s)

        def question(left_s: float) -> SessionQuestion:
            return SessionQuestion(workspace_id, session_id, here, left_s)

        return await self._ask(partition, "session", question, _row, deadline_s)

    async def events(
        self,
        workspace_id: str,
        session_id: str,
        *,
        after: int,
        limit: int,
        max_bytes: int,
        wait_ms: int = 0,
        position: Position | None = None,
        wait_s: float = 5.0,
    ) -> EventsPage:
        """Waits up to `wait_ms` for a first event above `after`; an empty page says that there was none."""
        deadline_s = time.monotonic() + wait_s
        partition = self._partition(session_id)
        here = await self._passed_elsewhere(position, partition, deadline_s)
        follow_s = wait_ms / 1000

        def question(left_s: float) -> EventsQuestion:
            return EventsQuestion(workspace_id, session_id, after, limit, max_bytes, follow_s, here, left_s)

        return await self._ask(partition, "events", question, _events_page, deadline_s, more_s=follow_s)

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
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part(partition)) for partition in range(self._partitions)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        pages = [task.result() for task in tasks]
        rows = sorted((row for page in pages for row in page.sessions), key=_place, reverse=True)
        more = len(rows) > limit or any(page.cursor for page in pages)
        return SessionsPage(tuple(rows[:limit]), str(_place(rows[limit - 1])) if more and len(rows) >= limit else None)

    def close(self) -> None:
        self._connections.close()

    def _partition(self, session_id: str) -> int:
        return partition_of(session_id.encode(), self._partitions)

    async def _passed_elsewhere(self, position: Position | None, partition: int, deadline_s: float) -> str | None:
        """The position as the owner of `partition` can wait for it; one of another partition is waited for there first."""
        if position is None:
            return None
        text = str(position)
        if position.partition == partition or position.partition >= self._partitions:
            return text
        await self._ask(position.partition, "applied", lambda left_s: AppliedQuestion(text, left_s), _nothing, deadline_s)
        return None

    async def _ask(
        self,
        partition: int,
        path: str,
        question: Callable[[float], Struct],
        decode: Callable[[bytes], Answer],
        deadline_s: float,
        more_s: float = 0.0,
    ) -> Answer:
        """Asks the owner, whoever it turns out to be, until the deadline. `more_s`: what an answer may take on top."""
        pause_s = _FIRST_PAUSE_S
        failed_s = float("-inf")
        while True:
            try:
                address = await self._owner(partition, failed_s)
                left_s = max(0.0, deadline_s - time.monotonic())
                return await self._answer(address, path, _encode(question(left_s)), decode, left_s + more_s + _ANSWER_MARGIN_S)
            except (NotOwner, BrokerUnavailable) as error:
                failed_s = time.monotonic()
                if failed_s + pause_s >= deadline_s:
                    raise
                _log.debug("owner_asked_again", partition=partition, reason=error.detail)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _answer(self, address: str, path: str, body: bytes, decode: Callable[[bytes], Answer], timeout_s: float) -> Answer:
        try:
            status, answer = await self._connections.post(address, PREFIX + path, self._head, body, timeout_s)
        except Broken as error:
            self._connections.drop(address)
            raise NotOwner(f"owner {error}", retry_after_s=1) from error
        try:
            if status == 200:
                return decode(answer)
            said = _refusal(answer)
        except msgspec.MsgspecError as error:
            raise StreamsError(f"owner {address}: its answer (status {status}) cannot be read") from error
        raise refused(status, said)

    async def _owner(self, partition: int, failed_s: float) -> str:
        """Its address, by a look begun after `failed_s`. Raises `NotOwner`, `BrokerUnavailable`."""
        address = self._owners.get(partition)
        if address is None or self._looked_s < failed_s:
            after_s = time.monotonic() if address is None else failed_s
            while self._looked_s < after_s:
                # Those who want to know at once share one look.
                if self._looking is None:
                    self._looking = asyncio.create_task(self._look())
                await asyncio.shield(self._looking)
            address = self._owners.get(partition)
        if address is None:
            raise NotOwner(f"partition {partition} has no owner", retry_after_s=1)
        return address

    async def _look(self) -> None:
        began_s = time.monotonic()
        try:
            self._owners = await asyncio.to_thread(self._finder.owners)
            self._looked_s = began_s
        finally:
            self._looking = None


def _place(row: SessionRow) -> ListingCursor:
    return ListingCursor(row.created_at, row.session_id)
