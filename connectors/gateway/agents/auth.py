"""Whose key it is and what it may do (page 06, 1.2). Everything that is wrong with a credential is one and the same 401."""

import re
from typing import Final

from connectors.edge.principal import Principal
from connectors.gateway.agents.failures import Failure, unauthenticated
from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import NotPermitted

_BEARER: Final = re.compile("bearer +([^ ]+)", re.IGNORECASE)


async def authenticate(gateway: Gateway, call: Call, scope: str | None) -> Principal:
    """`scope` as our keys name it; None: any key will do.

    Raises `Failure` (401, 403) and `Retriable` (the keys are not followed up to date; the rate of this key is spent).
    """
    presented = _BEARER.fullmatch(call.header("authorization") or "")
    if presented is None:
        raise unauthenticated()
    try:
        principal = gateway.keys.principal(presented[1], gateway.clock())
        gateway.rate.take(principal.principal_id)
        await gateway.require_subject(principal)
    except NotPermitted:
        raise unauthenticated() from None
    if scope is not None:
        require(principal, scope)
    return principal


def require(principal: Principal, scope: str) -> None:
    """Raises `Failure` (403)."""
    if not principal.holds(scope):
        raise Failure(403, "FORBIDDEN", f'Missing required scope "{shown(scope)}".')


def shown(scope: str) -> str:
    """By what name their clients know a scope of ours: `checkpoints:*` are snapshots here."""
    return scope.removeprefix("agent-")
