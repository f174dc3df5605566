"""Places in a worker's life where a test or a demonstration has it killed, passed in as a value (`12:sent`, `ready`)."""

import os
import signal
from enum import StrEnum
from typing import Protocol

from streams.errors import Misconfigured


class Phase(StrEnum):
    """In the order in which a worker meets them. Up to READY they belong to its beginning, and to no step."""

    CLAIMED = "claimed"
    RESTORED = "restored"
    UPLOADED = "uploaded"
    """The bytes of a snapshot are up, and no checkpoint tells of them."""
    CHECKPOINTED = "checkpointed"
    READY = "ready"
    BEGUN = "begun"
    OPENED = "opened"
    ANSWERED = "answered"
    ASKED = "asked"
    DECIDED = "decided"
    DISPATCHED = "dispatched"
    """The effect is told of, and its request has not left."""
    SENT = "sent"
    """The provider has answered, and nobody knows of it."""
    SETTLED = "settled"
    TOLD = "told"
    """The message is accepted, and its files are not written."""
    WRITTEN = "written"
    COMPLETED = "completed"


class Crash(Protocol):
    def reached(self, phase: Phase, step: int | None = None) -> None: ...


class NoCrash:
    def reached(self, phase: Phase, step: int | None = None) -> None:
        """Goes on."""


class DieAt:
    """SIGKILL to this process where a phase is reached; without a step, where it is reached first."""

    def __init__(self, phase: Phase, step: int | None = None) -> None:
        self.phase, self.step = phase, step

    @classmethod
    def parse(cls, text: str) -> "DieAt":
        """`[step:]phase`. Raises `Misconfigured`."""
        step, _, phase = text.rpartition(":")
        try:
            return cls(Phase(phase), int(step) if step else None)
        except ValueError as error:
            raise Misconfigured(f"crash point {text!r}: one of {', '.join(Phase)}, behind the number of a step and a colon") from error

    def reached(self, phase: Phase, step: int | None = None) -> None:
        if phase is self.phase and self.step in (None, step):
            os.kill(os.getpid(), signal.SIGKILL)
