"""Chunks on their way to somebody who asks for them: the one who has them is stopped at each, and can break off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final


class BrokenOff(Exception):
    """Told to the taker instead of a further chunk."""


_END: Final = object()


class Handoff:
    """An asynchronous iterator for the taker, `give`, `end` and `break_off` for the giver. One chunk lies between them."""

    def __init__(self) -> None:
        self._between: asyncio.Queue[object] = asyncio.Queue(1)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (item := await self._between.get()) is not _END:
            if not isinstance(item, bytes):
                raise BrokenOff
            yield item

    async def give(self, chunk: bytes, taker: "asyncio.Future[Any]") -> None:
        """Returns when there is room for it. A taker that has ended takes nothing more: its error, if any, is raised."""
        await self._put(chunk, taker)

    async def end(self, taker: "asyncio.Future[Any]") -> None:
        await self._put(_END, taker)

    def break_off(self) -> None:
        """The taker is told when it asks next; what was under way to it is dropped."""
        with suppress(asyncio.QueueEmpty):
            self._between.get_nowait()
        self._between.put_nowait(BrokenOff())

    async def _put(self, item: object, taker: "asyncio.Future[Any]") -> None:
        putting: asyncio.Future[Any] = asyncio.ensure_future(self._between.put(item))
        try:
            await asyncio.wait({putting, taker}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
        if taker.done():
            taker.result()


async def ended(future: "asyncio.Future[Any]") -> None:
    """Waits for its end, whatever that is, and however often the waiting one is cancelled meanwhile."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({future})
    if not future.cancelled():
        future.exception()
