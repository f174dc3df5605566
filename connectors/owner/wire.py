"""HTTP/1.1 to the owners, for the one shape that they speak: POST, a body of known length, kept-alive connections.

A general client costs several times what the owner needs to answer a point read; this one writes a request in one piece
and hands the answer's body over. It is used towards our own processes only.
"""

import asyncio
from collections import defaultdict
from typing import Final, cast

import httptools

_CONNECT_TIMEOUT_S: Final = 1.0
_IDLE_PER_ADDRESS: Final = 256
_ANSWER_BYTES_MAX: Final = 64 << 20


class Broken(Exception):
    """No answer: not reachable, cut off, or not in time. The question may be asked again."""


class Connections:
    """Of one event loop. Any number at once; idle ones are kept, up to a bound for each address."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Connection]] = defaultdict(list)
        self._closed = False

    async def post(self, address: str, path: str, head: bytes, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Status and body. `head`: further header lines, each with its line end. Raises `Broken`."""
        request = b"POST %s HTTP/1.1\r\nhost: %s\r\n%scontent-length: %d\r\n\r\n" % (path.encode(), address.encode(), head, len(body))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    connection, kept = await self._take(address)
                    try:
                        status, answer = await connection.ask(request + body)
                    except Broken:
                        # The other side may have closed an idle connection at this very moment.
                        if kept:
                            continue
                        raise
                    self._give_back(address, connection)
                    return status, answer
        except TimeoutError:
            raise Broken(f"{address}: no answer within {timeout_s:.1f} s") from None

    def drop(self, address: str) -> None:
        """Closes what is kept towards an address that nobody is at any more."""
        for connection in self._idle.pop(address, ()):
            connection.close()

    def close(self) -> None:
        self._closed = True
        for address in list(self._idle):
            self.drop(address)

    async def _take(self, address: str) -> tuple["_Connection", bool]:
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection, True
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                _, connection = await asyncio.get_running_loop().create_connection(_Connection, host.strip("[]"), int(port))
        except (OSError, ValueError, TimeoutError) as error:
            raise Broken(f"{address}: {error or 'no connection'}") from error
        return connection, False

    def _give_back(self, address: str, connection: "_Connection") -> None:
        idle = self._idle[address]
        if self._closed or not connection.usable or len(idle) >= _IDLE_PER_ADDRESS:
            connection.close()
        else:
            idle.append(connection)


class _Connection(asyncio.Protocol):
    """One request at a time. A request that is given up takes its connection with it, so no answer meets another's question."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self.usable = False

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        transport = self._transport
        if transport is None or not self.usable:
            raise Broken("the connection is closed")
        self.usable = False
        self._parser = httptools.HttpResponseParser(self)
        self._parts, self._size = [], 0
        self._answer = asyncio.get_running_loop().create_future()
        transport.write(request)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, though they do the same.
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self._fail("bytes that nobody asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"no HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"cut off: {error or 'closed'}")

    # -- httptools --------------------------------------------------------------------------------------------------------

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > _ANSWER_BYTES_MAX:
            self._fail("the answer is too large")
            return
        self._parts.append(part)

    def on_message_complete(self) -> None:
        parser, answer = self._parser, self._answer
        assert parser is not None
        self._parser = None
        if answer is not None and not answer.done():
            self.usable = parser.should_keep_alive()
            answer.set_result((parser.get_status_code(), b"".join(self._parts)))

    def _fail(self, reason: str) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(reason))
