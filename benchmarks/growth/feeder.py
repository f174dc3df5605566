"""`python -m benchmarks.growth.feeder FEED`: commands for one long run, never more than a bound ahead of the authority.

Creates the sessions, appends to them at random, and closes with one append to each, so that the last event of each session
tells how many it has. Ends once everything is decided. Settings come from the environment.
"""

import sys
import time
from itertools import chain
from typing import Final

import msgspec
from msgspec import Struct

from benchmarks import traffic
from benchmarks.bench import Progress
from streams.log.topics import Topics
from streams.settings import Settings

_SEND_EVERY: Final = 1000
_PAUSE_S: Final = 0.05


class Feed(Struct, frozen=True, kw_only=True):
    """How much is fed; `ahead`: how many commands may wait for the authority."""

    sessions: int
    appends: int
    """Commands between the creating and the closing ones."""
    events_a_command: int
    event_bytes: int
    ahead: int

    @property
    def commands(self) -> int:
        return 2 * self.sessions + self.appends

    @property
    def events(self) -> int:
        return self.events_after(self.commands)

    def events_after(self, commands: int) -> int:
        """How many events so many commands became, the first ones first."""
        appends = min(max(0, commands - self.sessions), self.appends)
        return commands + appends * (self.events_a_command - 1)


def feed(settings: Settings, what: Feed) -> None:
    """Returns once the authority has decided everything. Raises `RuntimeError` where a record was not delivered."""
    topic = Topics(settings.topic_prefix).commands
    sender = traffic.sender(settings)
    batches = traffic.Batches(sender, topic, settings.partitions)
    progress = Progress(settings, "authority", topic)
    sessions = traffic.new_sessions(what.sessions)
    commands = chain(
        traffic.sessions_of(sessions, traffic.creating()),
        traffic.commands_of(sessions, traffic.appending(what.events_a_command, what.event_bytes), what.appends),
        traffic.sessions_of(sessions, traffic.appending(1, what.event_bytes)),
    )
    decided = 0
    for sent, (key, value) in enumerate(commands, start=1):
        batches.add(key, value)
        if sent % _SEND_EVERY == 0:
            batches.send()
            while sent - decided > what.ahead:
                time.sleep(_PAUSE_S)
                decided = progress.committed()
    batches.flush()
    while decided < what.commands:
        time.sleep(_PAUSE_S)
        decided = progress.committed()
    progress.close()


if __name__ == "__main__":
    feed(Settings.from_environment(), msgspec.json.decode(sys.argv[1], type=Feed))
