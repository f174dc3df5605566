"""A route as data: the router, the endpoint and the interface document all read the same record.

What distinguishes a route stands here; nobody asks for its name to learn it.
"""

from collections.abc import Awaitable, Callable, Mapping
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
    """`answer` is the JSON of `status`, and of `known_status` where what is asked for was asked for before. `scope` is None for routes
    that anybody may ask, and ANY_SCOPE for those that need a key and nothing of it; `also_scope` is needed beside it. `nothing`: what an
    answer of 204 says.

    `change`: it needs an Idempotency-Key, and leads to a command unless `command` says otherwise. `report`: whether a worker's report is
    read; `report_position`: whether it has to say `expected_run_sequence`. `position`: whether the position that the caller names is
    waited for. `last_event_id`: whether it resumes behind one. `refusals`: the codes that it may refuse with beside those of every route
    of its kind. `budget`: what it counts among for as long as its handler is at work, where that is neither the changes nor the reads;
    such a handler takes its place among the changes only while its command is under way. `reads_body_itself`: the handler decodes the
    body, and takes it in `other_body_types` too. `media_type`: of an answer that is no JSON; `media_type_says`: what is to be said of it.
    `other_media_types`: in which the same answer may be asked for as text. `other_...` map a media type to what is to be said of it, or to
    nothing. `headers`: those that it requires of its own, by name, with schema and description; `answer_headers`: those
    that its answer has of its own. `strict_path`: an id of another form than its kind's is an invalid request, and not a path that nothing
    is at. `example` and `body_example`: an answer and a body as the document
    shows them.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    name: str
    summary: str
    handler: Handler
    scope: str | None
    also_scope: str | None = None
    body: Any = None
    query: Any = NoQuery
    answer: Any = None
    status: int = 200
    known_status: int | None = None
    nothing: str | None = None
    change: bool = False
    command: bool = True
    report: Literal["none", "optional", "required"] = "none"
    report_position: bool = True
    position: bool = True
    last_event_id: bool = False
    refusals: tuple[str, ...] = ()
    budget: Literal["claims", "transfers"] | None = None
    reads_body_itself: bool = False
    other_body_types: Mapping[str, str] = {}
    media_type: str | None = None
    media_type_says: str = ""
    other_media_types: Mapping[str, str] = {}
    example: Struct | None = None
    body_example: Struct | None = None
    headers: Mapping[str, tuple[Any, str]] = {}
    answer_headers: Mapping[str, Any] = {}
    strict_path: bool = False
