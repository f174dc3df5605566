"""Session Bundles, and the public keys of who signs them, as the clients fetch them. `session_streams.bundle` checks them."""

import json
import os
from abc import ABC, abstractmethod
from typing import BinaryIO, Final

import httpx

from session_streams.errors import ApiError, ConnectionFailed, error_of
from session_streams.models import Answer, Body
from session_streams.recovery import Source
from session_streams.requests import Request, session_path
from session_streams.retries import Attempts, Retries

_ENVELOPE: Final = b'{"payload":'
_ENVELOPE_END: Final = b"]}\n"
_ERROR: Final = b'{"kind":"error",'
_LAST_LINE_BYTES_MAX: Final = 1024 * 1024 + 1
_REFUSED: Final = 400


def bundle(session_id: str, end_sequence: int | None) -> Request:
    return Request("GET", session_path(session_id) + "/bundle", {}, {} if end_sequence is None else {"end_sequence": str(end_sequence)})


def signing_keys() -> Request:
    return Request("GET", "/v1/signing-keys")


class Bundles(ABC):
    """The calls of `Client`."""

    _http: httpx.Client
    _retries: Retries

    @abstractmethod
    def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    @abstractmethod
    def _headers(self, request: Request) -> dict[str, str]: ...

    @abstractmethod
    def _pause(self, attempts: Attempts, failure: ApiError | ConnectionFailed, retry_after: str | None) -> None: ...

    def bundle(self, session_id: str, file: BinaryIO, *, end_sequence: int | None = None) -> None:
        """Writes the session's bundle, as far as the session stood at `end_sequence` or stands now, to a file that is open for reading
        as well (`"w+b"`) and is emptied before. What breaks off begins anew. `session_streams.bundle` verifies it."""
        attempts, request = Attempts(self._retries), bundle(session_id, end_sequence)
        while True:
            retry_after: str | None = None
            _empty(file)
            try:
                with self._http.stream(request.method, request.path, params=request.params, headers=self._headers(request)) as response:
                    if response.status_code < _REFUSED:
                        for piece in response.iter_bytes():
                            file.write(piece)
                        failure = _broken_off(file)
                        if failure is None:
                            return
                    else:
                        failure, retry_after = error_of(response.status_code, response.read()), response.headers.get("retry-after")
            except httpx.TransportError as error:
                failure = ConnectionFailed(f"{type(error).__name__}: {error}")
            self._pause(attempts, failure, retry_after)

    def signing_keys(self) -> Body:
        """The trust document: with it bundles and receipts are checked offline."""
        found: Body = self._send(signing_keys()).json()
        return found


class AsyncBundles(ABC):
    """The calls of `AsyncClient`: each as in `Bundles`."""

    _http: httpx.AsyncClient
    _retries: Retries

    @abstractmethod
    async def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    @abstractmethod
    def _headers(self, request: Request) -> dict[str, str]: ...

    @abstractmethod
    async def _pause(self, attempts: Attempts, failure: ApiError | ConnectionFailed, retry_after: str | None) -> None: ...

    async def bundle(self, session_id: str, file: BinaryIO, *, end_sequence: int | None = None) -> None:
        attempts, request = Attempts(self._retries), bundle(session_id, end_sequence)
        while True:
            retry_after: str | None = None
            _empty(file)
            try:
                async with self._http.stream(
                    request.method, request.path, params=request.params, headers=self._headers(request)
                ) as response:
                    if response.status_code < _REFUSED:
                        async for piece in response.aiter_bytes():
                            file.write(piece)
                        failure = _broken_off(file)
                        if failure is None:
                            return
                    else:
                        failure, retry_after = error_of(response.status_code, await response.aread()), response.headers.get("retry-after")
            except httpx.TransportError as error:
                failure = ConnectionFailed(f"{type(error).__name__}: {error}")
            await self._pause(attempts, failure, retry_after)

    async def signing_keys(self) -> Body:
        found: Body = (await self._send(signing_keys())).json()
        return found


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _broken_off(file: BinaryIO) -> ApiError | ConnectionFailed | None:
    """Why a bundle has no envelope at its end: as the service says, if it does. Whether it is one that verifies is not asked here."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _LAST_LINE_BYTES_MAX))
    tail = file.read()
    last = tail.removesuffix(b"\n").rpartition(b"\n")[2]
    if last.startswith(_ENVELOPE) and tail.endswith(_ENVELOPE_END):
        return None
    return (_told(last) if last.startswith(_ERROR) else None) or ConnectionFailed("the bundle broke off")


def _told(line: bytes) -> ApiError | None:
    """What an error's line stands for, if it is one."""
    try:
        status = json.loads(line)["status"]
    except (ValueError, KeyError, RecursionError):
        return None
    return error_of(status, line) if type(status) is int and status >= _REFUSED else None
