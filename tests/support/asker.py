"""An asking process as the gateway is one, for tests that go straight to the command topic: asks again until it is told."""

import threading
import time
from collections.abc import Sequence

import msgspec

from streams.clock import now_us
from streams.errors import BrokerUnavailable, Overloaded
from streams.log.record import encode_command
from streams.log.requests import CommandLog, OutcomeFollower
from streams.session.commands import Command
from streams.session.outcomes import Outcome
from streams.settings import Settings
from tests.support.commands import new_id


class Asker:
    """Thread-safe. `ask` sends a command and waits; a repeat goes out under the same command id."""

    def __init__(self, settings: Settings) -> None:
        self._reply_to = f"test/{new_id('key')}"
        self._lock = threading.Lock()
        self._correlation = 0
        self._answers: dict[int, Outcome] = {}
        self._arrived = threading.Condition()
        self._commands = CommandLog(settings, "test")
        self._outcomes = OutcomeFollower(settings, "test", self._reply_to, self._arrive)

    def ask(self, command: Command, *, timeout_s: float = 60, repeat_after_s: float = 3) -> Outcome | None:
        """None where nobody answered within the time-out: the outcome is unknown."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            correlation = self.send(command)
            outcome = self.wait(correlation, min(repeat_after_s, deadline - time.monotonic()))
            if outcome is not None:
                return outcome
        return None

    def send(self, command: Command, *, not_after_s: float = 60) -> int:
        with self._lock:
            self._correlation += 1
            correlation = self._correlation
        addressed = msgspec.structs.replace(
            command, reply_to=self._reply_to, correlation=correlation, not_after=max(command.not_after, now_us() + int(not_after_s * 1e6))
        )
        value = encode_command(addressed)
        while True:
            try:
                self._commands.send(value, command.session_id)
                return correlation
            except (Overloaded, BrokerUnavailable):
                time.sleep(0.05)

    def send_as_it_is(self, command: Command) -> int:
        """With the command's own `not_after`."""
        with self._lock:
            self._correlation += 1
            correlation = self._correlation
        addressed = msgspec.structs.replace(command, reply_to=self._reply_to, correlation=correlation)
        self._commands.send(encode_command(addressed), command.session_id)
        return correlation

    def wait(self, correlation: int, timeout_s: float) -> Outcome | None:
        with self._arrived:
            self._arrived.wait_for(lambda: correlation in self._answers, timeout_s)
            return self._answers.get(correlation)

    def close(self) -> None:
        self._commands.close()
        self._outcomes.close()

    def _arrive(self, outcomes: Sequence[Outcome]) -> None:
        with self._arrived:
            self._answers.update({outcome.correlation: outcome for outcome in outcomes})
            self._arrived.notify_all()
