"""Event bodies: what a mapping hands to a transport, as the append route takes it.

Rules upheld here:

- a record's text is spliced into the body as it came, never serialised again;
- an outside id (uuid, tool id, agent id) never stands in clear: `outside_id` hashes it with the session's id. No key is
  needed for that, since such ids are random-looking and not personal; names of people never take this way;
- a link to the event of another record is a `Ref` until the batch is encoded: `$n` where event n of the same batch is
  meant (the edge puts its id there), the id that the log gave where it was sent before.

A group is what one source record leads to. Batches are cut between groups only, so a cursor at a record means that
everything derived from it is in the log as well.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from streams.session.vocabulary import NAME

MAX_BATCH_EVENTS = 500
MAX_BATCH_BYTES = 4 * 1024 * 1024
_ENVELOPE_BYTES = 700
"""About what a body weighs without its content."""

Scalar = str | int | float | bool


class Ref(Struct, frozen=True):
    """The content-bearing event of the record with this index in the same source."""

    index: int


class EventBody(Struct, frozen=True, kw_only=True):
    """One event. `content` is JSON text; `occurred_at` RFC 3339; attributes hold no nulls."""

    type: str
    thread_id: str | None = None
    turn_id: str | None = None
    run_id: str | None = None
    attempt_generation: int | None = None
    occurred_at: str | None = None
    links: tuple[tuple[str, str | Ref], ...] = ()
    attributes: Mapping[str, Scalar] = {}
    content: bytes | None = None


class Group(Struct, frozen=True):
    """The events of one source record, in order; `content_at` is the place of the one that carries it."""

    index: int
    digest: str
    bodies: tuple[EventBody, ...]
    content_at: int

    @property
    def weight(self) -> int:
        """Bytes, roughly."""
        return sum(_ENVELOPE_BYTES + len(body.content or b"") for body in self.bodies)


class Place(Struct, frozen=True, kw_only=True):
    """Where the events of a record stand: fields that they all share."""

    thread_id: str | None = None
    turn_id: str | None = None
    run_id: str | None = None
    attempt_generation: int | None = None
    occurred_at: str | None = None

    def event(
        self,
        event_type: str,
        attributes: Mapping[str, Scalar | None] | None = None,
        *,
        links: Sequence[tuple[str, str | Ref]] = (),
        content: bytes | None = None,
    ) -> EventBody:
        return EventBody(
            type=event_type,
            thread_id=self.thread_id,
            turn_id=self.turn_id,
            run_id=self.run_id,
            attempt_generation=self.attempt_generation,
            occurred_at=self.occurred_at,
            links=tuple(links),
            attributes={name: value for name, value in (attributes or {}).items() if value is not None},
            content=content,
        )


def outside_id(prefix: str, session_id: str, *parts: str) -> str:
    """An identifier of ours for what a source calls `parts`: SHA-256 over length-prefixed fields, first 16 bytes."""
    message = b"".join(
        len(part).to_bytes(4, "big") + part for part in (text.encode("utf-8", "surrogatepass") for text in (prefix, session_id, *parts))
    )
    return f"{prefix}_{hashlib.sha256(message).digest()[:16].hex()}"


def software_name(value: object) -> str | None:
    """A tool, model or version name as it may stand in clear; anything that does not look like one stays content."""
    return value if isinstance(value, str) and NAME(value) else None


class Batch:
    """Groups that go as one command."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._events = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.groups)

    @property
    def event_count(self) -> int:
        return self._events

    def fits(self, group: Group) -> bool:
        """Whether `group` may join. A group alone always may: it cannot be cut."""
        return not self.groups or (self._events + len(group.bodies) <= MAX_BATCH_EVENTS and self._bytes + group.weight <= MAX_BATCH_BYTES)

    def add(self, group: Group) -> None:
        self.groups.append(group)
        self._events += len(group.bodies)
        self._bytes += group.weight

    def content_places(self) -> dict[int, int]:
        """Record index -> place of its content-bearing event in this batch."""
        places, start = {}, 0
        for group in self.groups:
            places[group.index] = start + group.content_at
            start += len(group.bodies)
        return places

    def encode(self, event_ids: Mapping[int, str]) -> bytes:
        """NDJSON, a line an event.

        Args:
            event_ids: record index -> event id, of records sent before.
        """
        places = self.content_places()
        return b"".join(encode_body(body, places, event_ids) + b"\n" for group in self.groups for body in group.bodies)


def encode_body(body: EventBody, places: Mapping[int, int], event_ids: Mapping[int, str]) -> bytes:
    """One body as a JSON line, without the newline."""
    fields: dict[str, object] = {"type": body.type}
    for name in ("thread_id", "turn_id", "run_id", "attempt_generation", "occurred_at"):
        value = getattr(body, name)
        if value is not None:
            fields[name] = value
    if body.links:
        fields["links"] = [{"relation": relation, "id": _resolved(target, places, event_ids)} for relation, target in body.links]
    if body.attributes:
        fields["attributes"] = body.attributes
    head = msgspec.json.encode(fields)
    if body.content is None:
        return head
    # A raw newline in valid JSON is white space between tokens: a space means the same and keeps NDJSON whole.
    text = body.content.replace(b"\n", b" ").replace(b"\r", b" ")
    return head[:-1] + b',"content":' + text + b"}"


def _resolved(target: str | Ref, places: Mapping[int, int], event_ids: Mapping[int, str]) -> str:
    if isinstance(target, str):
        return target
    place = places.get(target.index)
    return event_ids[target.index] if place is None else f"${place}"
