"""What a request on these routes goes through, in this order (page 06, 1.3): guard, key, rate, scope, body, handler; then the answer.

Nobody holds a place among those that are under way while the body is still to come: its sender may take long.
Every failure leaves in their envelope; what nobody foresaw leaves as 500 and a line in the log that holds the place in our
code and none of the request.
"""

import time

import structlog

from connectors.gateway.agents import auth, envelope, failures
from connectors.gateway.agents.failures import Failure
from connectors.gateway.agents.route import AgentRoute
from connectors.gateway.answers import Answer
from connectors.gateway.asgi import Message, Receive, Scope, Send
from connectors.gateway.call import Call, Disconnected
from connectors.gateway.endpoint import where
from connectors.gateway.guards import Budget
from connectors.gateway.service import Gateway
from streams.errors import Overloaded, StreamsError

_log = structlog.get_logger(__name__)


class Place:
    """One of a budget's, of one request. It is left while the body is waited for, and taken again with each part that has come."""

    def __init__(self, budget: Budget, receive: Receive) -> None:
        self._budget, self._receive, self._taken = budget, receive, False

    def take(self) -> None:
        """Raises `Overloaded`."""
        self._budget.take()
        self._taken = True

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._budget.give_back()

    async def receive(self) -> Message:
        """Of the request. Raises `Overloaded` where its place is gone meanwhile."""
        taken = self._taken
        self.leave()
        message = await self._receive()
        if taken:
            self.take()
        return message


class AgentEndpoint:
    """One route of one gateway."""

    def __init__(self, gateway: Gateway, route: AgentRoute) -> None:
        self._gateway, self.route = gateway, route
        self._budget = gateway.agent_changes if route.change else gateway.agent_reads

    async def serve(self, scope: Scope, receive: Receive, send: Send, path: dict[str, str]) -> None:
        began = time.perf_counter()
        gateway = self._gateway
        if self.route.change and gateway.agent_changes.full():
            answer = envelope.failure(failures.of_error(gateway.agent_changes.refusal()))
            await answer.send(send)
            gateway.metrics.observe(self.route.name, answer.status, None)
            return
        place = Place(self._budget, receive)
        call = Call(scope, place.receive, gateway.limits, path, gateway.bodies)
        try:
            answer = await self._answer(call, place)
            await answer.send(send)
        except Disconnected:
            return
        finally:
            call.release()
        gateway.metrics.observe(self.route.name, answer.status, time.perf_counter() - began)

    async def _answer(self, call: Call, place: Place) -> Answer:
        route = self.route
        try:
            if route.guard is not None:
                route.guard(self._gateway, call)
            call.principal = await auth.authenticate(self._gateway, call, route.scope)
            place.take()
            try:
                return await route.handler(self._gateway, call)
            finally:
                place.leave()
        except Failure as known:
            return envelope.failure(known)
        except StreamsError as error:
            failure = failures.of_error(error)
            # Of those that came when there were too many, the count tells; a line for each would cost more than the refusal.
            if failure.status >= 500 and not isinstance(error, Overloaded):
                _log.warning("request_failed", route=route.name, status=failure.status, code=error.code)
            return envelope.failure(failure)
        except Disconnected:
            raise
        except Exception as error:
            _log.error("request_crashed", route=route.name, error=type(error).__name__, where=where(error))
            return envelope.failure(failures.internal())
