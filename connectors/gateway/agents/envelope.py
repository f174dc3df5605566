"""The envelopes of answers and what stands around them (page 06, 1.4)."""

import uuid
from typing import Any, Final

import msgspec

from connectors.gateway.agents.failures import Failure
from connectors.gateway.answers import Answer

JSON: Final = "application/json; charset=utf-8"
Headers = list[tuple[bytes, bytes]]


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def headers(request_id: str) -> Headers:
    return [(b"cache-control", b"no-store"), (b"x-request-id", request_id.encode())]


def success(status: int, data: dict[str, Any], meta: dict[str, Any] | None = None, more: Headers | None = None) -> Answer:
    request_id = new_request_id()
    body = msgspec.json.encode({"data": data, "meta": {"request_id": request_id, **(meta or {})}})
    return Answer(status, body, [*headers(request_id), *(more or [])], JSON)


def failure(failed: Failure) -> Answer:
    request_id = new_request_id()
    error = {"code": failed.code, "message": failed.message}
    body = msgspec.json.encode({"error": error, "meta": {"request_id": request_id, **failed.meta}})
    return Answer(failed.status, body, [*headers(request_id), *failed.headers], JSON)
