"""Requests as they stand on the wire: paths, headers and bodies that a client library would put right."""

import http.client
import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import Struct


class Served(Protocol):
    """Somewhere at `url`: http://host:port."""

    @property
    def url(self) -> str: ...


class Told(Struct, frozen=True):
    """An answer; header names in lower case, `body` decoded where there is one."""

    status: int
    headers: dict[str, str]
    body: Any
    raw: bytes

    @property
    def error(self) -> tuple[int, str, str]:
        return self.status, self.body["error"]["code"], self.body["error"]["message"]

    @property
    def data(self) -> Any:
        return self.body["data"]


def ask(
    served: Served, method: str, target: str, key: str | None = None, body: bytes | Iterable[bytes] | None = None, **headers: str
) -> Told:
    """One request on a connection of its own. `key` is presented as a bearer; underscores of header names stand for dashes."""
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=20)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["authorization"] = f"Bearer {key}"
        connection.request(method, target, body=body, headers=given)
        answer = connection.getresponse()
        raw = answer.read()
        told = Told(answer.status, {name.lower(): value for name, value in answer.getheaders()}, json.loads(raw) if raw else None, raw)
    finally:
        connection.close()
    return told


def is_enveloped(told: Told) -> bool:
    """Whether it is an answer of theirs: its headers, its members, and one id in both."""
    request_id = told.headers["x-request-id"]
    return (
        re.fullmatch(r"req_[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}", request_id) is not None
        and told.headers["content-type"] == "application/json; charset=utf-8"
        and told.headers["cache-control"] == "no-store"
        and list(told.body) == (["data", "meta"] if told.status < 400 else ["error", "meta"])
        and next(iter(told.body["meta"].items())) == ("request_id", request_id)
        and (told.status < 400 or list(told.body["error"]) == ["code", "message"])
        and told.raw == json.dumps(told.body, ensure_ascii=False, separators=(",", ":")).encode()
    )
