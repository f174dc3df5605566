"""Assembles the gateway's ASGI application: routes, the document that describes them, start and end.

The two hottest paths (append and read events) are recognised here, before the router looks at any pattern.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import msgspec
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from connectors import asyncapi
from connectors.gateway import (
    append,
    bundle,
    capsule_custody,
    capsule_import,
    capsules,
    checkpoints,
    claims,
    conversation,
    dead_letters,
    effects,
    erasures,
    export,
    forks,
    graph,
    interactions,
    material,
    operations,
    policy,
    reading,
    runs,
    sessions,
    snapshots,
    support,
    trust,
    turns,
)
from connectors.gateway.agents import router as agents
from connectors.gateway.answers import Answer
from connectors.gateway.asgi import DOOR, Receive, Scope, Send
from connectors.gateway.bodies import NoQuery
from connectors.gateway.call import Call
from connectors.gateway.door import HOT_END, HOT_LENGTH, HOT_START, Door
from connectors.gateway.endpoint import Endpoint, Methods, NoRoute
from connectors.gateway.openapi import document
from connectors.gateway.problems import answer_to
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from connectors.support.support import running_release

_HOT: Final = "/v1/sessions/{session_id}/events"
_ID: Final = slice(len("/v1/sessions/"), -len(HOT_END))


async def _document(text: bytes, _gateway: Gateway, _call: Call, _: NoQuery) -> Answer:
    return Answer(200, text)


ROUTES: Final = (
    *sessions.ROUTES, *append.ROUTES, *reading.ROUTES, *export.ROUTES, *bundle.ROUTES, *graph.ROUTES, *turns.ROUTES, *runs.ROUTES,
    *claims.ROUTES, *snapshots.ROUTES, *checkpoints.ROUTES, *material.ROUTES, *conversation.ROUTES,
    *forks.ROUTES, *capsules.ROUTES, *capsule_import.ROUTES, *capsule_custody.ROUTES,
    *interactions.ROUTES, *effects.ROUTES, *dead_letters.ROUTES, *erasures.ROUTES, *policy.ROUTES, *support.ROUTES, *trust.ROUTES,
    *operations.ROUTES,
)  # fmt: skip
DOCUMENT: Final = msgspec.json.encode(document(ROUTES, agents.ROUTES, running_release()))


def _pattern(path: str) -> str:
    """As the router has it: what names a person may hold slashes, once it is decoded."""
    return path.replace("{subject}", "{subject:path}")


def _document_route(name: str, text: bytes) -> Route:
    return Route(
        method="GET", path=f"/{name}.json", name=name, summary=f"The {name} document", handler=partial(_document, text), scope=None
    )


class GatewayApplication:
    """Serves the gateway that `opened` yields at start-up, in the server's own loop."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Gateway]]) -> None:
        self._opened = opened
        self._router: Router | None = None
        self._agents: agents.AgentRouter | None = None
        self._hot: dict[str, Endpoint] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        path: str = scope["path"]
        if len(path) == HOT_LENGTH and path.startswith(HOT_START) and path.endswith(HOT_END):
            endpoint = self._hot.get(scope["method"])
            if endpoint is not None:
                await endpoint.serve(scope, receive, send, {"session_id": path[_ID]})
                return
        assert self._router is not None, "requests come after start-up"
        assert self._agents is not None
        segments = agents.segments_of(scope)
        if agents.is_ours(segments):
            await self._agents(scope, receive, send, segments)
            return
        await self._router(scope, receive, send)

    def _assemble(self, gateway: Gateway) -> None:
        by_path: dict[str, dict[str, Endpoint]] = {}
        topics = msgspec.json.encode(asyncapi.document(gateway.settings, running_release()))
        for route in (*ROUTES, _document_route("openapi", DOCUMENT), _document_route("asyncapi", topics)):
            by_path.setdefault(route.path, {})[route.method] = Endpoint(gateway, route)
        self._hot = by_path[_HOT]
        self._agents = agents.AgentRouter(gateway)
        self._router = Router(
            [StarletteRoute(_pattern(path), Methods(endpoints)) for path, endpoints in by_path.items()],
            redirect_slashes=False,
            default=NoRoute(),
        )

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        started = False
        try:
            async with self._opened() as gateway:
                self._assemble(gateway)
                scope["state"][DOOR] = Door(
                    gateway.changes, gateway.metrics, self._hot["POST"].route.name, answer_to(gateway.changes.refusal())
                )
                gateway.changes.lateness.watch(asyncio.get_running_loop())
                await send({"type": "lifespan.startup.complete"})
                started = True
                await receive()
                gateway.changes.lateness.stop()
        except Exception as error:
            await send({"type": "lifespan.shutdown.failed" if started else "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})
