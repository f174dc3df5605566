"""Bodies of many megabytes over one connection each, sent and read a megabyte at a time, with the gateway looked at at each."""

import hashlib
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import BinaryIO, Final

from benchmarks.bench import MB
from benchmarks.serving import Installation

_PATIENCE_S: Final = 120.0


@dataclass
class Transfer:
    """`digest`: SHA-256 of what came, or went. `rss_mb`: of the gateway at most, at any of the looks."""

    body: bytes
    seconds: float
    size: int
    digest: bytes
    rss_mb: float
    gateway_cores: float


def sent(installation: Installation, path: str, pieces: Iterable[bytes], size: int, headers: dict[str, str]) -> Transfer:
    """Raises RuntimeError unless it is answered with 201. `body` is the answer."""
    given = {"content-type": "application/octet-stream", "content-length": str(size), "idempotency-key": secrets.token_hex(16), **headers}
    looks, hashed = _Looks(installation), hashlib.sha256()
    with _connected(installation) as connection:
        begun = time.perf_counter()
        connection.putrequest("POST", path)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        for piece in pieces:
            connection.send(piece)
            hashed.update(piece)
            looks.look()
        answer = _answered(connection, 201)
        body = answer.read()
        seconds = time.perf_counter() - begun
    return Transfer(body, seconds, size, hashed.digest(), *looks.told(seconds))


def received(
    installation: Installation, path: str, *, keep: bool = False, into: BinaryIO | None = None, headers: Mapping[str, str] | None = None
) -> Transfer:
    """Raises RuntimeError unless it is answered with 200. `body` is empty without `keep`; what is cut raises, too."""
    looks, hashed, size, kept = _Looks(installation), hashlib.sha256(), 0, bytearray()
    with _connected(installation) as connection:
        begun = time.perf_counter()
        connection.request("GET", path, headers={**installation.authorization(), **(headers or {})})
        answer = _answered(connection, 200)
        while piece := answer.read(MB):
            size += len(piece)
            hashed.update(piece)
            if keep:
                kept += piece
            if into is not None:
                into.write(piece)
            looks.look()
        seconds = time.perf_counter() - begun
    return Transfer(bytes(kept), seconds, size, hashed.digest(), *looks.told(seconds))


class _Looks:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._before = installation.cpu_s()["gateway"]
        self._after, self._most = self._before, installation.rss("gateway")

    def look(self) -> None:
        self._after = self._installation.cpu_s()["gateway"]
        self._most = max(self._most, self._installation.rss("gateway"))

    def told(self, seconds: float) -> tuple[float, float]:
        self.look()
        return self._most / MB, (self._after - self._before) / seconds


@contextmanager
def _connected(installation: Installation) -> Iterator[HTTPConnection]:
    address = installation.gateway()
    connection = HTTPConnection(address["host"], address["port"], timeout=_PATIENCE_S)
    try:
        yield connection
    finally:
        connection.close()


def _answered(connection: HTTPConnection, status: int) -> HTTPResponse:
    answer = connection.getresponse()
    if answer.status != status:
        raise RuntimeError(f"{answer.status} {answer.read(300).decode(errors='replace')}")
    return answer
