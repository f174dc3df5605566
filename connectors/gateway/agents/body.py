"""A body, from its bytes to its object: too large, blank, no JSON, too deep, no object, in this order (page 06, 1.3)."""

from functools import partial
from typing import Any, Final

from connectors.gateway.agents import js
from connectors.gateway.agents.failures import invalid
from connectors.gateway.call import Call
from connectors.gateway.service import INLINE_BYTES_MAX, Gateway

BYTES_MAX: Final = 1_048_576


async def read_body(call: Call) -> bytes:
    """Whatever its media type. Raises as `Call.read_body`."""
    return await call.read_body(BYTES_MAX)


async def parsed(gateway: Gateway, raw: bytes) -> Any:
    """As `js.parse`, away from the event loop where it may take long."""
    return js.parse(raw) if len(raw) <= INLINE_BYTES_MAX else await gateway.in_thread(partial(js.parse, raw))


async def body_object(gateway: Gateway, call: Call) -> dict[str, Any]:
    """Raises `Failure`, and what reading raises."""
    raw = await read_body(call)
    return read_object(raw) if len(raw) <= INLINE_BYTES_MAX else await gateway.in_thread(partial(read_object, raw))


def read_object(raw: bytes) -> dict[str, Any]:
    """Raises `Failure`."""
    try:
        value = js.parse(raw)
    except js.Blank:
        raise invalid("Request body is required.") from None
    except js.NotJson:
        raise invalid("Request body must be valid JSON.") from None
    except js.TooDeep:
        raise invalid(f"Request body exceeds maximum JSON depth of {js.DEPTH_MAX}.") from None
    if not isinstance(value, dict):
        raise invalid("Request body must be a JSON object.")
    return value
