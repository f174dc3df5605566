"""Exports a session: NDJSON, line by line as `streams.exports.lines` has them, from the header to the trailer.

- A caller who broke off goes on with `from_sequence` and `end_sequence`, and gets the bytes that it would have got.
- An export that cannot go on says so in a line; one that is cut has no trailer. Neither looks like a whole one.
- With `lineage` the exports of the ancestors come first, each as it would be on its own up to where it was forked.
"""

from connectors.gateway import bodies
from connectors.gateway.answers import NDJSON
from connectors.gateway.asgi import Send
from connectors.gateway.call import Call
from connectors.gateway.lineage import Stretch, lineage_of, place_in
from connectors.gateway.route import Route, Sendable
from connectors.gateway.service import Gateway
from connectors.gateway.session_lines import Ends, SessionLines, Write, send_lines
from streams.errors import Invalid


async def export(gateway: Gateway, call: Call, query: bodies.ExportQuery) -> Sendable:
    gateway.exports.take()
    try:
        stream = ExportStream(gateway, call, query)
        await stream.begin()
    except BaseException:
        gateway.exports.give_back()
        raise
    return stream


class ExportStream:
    """Answers with the lines of one export; with `lineage`, of one export a session, the oldest ancestor's first."""

    status = 200

    def __init__(self, gateway: Gateway, call: Call, query: bodies.ExportQuery) -> None:
        """Takes over one place among the exports."""
        self._gateway, self._call, self._query = gateway, call, query
        self._session_id = call.path["session_id"]
        self._sessions: list[SessionLines] = []

    async def begin(self) -> None:
        """Everything that can be refused before the first line. Raises as a read of events does, and `Invalid`."""
        gateway, call, query = self._gateway, self._call, self._query
        if (query.cursor is not None and not query.lineage) or (query.lineage and query.from_sequence != 1):
            raise Invalid("cursor: goes with lineage, and from_sequence without")
        stretches, index, behind = [Stretch(self._session_id, None)], 0, query.from_sequence - 1
        if query.lineage:
            stretches = await lineage_of(gateway, call, await gateway.session(call, self._session_id))
            if query.cursor is not None:
                index, behind = place_in(stretches, query.cursor, "cursor")
        for session_id, through in stretches[index:]:
            end = (query.end_sequence or 0) if through is None else through
            self._sessions.append(SessionLines(gateway, call, session_id, 1 if self._sessions else behind + 1, end))
        # What is exported last is looked at first: where the session ends now is where the export will.
        for told in dict.fromkeys((self._sessions[-1], self._sessions[0])):
            await told.begin(call.position() if told is self._sessions[-1] else None)

    async def send(self, send: Send) -> None:
        await send_lines(self._gateway, self._call, send, self._told, f"{self._session_id}.ndjson", NDJSON)

    async def _told(self, write: Write, ends: Ends) -> None:
        for told in self._sessions:
            if not await told.send(write, ends):
                break


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/export", name="export_session",
        summary="The whole session with its hash chain, to be checked by anybody (docs/export.md)", handler=export,
        scope="export:read", query=bodies.ExportQuery, media_type=NDJSON,
    ),
)  # fmt: skip
