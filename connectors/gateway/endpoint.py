"""What every request goes through, in this order: key, rate, scope, path, query, Idempotency-Key, body, handler; then the answer.
A change that comes while there are too many is refused before any of it, since refusing must cost next to nothing.

Nothing is written before all of it holds. Every failure leaves as a problem; what nobody foresaw leaves as 500 and a
line in the log that holds the place in our code and none of the request.
"""

import time
import traceback

import msgspec
import structlog

from connectors.gateway.answers import Answer
from connectors.gateway.asgi import Receive, Scope, Send
from connectors.gateway.call import Call, Disconnected, misfit_of_path
from connectors.gateway.problems import answer_to, answer_to_refusal
from connectors.gateway.route import Route, Sendable
from connectors.gateway.service import Gateway, Refused
from streams.errors import Invalid, NotFound, Overloaded, StreamsError

_log = structlog.get_logger(__name__)


class Endpoint:
    """One route of one gateway, as an ASGI application."""

    def __init__(self, gateway: Gateway, route: Route) -> None:
        self.route = route
        self._gateway = gateway
        self._budget = gateway.budget(route.budget or ("changes" if route.change else "reads"))
        self._full = answer_to(gateway.changes.refusal())
        self._decoder = msgspec.json.Decoder(route.body) if route.body is not None and not route.reads_body_itself else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(scope, receive, send, scope.get("path_params", {}))

    async def serve(self, scope: Scope, receive: Receive, send: Send, path: dict[str, str]) -> None:
        began = time.perf_counter()
        gateway = self._gateway
        if self.route.change and gateway.changes.full():
            await self._full.send(send)
            gateway.metrics.observe(self.route.name, self._full.status, None)
            return
        call = Call(scope, receive, gateway.limits, path, gateway.bodies)
        try:
            answer = await self._answer(call)
            await answer.send(send)
        except Disconnected:
            return
        finally:
            call.release()
        # How long a stream was followed, or a body came, says nothing of how fast it was answered.
        at_once = isinstance(answer, Answer) and self.route.budget is None
        seconds = time.perf_counter() - began if at_once else None
        gateway.metrics.observe(self.route.name, answer.status, seconds)

    async def _answer(self, call: Call) -> Sendable:
        try:
            if self.route.scope is not None:
                call.principal = self._gateway.authenticate(call)
                await self._gateway.require_subject(call.principal)
                call.principal.require(self.route.scope)
                if self.route.also_scope is not None:
                    call.principal.require(self.route.also_scope)
            misfit = misfit_of_path(call.path)
            if misfit is not None:
                raise Invalid(misfit) if self.route.strict_path else NotFound(misfit)
            self._budget.take()
            try:
                return await self._handled(call)
            finally:
                self._budget.give_back()
        except Refused as refused:
            return answer_to_refusal(refused.outcome)
        except StreamsError as error:
            answer = answer_to(error)
            # Of those that came when there were too many, the count tells; a line for each would cost more than the refusal.
            if answer.status >= 500 and self.route.scope is not None and not isinstance(error, Overloaded):
                _log.warning("request_failed", route=self.route.name, status=answer.status, code=error.code, **_named(call))
            return answer
        except Disconnected:
            raise
        except Exception as error:
            _log.error("request_crashed", route=self.route.name, error=type(error).__name__, where=where(error), **_named(call))
            return answer_to(StreamsError("unforeseen"))

    async def _handled(self, call: Call) -> Sendable:
        route = self.route
        query = call.query(route.query)
        if route.report == "required" and call.header("session-streams-report") is None:
            raise Invalid(
                "Session-Streams-Report: required, run_id;generation;native_task_id;expected_run_sequence", code="request.malformed"
            )
        if route.change:
            call.idempotency_key()
            if route.position:
                # Whether a session is known here already must not decide whether a malformed position is refused.
                call.position()
        if self._decoder is not None:
            return await route.handler(self._gateway, call, await call.json(self._decoder))
        return await route.handler(self._gateway, call, query)


def _named(call: Call) -> dict[str, str]:
    """What the path names, for the log. What has not the form of our ids may be somebody's name."""
    return {name: each for name, each in call.path.items() if name != "subject"} if misfit_of_path(call.path) is None else {}


def where(error: BaseException) -> list[str]:
    """Files and lines, innermost last; no message and no value, since those may be content."""
    return [f"{frame.filename.rsplit('/', 2)[-1]}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)][-6:]


class NoRoute:
    """Answers paths that nothing is at."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await answer_to(NotFound("no such path")).send(send)


class Methods:
    """The routes of one path, by method."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._allow = ", ".join(sorted(endpoints)).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        answer = answer_to(StreamsError(f"this path takes {self._allow.decode()}", code="request.method_not_allowed"))
        await Answer(answer.status, answer.body, [*answer.headers, (b"allow", self._allow)], answer.content_type).send(send)
