"""What answers that go on for a while share: how a part leaves, and how it is noticed that nobody takes it any more."""

import asyncio

from connectors.gateway.asgi import Receive, Send


class Left(Exception):
    """The caller is gone, or does not read: nothing is sent any more, and the connection is closed without an end."""


async def send_part(send: Send, data: bytes, stall_s: float) -> None:
    """Waits for a caller who does not read, for at most `stall_s`; then raises `Left`."""
    try:
        async with asyncio.timeout(stall_s):
            await send({"type": "http.response.body", "body": data, "more_body": True})
    except TimeoutError:
        raise Left from None


async def gone(receive: Receive) -> None:
    """Returns once the caller is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
