"""What was asked, what was answered, what the log and its readers hold: the material of the checkers.

An operation ends three ways, as in Jepsen: `ok`, `fail` (told so), `unknown` (nobody said, so both are possible).
"""

from dataclasses import dataclass, field
from enum import StrEnum

from streams.session.events import Event


class End(StrEnum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Append:
    """One command that appends `markers` (unique contents), and how it ended."""

    command_id: str
    session_id: str
    markers: tuple[bytes, ...]
    end: End
    first_sequence: int = 0
    last_sequence: int = 0


@dataclass(frozen=True)
class Logged:
    """An event at its place in the log."""

    partition: int
    offset: int
    event: Event
    marker: bytes


@dataclass
class History:
    """`log`: read committed, in partition order, once everything is quiet. `polls`: what each live consumer saw, in order."""

    appends: list[Append] = field(default_factory=list)
    log: list[Logged] = field(default_factory=list)
    polls: dict[str, list[Logged]] = field(default_factory=dict)

    def describe(self) -> str:
        """For a human: the log by session, and what is known of each command."""
        lines = [
            f"{append.command_id} {append.session_id} {append.end} {append.first_sequence}..{append.last_sequence}"
            for append in self.appends
        ]
        for entry in sorted(self.log, key=lambda item: (item.event.session_id, item.event.sequence, item.offset)):
            event = entry.event
            lines.append(f"{event.session_id} {event.sequence} {event.type} {event.command_id} at {entry.partition}:{entry.offset}")
        return "\n".join(lines)
