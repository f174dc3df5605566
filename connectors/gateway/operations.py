"""Routes of operation, open to everybody who reaches the gateway: counts and states, never an id."""

from typing import Literal

from msgspec import Struct

from connectors.gateway import metrics
from connectors.gateway.answers import Answer, plain
from connectors.gateway.bodies import NoQuery
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.errors import Retriable


class Alive(Struct, frozen=True, forbid_unknown_fields=True):
    status: Literal["alive"] = "alive"


class Ready(Struct, frozen=True, forbid_unknown_fields=True):
    ready: Literal[True] = True


async def healthz(gateway: Gateway, call: Call, _: NoQuery) -> Answer:
    return plain(Alive())


async def readyz(gateway: Gateway, call: Call, _: NoQuery) -> Answer:
    """Raises `Retriable` (service.not_ready) saying what is not there yet."""
    missing = gateway.missing()
    if missing:
        raise Retriable("; ".join(missing), code="service.not_ready")
    return plain(Ready())


async def metrics_text(gateway: Gateway, call: Call, _: NoQuery) -> Answer:
    counts = gateway.metrics
    for budget in gateway.budgets:
        counts.under_way.labels(budget.what).set(budget.taken)
    counts.ready.set(0 if gateway.missing() else 1)
    return Answer(200, counts.text(), [], metrics.MEDIA_TYPE)


ROUTES = (
    Route(method="GET", path="/healthz", name="healthz", summary="The process is alive", handler=healthz, scope=None, answer=Alive),
    Route(
        method="GET", path="/readyz", name="readyz", summary="It serves", handler=readyz, scope=None, answer=Ready,
        refusals=("service.not_ready",),
    ),
    Route(method="GET", path="/metrics", name="metrics", summary="Prometheus metrics", handler=metrics_text, scope=None),
)  # fmt: skip
