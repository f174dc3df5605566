"""Sends commands and waits for their outcomes on an event loop. Bounded: what does not fit is refused, never queued.

One correlation number a command, within the epoch that `reply_to` names, so that a restarted process never takes an
outcome that was meant for its predecessor. The outcome thread enters the loop once for each batch drained.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec import structs

from connectors.edge.compose import Composed
from streams.errors import BrokerUnavailable, Invalid, OutcomeUnknown, Overloaded, StreamsError
from streams.log.client import MAX_RECORD_BYTES
from streams.log.record import encode_command
from streams.session.outcomes import Outcome

COMMANDS_MAX: Final = 2048
"""Under way at once, where nobody sets another bound."""
BYTES_MAX: Final = 64 * 1024 * 1024
_LARGEST_RECORD: Final = MAX_RECORD_BYTES - 64 * 1024
"""Below the topics' `max.message.bytes`, with room for the record's own frame."""


class Commands(Protocol):
    """What `streams.log.requests.CommandLog` offers. `on_done` comes from another thread, and not for every command."""

    def send(self, value: bytes, session_id: str, on_done: Callable[[StreamsError | None], None] | None = None) -> None: ...


class Answer(Protocol):
    """An outcome, of whatever was asked."""

    @property
    def correlation(self) -> int: ...


A = TypeVar("A", bound=Answer)


class _Waiting(NamedTuple, Generic[A]):
    """`until` is of the monotonic clock: the loop's own stands still while it works."""

    future: "asyncio.Future[A]"
    until: float
    command_id: str


class UnderWay(Generic[A]):
    """What has been sent and not answered. Belongs to one event loop. `settle_from_thread` and delivery errors may come from any thread."""

    def __init__(
        self, commands: Commands, reply_to: str, *, timeout_s: float, commands_max: int = COMMANDS_MAX, bytes_max: int = BYTES_MAX
    ) -> None:
        """`timeout_s` from sending to giving up; `commands_max` and `bytes_max` bound what is under way."""
        self.reply_to = reply_to
        self._commands = commands
        self._timeout_s = timeout_s
        self._commands_max, self._bytes_max = commands_max, bytes_max
        self._loop = asyncio.get_running_loop()
        self._correlations = itertools.count(1)
        self._waiting: dict[int, _Waiting[A]] = {}
        """In the order of sending, so that the first is the next to be given up."""
        self._looks: asyncio.TimerHandle | None = None
        self.on_through: Callable[[float], None] = lambda seconds: None
        """Told of each outcome how many seconds after its command was sent it came, however long the loop takes to notice."""
        self._bytes = 0

    @property
    def under_way(self) -> int:
        return len(self._waiting)

    def next_correlation(self) -> int:
        return next(self._correlations)

    async def send(self, correlation: int, value: bytes, key: str, command_id: str) -> A:
        """The outcome of the command `value`, in which the correlation stands; `key` names its partition. Raises as `Submitter`."""
        if len(value) > _LARGEST_RECORD:
            raise Invalid("the command is larger than 8 MiB of sealed content and its structure", code="request.too_large")
        if len(self._waiting) >= self._commands_max or self._bytes + len(value) > self._bytes_max:
            raise Overloaded("too many commands are under way")
        future: asyncio.Future[A] = self._loop.create_future()
        self._waiting[correlation] = _Waiting(future, time.monotonic() + self._timeout_s, command_id)
        self._bytes += len(value)
        if self._looks is None:
            self._looks = self._loop.call_later(self._timeout_s, self._give_up)
        try:
            self._commands.send(value, key, partial(self._delivered_from_thread, correlation))
            return await future
        finally:
            self._bytes -= len(value)
            del self._waiting[correlation]

    def settle_from_thread(self, outcomes: Sequence[A]) -> None:
        self._enter(self._settle, outcomes, time.monotonic())

    def _settle(self, outcomes: Sequence[A], came: float) -> None:
        for outcome in outcomes:
            waiting = self._waiting.get(outcome.correlation)
            if waiting is not None and not waiting.future.done():
                waiting.future.set_result(outcome)
                self.on_through(came - (waiting.until - self._timeout_s))

    def _delivered_from_thread(self, correlation: int, error: StreamsError | None) -> None:
        if error is not None:
            self._enter(self._fail, correlation, error)

    def _fail(self, correlation: int, error: StreamsError) -> None:
        waiting = self._waiting.get(correlation)
        if waiting is not None and not waiting.future.done():
            # A broker that did not acknowledge may still have stored it.
            unknown = OutcomeUnknown(error.detail) if isinstance(error, BrokerUnavailable) else error
            waiting.future.set_exception(unknown)

    def _give_up(self) -> None:
        """One clock for all: they wait equally long, in order."""
        self._looks = None
        now = time.monotonic()
        for future, until, command_id in self._waiting.values():
            if until > now:
                self._looks = self._loop.call_later(until - now, self._give_up)
                break
            if not future.done():
                future.set_exception(OutcomeUnknown(f"no outcome of {command_id} in {self._timeout_s:g} s"))

    def _enter(self, callback: Callable[..., None], *arguments: object) -> None:
        # Threads may outlive the loop by a moment; then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


class Submitter(UnderWay[Outcome]):
    """Of what sessions are asked."""

    async def submit(self, composed: Composed) -> Outcome:
        """The outcome, rejections included.

        Raises `Overloaded` (nothing was sent), `OutcomeUnknown` (it may have taken effect: send the same again under the
        same key), and `Invalid` (request.too_large).
        """
        correlation = self.next_correlation()
        command = structs.replace(composed.command, reply_to=self.reply_to, correlation=correlation)
        return await self.send(correlation, encode_command(command, composed.bodies), command.session_id, command.command_id)


class HandedOn(Generic[A]):
    """Hands outcomes from the follower's thread to who waits for them, once there is one: the follower is there before it."""

    def __init__(self) -> None:
        self.submitter: UnderWay[A] | None = None

    def __call__(self, outcomes: Sequence[A]) -> None:
        if self.submitter is not None:
            self.submitter.settle_from_thread(outcomes)


OutcomesHandedOn = HandedOn[Outcome]
