"""The REST of a schema registry (Confluent's, Karapace's, Apicurio's compatible one), as far as we use it.

Rules: what the registry does not have is `UnknownSchema`; what may pass by itself is tried again a few times within
seconds and is then `RegistryUnavailable`; everything else is for the operator: `Misconfigured`. Errors and logs name
the address without its password.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct

from schemas.catalog import UnknownSchema
from streams.errors import Misconfigured, RegistryUnavailable, StreamsError

LATEST: Final = "latest"
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ABSENT: Final = frozenset({40401, 40402, 40403, 40408})
"""Subject, version, schema, level of a subject not found: answers of a registry, and not of something else there."""
_PAUSES_S: Final = (0.1, 0.4)
"""Before the second and the third try. Every request of ours may be repeated: registering again gives the same number."""


T = TypeVar("T")


class Registered(NamedTuple):
    """A version of a subject, by the registry's own names and numbers."""

    id: int
    subject: str
    version: int
    schema: Mapping[str, Any]


class _Place(Struct):
    subject: str
    version: int


class _Schema(Struct):
    schema: str


class _Version(Struct):
    id: int
    subject: str
    version: int
    schema: str


class _Id(Struct):
    id: int


class _Compatibility(Struct):
    is_compatible: bool
    messages: list[str] | None = None


class _Level(Struct):
    compatibilityLevel: str


class _NewLevel(Struct):
    compatibility: str


class _Problem(Struct):
    error_code: int | None = None
    message: str = ""


class RegistryClient:
    """Blocking and thread-safe. A name and a password in the URL are sent as basic authentication."""

    def __init__(self, url: str, *, timeout_s: float = 2.0) -> None:
        """`timeout_s` is for one try of three. Raises `Misconfigured` where the URL is none."""
        base = _url(url)
        self.address: str = public_address(url)
        self._http = httpx.Client(
            base_url=self.address,
            auth=(base.username, base.password) if base.username else None,
            timeout=timeout_s,
            headers={"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE},
        )

    def close(self) -> None:
        self._http.close()

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Raises `UnknownSchema`."""
        return self._parsed(self._ask(_Schema, "GET", f"/schemas/ids/{schema_id}").schema)

    def places(self, schema_id: int) -> list[tuple[str, int]]:
        """Subject and version of each place where the schema is registered. Raises `UnknownSchema`."""
        return [(place.subject, place.version) for place in self._ask(list[_Place], "GET", f"/schemas/ids/{schema_id}/versions")]

    def version(self, subject: str, version: int | str) -> Registered:
        """`version` counts from 1, or is LATEST. Raises `UnknownSchema`."""
        found = self._ask(_Version, "GET", f"/subjects/{_quoted(subject)}/versions/{version}")
        return Registered(found.id, found.subject, found.version, self._parsed(found.schema))

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """The number of the schema, a new one where it is not registered yet. Raises `Misconfigured` where it is refused."""
        return self._ask(_Id, "POST", f"/subjects/{_quoted(subject)}/versions", _body(schema)).id

    def incompatibilities(self, subject: str, schema: Mapping[str, Any]) -> list[str]:
        """Why the registry would refuse the schema as the subject's next version; empty where it would not, or has none."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{LATEST}?verbose=true"
        try:
            answer = self._ask(_Compatibility, "POST", path, _body(schema))
        except UnknownSchema:
            return []
        return [] if answer.is_compatible else answer.messages or ["not compatible"]

    def compatibility_level(self, subject: str) -> str:
        """The level that holds for the subject: its own, else the registry's."""
        try:
            return self._ask(_Level, "GET", f"/config/{_quoted(subject)}").compatibilityLevel
        except UnknownSchema:
            return self._ask(_Level, "GET", "/config").compatibilityLevel

    def set_compatibility_level(self, subject: str, level: str) -> None:
        """Raises `Misconfigured` where it is refused."""
        self._ask(_NewLevel, "PUT", f"/config/{_quoted(subject)}", {"compatibility": level})

    def _ask(self, kind: type[T], method: str, path: str, body: Mapping[str, object] | None = None) -> T:
        content = None if body is None else json.dumps(body)
        doing = f"schema registry {self.address}: {method} {path}"
        for pause_s in (*_PAUSES_S, None):
            try:
                return _answer(kind, self._send(method, path, content, doing), doing)
            except RegistryUnavailable:
                if pause_s is None:
                    raise
                time.sleep(pause_s)
        raise AssertionError("the last try answers or raises")

    def _send(self, method: str, path: str, content: str | None, doing: str) -> httpx.Response:
        try:
            return self._http.request(method, path, content=content)
        except httpx.TransportError as error:
            raise RegistryUnavailable(f"{doing}: {type(error).__name__}") from error
        except httpx.HTTPError as error:
            raise Misconfigured(f"{doing}: {type(error).__name__}") from error

    def _parsed(self, text: str) -> Mapping[str, Any]:
        try:
            schema = json.loads(text)
        except ValueError:
            schema = None
        if not isinstance(schema, dict):
            raise Misconfigured(f"schema registry {self.address}: a schema of ours is an Avro record, what it holds is not")
        return schema


def _body(schema: Mapping[str, Any]) -> dict[str, object]:
    return {"schema": json.dumps(schema), "schemaType": "AVRO"}


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def public_address(url: str) -> str:
    """Where the registry is, without name and password. Raises `Misconfigured` where the URL is none."""
    return str(_url(url).copy_with(username=None, password=None)).rstrip("/")


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise Misconfigured("the registry's URL cannot be read") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise Misconfigured("the registry's URL must start with http:// or https:// and a host")
    return url


def _answer(kind: type[T], response: httpx.Response, doing: str) -> T:
    if response.status_code != 200:
        raise _translated(response, doing)
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{doing}: not the answer of a schema registry") from error


def _translated(response: httpx.Response, doing: str) -> StreamsError | UnknownSchema:
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem()
    status = response.status_code
    detail = f"{doing}: {status} {problem.message[:500]}".rstrip()
    if status == 404 and problem.error_code in _ABSENT:
        return UnknownSchema(detail)
    if status >= 500 or status in {408, 429}:
        return RegistryUnavailable(detail)
    if status in {401, 403}:
        return Misconfigured(f"{detail} (name and password stand in the URL: https://NAME:PASSWORD@HOST)")
    if problem.error_code is None:
        return Misconfigured(f"{detail} (no schema registry answers there)")
    return Misconfigured(detail)
