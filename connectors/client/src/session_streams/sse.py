"""Server-sent events from chunks of bytes, as the HTML standard reads them, as far as the service writes them."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """`id` is the last one that was given on the stream, empty before the first."""

    id: str
    event: str
    data: str


class Parser:
    """Feed it chunks as they come; it gives the messages that they complete. Lines end with a line feed."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Message]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            message = self._line(line.removesuffix(b"\r").decode())
            if message is not None:
                yield message

    def _line(self, line: str) -> Message | None:
        if not line:
            event, data = self._event, self._data
            self._event, self._data = "", []
            return Message(self._id, event or "message", "\n".join(data)) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        return None
