"""Bounds on what a connection sends beside bodies (the size of headers, trailers and chunk lines, the time of headers),
and on how long it holds an answer that its caller does not take. What the door turns away goes no further than here.

The server's own protocol waits for ever for both, so a few connections would hold a gateway; and it keeps what is neither
header nor body, without end. A trailer is no header: it is dropped.
"""

from asyncio import AbstractEventLoop, BaseTransport, TimerHandle
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from connectors.gateway.asgi import DOOR, WHOLE
from connectors.gateway.door import Door
from connectors.gateway.limits import GatewayLimits
from connectors.gateway.problems import answer_to
from streams.errors import Invalid


def bounded_protocol(limits: GatewayLimits) -> type[HttpToolsProtocol]:
    """A protocol class for uvicorn that closes connections whose callers are too slow, or send too much beside bodies."""

    class BoundedProtocol(HttpToolsProtocol):
        def __init__(
            self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: AbstractEventLoop | None = None
        ) -> None:
            super().__init__(config, server_state, app_state, _loop)
            self._door: Door | None = app_state.get(DOOR)
            self._turned_away = False
            self._in_headers = True
            self._beside_bodies = 0
            self._header_timer: TimerHandle | None = None
            self._writing_timer: TimerHandle | None = None

        def connection_made(self, transport: BaseTransport) -> None:
            super().connection_made(transport)  # type: ignore[arg-type]
            self._watch_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_timer()
            self._forget_writing()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._forget_writing()
            self._watch_writing()

        def resume_writing(self) -> None:
            self._forget_writing()
            super().resume_writing()

        def data_received(self, data: bytes) -> None:
            # Counted before the parser sees them, so that a line without end is bounded too. A piece in which something
            # ends is let through whole: it is at most one read of the socket.
            self._beside_bodies += len(data)
            if self._beside_bodies > limits.header_bytes_max + len(data):
                self.transport.abort()
                return
            super().data_received(data)
            # Most requests come in one piece: for those no clock is set.
            if self._in_headers and self._header_timer is None and not self.transport.is_closing():
                self._watch_headers()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._turned_away = False
            self._in_headers = True
            self._beside_bodies = 0

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_headers:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_headers = False
            self._beside_bodies = 0
            self._forget_timer()
            refusal = self._refusal()
            if refusal is None:
                super().on_headers_complete()
                return
            # Neither a task nor a scope is made of it; its body is dropped as it comes.
            self._turned_away = True
            self.transport.write(refusal)
            self.on_response_complete()

        def on_body(self, body: bytes) -> None:
            self._beside_bodies = 0
            if not self._turned_away:
                super().on_body(body)

        def on_message_complete(self) -> None:
            self._beside_bodies = 0
            if not self._turned_away:
                super().on_message_complete()
                self.scope[WHOLE] = True  # type: ignore[typeddict-unknown-key]

        def send_400_response(self, msg: str) -> None:
            answer = answer_to(Invalid(msg, code="request.malformed"))
            head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {answer.content_type}\r\ncontent-length: {len(answer.body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + answer.body)
            self.transport.close()

        def _refusal(self) -> bytes | None:
            """Only where the answer may go out at once and the connection goes on: the application sees to the others."""
            if self._door is None or not self._door.turns_away(self.parser.get_method(), self.url):
                return None
            # A caller who asks on and on and takes no answer must not have them pile up here.
            answering = self.flow.write_paused or (self.cycle is not None and not self.cycle.response_complete)
            plain = self.parser.get_http_version() == "1.1" and self.parser.should_keep_alive() and not self.expect_100_continue
            return self._door.refuse() if plain and not answering and not self.parser.should_upgrade() else None

        def _watch_headers(self) -> None:
            self._header_timer = self.loop.call_later(limits.header_timeout_s, self._too_slow)

        def _forget_timer(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

        def _watch_writing(self) -> None:
            left = self.transport.get_write_buffer_size()
            self._writing_timer = self.loop.call_later(limits.stall_s, self._is_writing, left)

        def _is_writing(self, before: int) -> None:
            # Closing waits for the caller, too: it is watched on until the connection is lost.
            if self.transport.get_write_buffer_size() < before:
                self._watch_writing()
            else:
                self.transport.abort()

        def _forget_writing(self) -> None:
            if self._writing_timer is not None:
                self._writing_timer.cancel()
                self._writing_timer = None

        def _too_slow(self) -> None:
            if not self.transport.is_closing():
                self.transport.abort()

    return BoundedProtocol
