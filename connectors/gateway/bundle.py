"""The Session Bundle: the export of a session, and behind it what follows from it and the manifest that this installation signs.

It is sent while it is made, so a bundle that breaks off, for what ends an export or for want of room, has no manifest.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Final

import structlog

from connectors.gateway import bodies
from connectors.gateway.asgi import Send
from connectors.gateway.call import Call
from connectors.gateway.export import Ends, Section, Write, send_lines
from connectors.gateway.route import Route, Sendable
from connectors.gateway.service import Gateway
from streams.custody.signers import Signers
from streams.custody.signing import SigningKey
from streams.errors import Retriable
from streams.exports.bundle import Bundle

MEDIA_TYPE: Final = "application/vnd.checkfu.session-bundle+x-ndjson"
_SAYS: Final = "Lines: those of the export, those of the other sections, and the envelope with the signed manifest (docs/bundle.md)."

_log = structlog.get_logger(__name__)


async def bundle(gateway: Gateway, call: Call, query: bodies.BundleQuery) -> Sendable:
    session_id = call.path["session_id"]
    gateway.exports.take()
    try:
        section = Section(gateway, call, session_id, 1, query.end_sequence or 0)
        await section.begin(call.position())
        key = await gateway.in_thread(partial(Signers(gateway.settings.signers_path).current, "bundles"))
    except BaseException:
        gateway.exports.give_back()
        raise
    return BundleStream(gateway, call, section, key)


class BundleStream:
    """Answers with the lines of one bundle. Takes over one place among the exports."""

    status = 200

    def __init__(self, gateway: Gateway, call: Call, section: Section, key: SigningKey) -> None:
        """`section` has begun."""
        self._gateway, self._call, self._section, self._key = gateway, call, section, key
        self._session_id = call.path["session_id"]

    async def send(self, send: Send) -> None:
        await send_lines(self._gateway, self._call, send, self._told, f"{self._session_id}.bundle", MEDIA_TYPE)

    async def _told(self, write: Write, ends: Ends) -> None:
        in_thread = self._gateway.in_thread
        try:
            with closing(await in_thread(partial(Bundle, self._session_id))) as made:

                async def write_events(data: bytes) -> None:
                    await in_thread(partial(made.add, data))
                    await write(data)

                if not await self._section.send(write_events, ends):
                    return
                behind = made.behind(self._key.sign)
                while piece := await in_thread(partial(_next, behind)):
                    await write(piece)
        except sqlite3.Error as error:
            _log.warning("bundle_broke_off", session_id=self._session_id, reason=str(error))
            await write(self._section.broken_off(Retriable("no room for what a bundle keeps", code="service.unavailable")))


def _next(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/bundle", name="session_bundle",
        summary="The whole session as one signed file, to be checked by anybody (docs/bundle.md)", handler=bundle,
        scope="export:read", query=bodies.BundleQuery, media_type=MEDIA_TYPE, media_type_says=_SAYS,
    ),
)  # fmt: skip
