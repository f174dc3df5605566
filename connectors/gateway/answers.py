"""What goes back: an answer in bytes, and the JSON shapes of those that tell of a change."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from connectors.edge.fields import SessionId
from connectors.gateway.asgi import Send
from streams.session.outcomes import Outcome

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"

Sequence = Annotated[int, Meta(ge=0, description="Of the session: 1, 2, 3, ... without gap; 0 before its first event")]
PositionText = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9._-]{1,249}:[0-9]{1,10}:[0-9]{1,19}$", description="topic:partition:offset of a command; a read waits for it"
    ),
]


class Answer(Struct, frozen=True):
    """`content_type` is left out where there is no body."""

    status: int
    body: bytes = b""
    headers: list[tuple[bytes, bytes]] = []
    content_type: str | None = JSON

    async def send(self, send: Send) -> None:
        headers = [(b"content-length", str(len(self.body)).encode()), *self.headers]
        if self.content_type is not None:
            headers.append((b"content-type", self.content_type.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Changed(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What every answer to a change carries. `position` is null where the session has no event to wait for yet;
    `run_sequence` is the position of the Run that was reported into or granted: the next report expects it."""

    session_id: SessionId
    sequence: Sequence
    position: PositionText | None
    run_sequence: Sequence | None = None


def told(status: int, body: Changed, outcome: Outcome) -> Answer:
    """The answer to an accepted command; the position stands in a header too, for who passes it on without reading."""
    headers: list[tuple[bytes, bytes]] = []
    if body.position is not None:
        headers.append((b"session-streams-position", body.position.encode()))
    if outcome.repeated:
        headers.append((b"session-streams-repeated", b"true"))
    return Answer(status, msgspec.json.encode(body), headers)


def plain(body: Any, status: int = 200) -> Answer:
    return Answer(status, msgspec.json.encode(body))
