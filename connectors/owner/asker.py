"""Asks the owner of a partition, whoever it is at the moment: what asks projectors and what asks graph owners is built on it.

- Who owns what, a consumer group says; it is asked again when an owner is not there or says 421.
- A question goes on being asked until its budget is used up; then the caller hears why, and when to come again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from connectors.owner.messages import PREFIX, AppliedQuestion, Refusal, refused
from connectors.owner.token import HEADER
from connectors.owner.wire import Broken, Connections
from streams.errors import BrokerUnavailable, NotOwner, StreamsError
from streams.log.partitioner import partition_of
from streams.log.position import Position

_ANSWER_MARGIN_S: Final = 1.0
"""An owner that waits to the end of the budget still gets its refusal through."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25

Answer = TypeVar("Answer")

_log = structlog.get_logger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_refusal = msgspec.msgpack.Decoder(Refusal).decode
_nothing = msgspec.msgpack.Decoder(None).decode


async def all_of(questions: Sequence[Coroutine[None, None, Answer]]) -> list[Answer]:
    """Their answers, asked at once. Raises what the first that failed did, and gives up the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class FindsOwners(Protocol):
    """`streams.log.owners.GroupOwners`."""

    def owners(self, timeout_s: float = ...) -> dict[int, str]: ...


class Asker:
    """Belongs to one event loop. Everything raises `Retriable`s, `NotFound` and `Invalid`; derived classes bring the questions."""

    def __init__(self, partitions: int, token: str, finder: FindsOwners) -> None:
        self._partitions = partitions
        self._finder = finder
        self._head = b"%s: %s\r\ncontent-type: application/msgpack\r\n" % (HEADER, token.encode())
        self._connections = Connections()
        self._owners: dict[int, str] = {}
        self._looked_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    def close(self) -> None:
        self._connections.close()

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

    async def _ask_of(
        self,
        session_id: str,
        path: str,
        question: Callable[[str | None, float], Struct],
        decode: Callable[[bytes], Answer],
        position: Position | None,
        wait_s: float,
        more_s: float = 0.0,
    ) -> Answer:
        """Asks the owner of a session, within `wait_s`. `question` is made of the position that the owner is to wait for, as text, and of
        the seconds that are left. `more_s`: what an answer may take on top."""
        deadline_s = time.monotonic() + wait_s
        partition = partition_of(session_id.encode(), self._partitions)
        here = await self._passed_elsewhere(position, partition, deadline_s)
        return await self._ask(partition, path, lambda left_s: question(here, left_s), decode, deadline_s, more_s)

    async def _groups(self) -> list[tuple[int, ...]]:
        """All partitions, those together that one process is thought to own; alone, those of which nobody knows."""
        groups: dict[str, list[int]] = {}
        alone = []
        for partition in range(self._partitions):
            try:
                groups.setdefault(await self._owner(partition, float("-inf")), []).append(partition)
            except NotOwner:
                alone.append((partition,))
            except BrokerUnavailable:
                # Nobody says who owns what: no use in asking once more for each of the others.
                alone += [(other,) for other in range(partition, self._partitions)]
                break
        return [tuple(group) for group in groups.values()] + alone

    async def _ask_group(
        self,
        group: tuple[int, ...],
        path: str,
        question: Callable[[tuple[int, ...], float], Struct],
        decode: Callable[[bytes], Answer],
        deadline_s: float,
        together: Callable[[Sequence[Coroutine[None, None, Answer]]], Awaitable[Answer]],
    ) -> Answer:
        """One question about partitions of one owner; where it turns out that it is not the owner of all of them, one about each, of
        which `together` makes one answer."""
        try:
            address = await self._owner(group[0], float("-inf"))
            left_s = max(0.0, deadline_s - time.monotonic())
            return await self._answer(address, path, _encode(question(group, left_s)), decode, left_s + _ANSWER_MARGIN_S)
        except (NotOwner, BrokerUnavailable) as error:
            _log.debug("owner_asked_again", partitions=group, reason=error.detail)

        async def single(partition: int) -> Answer:
            return await self._ask(partition, path, lambda left_s: question((partition,), left_s), decode, deadline_s)

        return await together([single(partition) for partition in group])

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
