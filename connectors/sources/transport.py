"""What an import needs from the other side, whether it is reached over REST or straight over the command topic.

Calls raise `streams.errors`: `Retriable` means the same call again with the same key, everything else means that the
request will not do. What a session refuses comes back as a `Rejected` value.
"""

from typing import Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from streams.session.outcomes import Rejected


class Cursor(Struct, frozen=True):
    """How far a source is in the log: the record with the highest index, and its digest."""

    kind: str
    index: int
    digest: str


class SessionRow(Struct, frozen=True, kw_only=True):
    """A session as it stands. `source` is None where nothing was imported yet."""

    session_id: str
    sequence: int
    source: Cursor | None = None


class Appended(Struct, frozen=True, kw_only=True):
    """An accepted batch. `event_ids` are those of the bodies sent, in their order; `last_sequence` is the session's."""

    last_sequence: int
    event_ids: tuple[str, ...]


class LogLink(Struct, frozen=True):
    relation: str
    id: str


class LogEvent(Struct, frozen=True, kw_only=True):
    """An event read back, as the route for events shows it; `content` is its JSON text as it came."""

    event_id: str
    sequence: int
    type: str
    thread_id: str | None = None
    turn_id: str | None = None
    run_id: str | None = None
    links: tuple[LogLink, ...] = ()
    attributes: dict[str, str | int | float | bool | None] | None = None
    content: Raw | UnsetType = UNSET

    def attribute(self, name: str) -> str | int | float | bool | None:
        return None if self.attributes is None else self.attributes.get(name)

    def linked(self, relation: str) -> tuple[str, ...]:
        return tuple(link.id for link in self.links if link.relation == relation)


class EventPage(Struct, frozen=True):
    """Events in order; `next_after_sequence` is None at the end of the log."""

    events: tuple[LogEvent, ...] = ()
    next_after_sequence: int | None = None


class SessionBody(Struct, omit_defaults=True):
    """The request that opens a session; over either transport the same bytes, so that both make the same command."""

    origin: str
    metadata: Raw
    subject: str | None = None


class DeadLetterBody(Struct, frozen=True, kw_only=True):
    """A line that could not be read. `place` (file and line) and `record` (its bytes, or their start) are sealed."""

    source_kind: str
    reason: str
    place: str
    record: bytes
    source_index: int


class Transport(Protocol):
    """Keys are Idempotency-Keys of 1..255 characters."""

    async def open_session(self, key: str, *, subject: str | None, metadata: Raw) -> SessionRow:
        """The session of this key, made (`origin: imported`) where it is not there yet."""
        ...

    async def append(self, session_id: str, key: str, body: bytes, *, expected_sequence: int) -> Appended | Rejected:
        """`body` is NDJSON, one command: all of it or nothing."""
        ...

    async def events(self, session_id: str, *, after_sequence: int, limit: int) -> EventPage: ...

    async def dead_letter(self, session_id: str, key: str, letter: DeadLetterBody) -> None: ...
