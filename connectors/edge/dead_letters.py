"""What a source could not read, on its way to the dead letters: sealed, sent, and waited for until the broker has it.

Nothing is dropped silently: whoever is told that a letter is stored need not keep the record. Used by the gateway's
route and by the importer that does without a gateway.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from streams.custody.dead_letters import Address, Letter, dead_letter
from streams.custody.sealing import Sealer, content_expiry_day
from streams.errors import BrokerUnavailable, Retriable, StreamsError
from streams.log.topics import DEAD_LETTER_DAYS
from streams.session.dead_letters import DeadLetter
from streams.session.words import ZDR


class DeadLetters(Protocol):
    """What `streams.log.requests.CommandLog` offers. `on_done` comes from another thread."""

    def send_dead_letter(self, letter: DeadLetter, key: str, on_done: Callable[[StreamsError | None], None]) -> None: ...


class Unread(Struct, frozen=True, kw_only=True):
    """A record as its source met it. `place` (a file and line) and `record` (its bytes, or their start) are sealed; under zero
    data retention (`policy_mode` of the session) neither is kept."""

    workspace_id: str
    session_id: str
    policy_mode: str
    source_kind: str
    source_index: int | None
    reason: str
    place: str
    record: bytes


def seal_unread(sealer: Sealer, unread: Unread, now: int) -> DeadLetter:
    """The letter, its secret durable. `now` in microseconds. Blocks on the keyring. Raises `KeyringUnavailable`."""
    day = content_expiry_day(now, DEAD_LETTER_DAYS)
    omitted = unread.policy_mode == ZDR
    return dead_letter(
        sealer,
        Address(day, unread.source_kind, None, unread.source_index, unread.workspace_id),
        Letter(key=None, value=b"" if omitted else unread.record, place="" if omitted else unread.place),
        session_id=unread.session_id,
        reason=unread.reason,
        detail="met by a source",
        recorded_at=now,
    )


async def deliver(letters: DeadLetters, letter: DeadLetter, key: str, timeout_s: float) -> None:
    """Sends a letter and returns once it is stored: at least once, since the topic tells no repeat.

    Raises `BrokerUnavailable` and other `Retriable`s where it is not known to be.
    """
    loop = asyncio.get_running_loop()
    stored: asyncio.Future[None] = loop.create_future()

    def settle(error: StreamsError | None) -> None:
        if stored.done():
            return
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error if isinstance(error, Retriable) else BrokerUnavailable(error.detail))

    def settle_from_thread(error: StreamsError | None) -> None:
        # The delivery thread may outlive the loop by a moment; then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, error)

    letters.send_dead_letter(letter, key, settle_from_thread)
    try:
        await asyncio.wait_for(stored, timeout_s)
    except TimeoutError:
        raise BrokerUnavailable("the dead letter was not stored in time") from None
