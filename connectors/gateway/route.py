"""A route as data: the router, the endpoint and the interface document all read the same record."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from connectors.gateway.asgi import Send
from connectors.gateway.bodies import NoQuery
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway


class Sendable(Protocol):
    """An answer that is there, or one that goes on for a while."""

    @property
    def status(self) -> int: ...

    async def send(self, send: Send) -> None: ...


Handler = Callable[[Gateway, Call, Any], Awaitable[Sendable]]
"""Called with the decoded body; with the query where the route has no body, or reads it itself."""


class Route(Struct, frozen=True, kw_only=True):
    """`answer` is the JSON of `status`. `scope` is None for routes that anybody may ask.

    `change`: it needs an Idempotency-Key and leads to a command. `report`: whether a worker's report is read. `refusals`:
    the codes of runtime.* that its command may meet. `reads_body_itself`: the handler decodes the body. `media_type`: of an answer
    that is no JSON. `other_media_types`: in which the same answer may be asked for as text.
    """

    method: Literal["GET", "POST"]
    path: str
    name: str
    summary: str
    handler: Handler
    scope: str | None
    body: Any = None
    query: Any = NoQuery
    answer: Any = None
    status: int = 200
    change: bool = False
    report: Literal["none", "optional", "required"] = "none"
    refusals: tuple[str, ...] = ()
    reads_body_itself: bool = False
    media_type: str | None = None
    other_media_types: tuple[str, ...] = ()
