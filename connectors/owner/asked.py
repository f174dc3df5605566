"""What every question to an owner goes through: decoding, bounds, and leaving off where nobody waits any more."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Final, TypeVar

import msgspec

from streams.errors import Invalid
from streams.log.position import Position

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Question = TypeVar("Question")
Answer = TypeVar("Answer")

LIMIT_MAX: Final = 5000
_WAIT_S_MAX: Final = 60.0


def decoded(body: bytes, decoder: "msgspec.msgpack.Decoder[Question]") -> Question:
    """Raises `Invalid` (request.malformed)."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Invalid(f"question: {error}", code="request.malformed") from error


def position(text: str | None) -> Position | None:
    """Raises `Invalid` (request.malformed)."""
    return None if text is None else Position.parse(text)


def bounded(name: str, value: int, least: int, most: int) -> int:
    """Raises `Invalid` (request.malformed)."""
    if not least <= value <= most:
        raise Invalid(f"{name}: {least} to {most}", code="request.malformed")
    return value


def waited(seconds: float) -> float:
    """Within the longest wait that is offered."""
    return min(max(seconds, 0.0), _WAIT_S_MAX)


async def while_asked(answer: Coroutine[None, None, Answer], receive: Receive) -> Answer | None:
    """Gives up once nobody waits for the answer any more, so that followers who left do not count as waiting."""
    answering, leaving = asyncio.create_task(answer), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else None
    finally:
        answering.cancel()
        leaving.cancel()
