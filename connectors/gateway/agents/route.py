"""A route of this contract as data: the router and the interface document read it."""

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from connectors.gateway.answers import Answer
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway

Handler = Callable[[Gateway, Call], Awaitable[Answer]]
Guard = Callable[[Gateway, Call], None]


class AgentRoute(Struct, frozen=True, kw_only=True):
    """`path`: a segment that begins with a colon takes any one, decoded, into `call.path`. `scope`: as our keys name it; None: any key
    will do. `change`: it counts among the changes that are under way, else among the reads. `guard` looks at the request before its
    key is looked at, and raises `Failure`."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    summary: str
    scope: str | None
    handler: Handler
    change: bool = False
    guard: Guard | None = None
