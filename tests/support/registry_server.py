"""A schema registry on 127.0.0.1 that speaks the part of Confluent's REST that clients of Avro use.

Like the real ones: numbers are given per schema, not per name; the same schema under another name keeps its number;
texts come back in the registry's own layout; an incompatible version is 409; what is absent is 404 with an error code.
"""

import json
import threading
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.codec import same_bytes
from schemas.compatibility import problems

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Refusal(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class RegistryServer:
    """What the registry holds, and what a test may do to it. `url` is known once it serves."""

    first_id: int = 1
    level: str = "BACKWARD"
    credentials: tuple[str, str] | None = None
    read_only: bool = False
    failures: list[int] = field(default_factory=list)
    """Statuses that the next requests are answered with."""
    requests: list[str] = field(default_factory=list)
    """Every request so far, as `GET /subjects/...`."""
    url: str = ""
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """The number of each version, in order."""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)

    def empty(self) -> None:
        """As if it had just started."""
        for held in (self.failures, self.requests, self.subjects, self.schemas, self.levels):
            held.clear()
        self.read_only = False

    # -- what the routes do ------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        if self.read_only:
            raise Refusal(422, 42205, "the registry is in read-only mode")
        known = self.subjects.get(subject, [])
        for schema_id in known:
            if self.schemas[schema_id] == schema:
                return schema_id
        found = self.incompatibilities(subject, schema)
        if found:
            raise Refusal(409, 409, f"Schema being registered is incompatible with an earlier schema: {found}")
        schema_id = next((known_id for known_id, other in self.schemas.items() if other == schema), self.first_id + len(self.schemas))
        self.schemas[schema_id] = schema
        self.subjects[subject] = [*known, schema_id]
        return schema_id

    def incompatibilities(self, subject: str, schema: Mapping[str, Any]) -> list[str]:
        level = self.levels.get(subject, self.level)
        earlier = [self.schemas[schema_id] for schema_id in self.subjects.get(subject, [])]
        found = []
        for other in earlier if level.endswith("_TRANSITIVE") else earlier[-1:]:
            if level.startswith(("BACKWARD", "FULL")):
                found += problems(reader=schema, writer=other)
            if level.startswith(("FORWARD", "FULL")):
                found += problems(reader=other, writer=schema)
        return found

    def version(self, subject: str, version: str) -> dict[str, object]:
        ids = self.subjects.get(subject)
        if ids is None:
            raise Refusal(404, 40401, f"Subject '{subject}' not found.")
        number = len(ids) if version == "latest" else int(version) if version.isdigit() else 0
        if version != "latest" and number < 1:
            raise Refusal(422, 42202, f"The specified version '{version}' is not a valid version id.")
        if number > len(ids):
            raise Refusal(404, 40402, f"Version {version} not found.")
        return {"subject": subject, "version": number, "id": ids[number - 1], "schema": self._text(ids[number - 1])}

    def _text(self, schema_id: int) -> str:
        """In another order of keys than it came in, as registries parse what they are given."""
        return json.dumps(self.schemas[schema_id], sort_keys=True, separators=(",", ":"))

    # -- the routes --------------------------------------------------------------------------------------------------

    async def _register(self, request: Request) -> object:
        return {"id": self.register(request.path_params["subject"], await _schema(request))}

    async def _lookup(self, request: Request) -> object:
        subject, schema = request.path_params["subject"], await _schema(request)
        for number, schema_id in enumerate(self.subjects.get(subject, []), start=1):
            if same_bytes(self.schemas[schema_id], schema):
                return self.version(subject, str(number))
        self.version(subject, "latest")
        raise Refusal(404, 40403, "Schema not found")

    async def _version(self, request: Request) -> object:
        return self.version(request.path_params["subject"], request.path_params["version"])

    async def _subjects(self, request: Request) -> object:
        return list(self.subjects)

    async def _schema_by_id(self, request: Request) -> object:
        return {"schema": self._text(self._known(request))}

    async def _places(self, request: Request) -> object:
        schema_id = self._known(request)
        return [
            {"subject": subject, "version": number}
            for subject, ids in self.subjects.items()
            for number, each in enumerate(ids, start=1)
            if each == schema_id
        ]

    def _known(self, request: Request) -> int:
        schema_id = int(request.path_params["id"])
        if schema_id not in self.schemas:
            raise Refusal(404, 40403, f"Schema {schema_id} not found")
        return schema_id

    async def _compatible(self, request: Request) -> object:
        self.version(request.path_params["subject"], request.path_params["version"])
        found = self.incompatibilities(request.path_params["subject"], await _schema(request))
        return {"is_compatible": not found, **({"messages": found} if "verbose" in request.query_params else {})}

    async def _config(self, request: Request) -> object:
        subject = request.path_params.get("subject")
        if request.method == "PUT":
            level = (await request.json())["compatibility"]
            if level not in LEVELS:
                raise Refusal(422, 42203, f"Invalid compatibility level {level}")
            if self.read_only:
                raise Refusal(422, 42205, "the registry is in read-only mode")
            self.levels[subject] = level
            return {"compatibility": level}
        if subject is not None and subject not in self.levels:
            raise Refusal(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return {"compatibilityLevel": self.level if subject is None else self.levels[subject]}

    # -- the application ---------------------------------------------------------------------------------------------

    def app(self) -> Starlette:
        def route(path: str, answer: Callable[[Request], Awaitable[object]], *methods: str) -> Route:
            async def endpoint(request: Request) -> Response:
                self.requests.append(f"{request.method} {request.scope['raw_path'].decode()}")
                if self.failures:
                    return JSONResponse({"error_code": 50001, "message": "failing as asked"}, self.failures.pop(0))
                if not self._admitted(request):
                    return JSONResponse({"error_code": 401, "message": "Unauthorized"}, 401)
                try:
                    return JSONResponse(await answer(request), media_type=_CONTENT_TYPE)
                except Refusal as refusal:
                    return JSONResponse({"error_code": refusal.code, "message": refusal.message}, refusal.status, media_type=_CONTENT_TYPE)

            return Route(path, endpoint, methods=list(methods))

        async def elsewhere(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            return Response("not here", error.status_code)

        return Starlette(
            routes=[
                route("/subjects", self._subjects, "GET"),
                route("/subjects/{subject}", self._lookup, "POST"),
                route("/subjects/{subject}/versions", self._register, "POST"),
                route("/subjects/{subject}/versions/{version}", self._version, "GET"),
                route("/schemas/ids/{id:int}", self._schema_by_id, "GET"),
                route("/schemas/ids/{id:int}/versions", self._places, "GET"),
                route("/compatibility/subjects/{subject}/versions/{version}", self._compatible, "POST"),
                route("/config", self._config, "GET"),
                route("/config/{subject}", self._config, "GET", "PUT"),
            ],
            exception_handlers={HTTPException: elsewhere},
        )

    def _admitted(self, request: Request) -> bool:
        if self.credentials is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme == "Basic" and tuple(b64decode(given).decode().split(":", 1)) == self.credentials

    @contextmanager
    def serving(self) -> Iterator["RegistryServer"]:
        """Serves until the end of the block, on a free port, in a thread of its own."""
        server = uvicorn.Server(
            uvicorn.Config(
                self.app(), host="127.0.0.1", port=0, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1
            )
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + 10
            while not server.started:
                assert thread.is_alive(), "the registry server did not start"
                assert time.monotonic() < deadline, "the registry server did not start"
                time.sleep(0.005)
            self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            yield self
        finally:
            server.should_exit = True
            thread.join(10)


async def _schema(request: Request) -> dict[str, Any]:
    try:
        schema = json.loads((await request.json())["schema"])
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError
    except (ValueError, KeyError) as error:
        raise Refusal(422, 42201, "Invalid schema") from error
    return schema
