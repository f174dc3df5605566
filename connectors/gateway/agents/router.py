"""Which requests are of this contract, and to which of its routes they go (page 06, 1.1).

Paths are split at slashes and empty segments dropped; names are compared as they stand, only an id is decoded. An unknown path
or method is told of before any key is looked at; HEAD and OPTIONS are methods like any other.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from connectors.gateway.agents import checkpoints, context, envelope, failures, mcp, principal
from connectors.gateway.agents.endpoint import AgentEndpoint
from connectors.gateway.agents.failures import Failure
from connectors.gateway.agents.route import AgentRoute
from connectors.gateway.asgi import Receive, Scope, Send
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway

ROUTES: Final[tuple[AgentRoute, ...]] = (*checkpoints.ROUTES, *context.ROUTES, *principal.ROUTES, *mcp.ROUTES)
_AREAS: Final = frozenset(["checkpoints", "context", "principal"])
"""What follows /v1 in the paths of this contract."""


def segments_of(scope: Scope) -> list[str]:
    """Of the path as it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return [segment for segment in raw.decode("latin-1").split("/") if segment]


def is_ours(segments: Sequence[str]) -> bool:
    """Whether this contract holds for a path, known or not."""
    return segments[:1] == ["mcp"] or (len(segments) > 1 and segments[0] == "v1" and segments[1] in _AREAS)


def decoded(segment: str) -> str | None:
    """An id; what is malformed stays as it is, and is none. None for what is no UTF-8."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return None


class AgentRouter:
    """Of one gateway."""

    def __init__(self, gateway: Gateway, routes: Sequence[AgentRoute] = ROUTES) -> None:
        self._gateway = gateway
        self._by_path: dict[tuple[str, ...], dict[str, AgentEndpoint]] = {}
        for route in routes:
            pattern = tuple(segment for segment in route.path.split("/") if segment)
            self._by_path.setdefault(pattern, {})[route.method] = AgentEndpoint(gateway, route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, segments: list[str]) -> None:
        """`segments` of a path that `is_ours`."""
        for pattern, endpoints in self._by_path.items():
            path = _matched(pattern, segments)
            if path is None:
                continue
            endpoint = endpoints.get(scope["method"])
            if endpoint is not None:
                await endpoint.serve(scope, receive, send, path)
            else:
                await envelope.failure(self._without_method(scope, receive, endpoints)).send(send)
            return
        await envelope.failure(failures.no_such_route()).send(send)

    def _without_method(self, scope: Scope, receive: Receive, endpoints: dict[str, AgentEndpoint]) -> Failure:
        """The guards of a path come before its methods."""
        call = Call(scope, receive, self._gateway.limits, {}, self._gateway.bodies)
        try:
            for endpoint in endpoints.values():
                if endpoint.route.guard is not None:
                    endpoint.route.guard(self._gateway, call)
        except Failure as refused:
            return refused
        return failures.no_such_method(list(endpoints))


def _matched(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    """What stands where the pattern takes anything; a malformed escape stands for what names nothing."""
    if len(pattern) != len(segments):
        return None
    taken = {}
    for expected, segment in zip(pattern, segments, strict=True):
        if expected.startswith(":"):
            taken[expected[1:]] = decoded(segment) or ""
        elif expected != segment:
            return None
    return taken
