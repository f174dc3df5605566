"""Two questions to a broker by hand: which brokers are up, and which features the cluster has finalised.

Clients of a library keep threads and log about what is not up yet, and waiting for a start wants neither; and none of
them tells features. Plain listeners only: where a password or TLS is asked for, there is no answer.
"""

import socket
import struct
from typing import Final

_METADATA: Final = 3
_METADATA_VERSION: Final = 4
_API_VERSIONS: Final = 18
_API_VERSIONS_VERSION: Final = 3
_FINALIZED_FEATURES_TAG: Final = 2
_CORRELATION: Final = 7
_CLIENT: Final = b"session-streams-probe"


def brokers_up(host: str, port: int, *, timeout_s: float = 2.0) -> frozenset[int] | None:
    """The ids of the brokers that take part, as the one at host:port knows them; None where it does not answer (yet)."""
    # No topics are asked for and none may be created; the answer still lists the brokers.
    head = struct.pack(">hhih", _METADATA, _METADATA_VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
    try:
        return _broker_ids(_ask(host, port, head + struct.pack(">i?", 0, False), timeout_s))
    except (OSError, struct.error, EOFError):
        return None


def finalized_features(host: str, port: int, *, timeout_s: float = 5.0) -> dict[str, int] | None:
    """The level of each feature (`metadata.version`, `transaction.version` ...); None where the broker does not answer."""
    head = struct.pack(">hhih", _API_VERSIONS, _API_VERSIONS_VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT + b"\x00"
    name, version = b"session-streams", b"1"
    body = bytes([len(name) + 1]) + name + bytes([len(version) + 1]) + version + b"\x00"
    try:
        return _features(_Cursor(_ask(host, port, head + body, timeout_s)))
    except (OSError, struct.error, EOFError, IndexError):
        return None


def _ask(host: str, port: int, request: bytes, timeout_s: float) -> bytes:
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size = struct.unpack(">i", _receive(connection, 4))[0]
        return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return bytes(received)


def _broker_ids(answer: bytes) -> frozenset[int]:
    """Reads the head of a MetadataResponse v4: correlation id, throttle time, then [id, host, port, rack?]..."""
    correlation, _throttle, count = struct.unpack_from(">iii", answer)
    if correlation != _CORRELATION:
        raise EOFError
    at = 12
    ids = set()
    for _ in range(count):
        broker_id, host_length = struct.unpack_from(">ih", answer, at)
        at += 6 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(rack_length, 0)
        ids.add(broker_id)
    return frozenset(ids)


class _Cursor:
    """Reads Kafka's compact encoding from front to back. Raises IndexError or struct.error at the end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def skip(self, count: int) -> None:
        self._at += count

    def int16(self) -> int:
        (value,) = struct.unpack_from(">h", self._data, self._at)
        self._at += 2
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        length = self.varint() - 1
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def _features(answer: _Cursor) -> dict[str, int]:
    """Reads an ApiVersionsResponse v3: correlation id, error, [api, from, to]..., throttle time, then tagged fields."""
    answer.skip(4 + 2)
    for _ in range(answer.varint() - 1):
        answer.skip(6)
        answer.skip_tags()
    answer.skip(4)
    for _ in range(answer.varint()):
        tag, size = answer.varint(), answer.varint()
        if tag != _FINALIZED_FEATURES_TAG:
            answer.skip(size)
            continue
        features = {}
        for _ in range(answer.varint() - 1):
            name = answer.text()
            features[name] = answer.int16()
            answer.skip(2)
            answer.skip_tags()
        return features
    return {}
