"""The Session Bundle: the export of a session, and behind it what follows from it and the manifest that this installation signs.

It is sent while it is made, so a bundle that breaks off, for what ends an export, for want of room or for a fault of ours, has no manifest.
It is signed by the key of the moment in which it is signed, for a caller who may have it then.
"""

import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Final

import structlog

from connectors.gateway import bodies
from connectors.gateway.asgi import Send
from connectors.gateway.call import Call
from connectors.gateway.route import Route, Sendable
from connectors.gateway.service import Gateway
from connectors.gateway.session_lines import Ends, SessionLines, Write, require_going_on, send_lines
from connectors.gateway.streaming import Left
from streams.custody.signers import Signers
from streams.custody.signing import Envelope
from streams.errors import Retriable, StreamsError
from streams.exports.bundle import Bundle

MEDIA_TYPE: Final = "application/vnd.checkfu.session-bundle+x-ndjson"
_SAYS: Final = "Lines: those of the export, those of the other sections, and the envelope with the signed manifest (docs/bundle.md)."

_log = structlog.get_logger(__name__)


async def bundle(gateway: Gateway, call: Call, query: bodies.BundleQuery) -> Sendable:
    session_id = call.path["session_id"]
    gateway.exports.take()
    try:
        events = SessionLines(gateway, call, session_id, 1, query.end_sequence or 0)
        await events.begin(call.position())
        signers = Signers(gateway.settings.signers_path)
        # That there is no key is found out before the first byte.
        await gateway.in_thread(partial(signers.current, "bundles"))
    except BaseException:
        gateway.exports.give_back()
        raise
    return BundleStream(gateway, call, events, signers)


class BundleStream:
    """Answers with the lines of one bundle. Takes over one place among the exports."""

    status = 200

    def __init__(self, gateway: Gateway, call: Call, events: SessionLines, signers: Signers) -> None:
        """`events` have begun."""
        self._gateway, self._call, self._events, self._signers = gateway, call, events, signers
        self._session_id = call.path["session_id"]

    async def send(self, send: Send) -> None:
        await send_lines(self._gateway, self._call, send, self._told, f"{self._session_id}.bundle", MEDIA_TYPE)

    async def _told(self, write: Write, ends: Ends) -> None:
        try:
            made = await self._gateway.in_thread(partial(Bundle, self._session_id, self._gateway.settings.data_dir / "spool"))
            try:
                await self._send(made, write, ends)
            finally:
                # Where this is cancelled, a thread may be in it yet: its step, which is short, is waited for.
                made.close()
        except Left:
            raise
        except StreamsError as error:
            await self._break_off(error, write)
        except (OSError, sqlite3.Error) as error:
            await self._break_off(Retriable(f"no room for what a bundle keeps: {error}", code="service.unavailable"), write)
        except Exception as error:
            await self._break_off(StreamsError(type(error).__name__), write, unexpected=error)

    async def _send(self, made: Bundle, write: Write, ends: Ends) -> None:
        in_thread = self._gateway.in_thread

        async def write_events(data: bytes) -> None:
            await in_thread(partial(made.add, data))
            await write(data)

        if not await self._events.send(write_events, ends):
            return
        behind = made.behind(self._signed)
        while True:
            require_going_on(self._gateway, self._call, ends)
            piece = await in_thread(partial(_next, behind))
            if not piece:
                return
            await write(piece)

    def _signed(self, payload_type: str, payload: bytes) -> Envelope:
        """By whichever key signs by now. Blocks. Raises `Misconfigured`."""
        return self._signers.current("bundles").sign(payload_type, payload)

    async def _break_off(self, error: StreamsError, write: Write, *, unexpected: Exception | None = None) -> None:
        _log.warning("bundle_broke_off", session_id=self._session_id, code=error.code, reason=error.detail, exc_info=unexpected)
        await write(self._events.broken_off(error))


def _next(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/bundle", name="session_bundle",
        summary="The whole session as one signed file, to be checked by anybody (docs/bundle.md)", handler=bundle,
        scope="export:read", query=bodies.BundleQuery, media_type=MEDIA_TYPE, media_type_says=_SAYS,
    ),
)  # fmt: skip
