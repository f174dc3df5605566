"""The synchronous client. `async_client` is its twin: what is decided, is decided in `requests`, `retries` and `sse`."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO

import httpx

from session_streams import recovery, requests
from session_streams.agent_checkpoints import AgentCheckpoints, undecided
from session_streams.bundles import Bundles
from session_streams.capsules import Capsules
from session_streams.erasures import Erasures
from session_streams.errors import ApiError, ConnectionFailed, error_of
from session_streams.models import Answer, Appended, Body, Event, Report, Session
from session_streams.recovery import Checkpoint, CheckpointCreated, Claim, Fork, HistoryEnd, HistoryLine, Received, Source, Upload
from session_streams.requests import Positions, Request
from session_streams.retries import AGAIN, Attempts, Retries
from session_streams.sse import Parser
from session_streams.transfer import Transfer


class Client(AgentCheckpoints, Erasures, Bundles, Capsules):
    """Thread-safe as httpx is. Every call raises `ApiError` where the service refuses, `ConnectionFailed` where it is away."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`timeout_s` is for one attempt, and for a silence on a stream; `retries` bounds the attempts of a call."""
        self._http = httpx.Client(base_url=url, headers={"authorization": f"Bearer {api_key}"}, timeout=timeout_s, transport=transport)
        self._timeout_s = timeout_s
        self._retries = retries or Retries()
        self._sleep = sleep
        self._positions = Positions()

    def create_session(
        self, *, subject: str | None = None, metadata: Any = None, origin: str | None = None, key: str | None = None
    ) -> Session:
        """The same `key` gives the same session again."""
        return Session.of(self._send(requests.create_session(subject, metadata, origin, key=key)).json())

    def session(self, session_id: str) -> Session:
        return Session.of(self._send(Request("GET", requests.session_path(session_id))).json())

    def sessions(self, *, subject_id: str | None = None, page_size: int = 100) -> Iterator[Session]:
        """All sessions that this key may see, newest first, fetched page by page."""
        cursor: str | None = None
        while True:
            page = self._send(requests.listing(cursor, page_size, subject_id)).json()
            yield from map(Session.of, page["sessions"])
            cursor = page["cursor"]
            if cursor is None:
                return

    def append(
        self, session_id: str, event: Body, *, key: str | None = None, expected_sequence: int | None = None, report: Report | None = None
    ) -> Appended:
        request = requests.append(session_id, event, key=key, expected_sequence=expected_sequence, report=report)
        return Appended.of(self._send(request))

    def append_many(
        self,
        session_id: str,
        events: Iterable[Body | bytes],
        *,
        key: str | None = None,
        expected_sequence: int | None = None,
        report: Report | None = None,
    ) -> Appended:
        """All of them or none, as one command. Bytes are taken as JSON on one line each."""
        request = requests.append_many(session_id, events, key=key, expected_sequence=expected_sequence, report=report)
        return Appended.of(self._send(request))

    def events(self, session_id: str, *, after_sequence: int = 0, page_size: int = 500) -> Iterator[Event]:
        """The events from behind `after_sequence` to the end that the session has when it is reached."""
        after: int | None = after_sequence
        while after is not None:
            page = self._send(requests.page(session_id, after, page_size)).json()
            yield from map(Event.of, page["events"])
            after = page["next_after_sequence"]

    def follow(self, session_id: str, *, after_sequence: int = 0, replay_only: bool = False) -> Iterator[Event]:
        """Events as they come. A broken stream is resumed behind the last event; it ends with the session, or with
        `replay_only` at the end that the session has now."""
        after, attempts = after_sequence, Attempts(self._retries)
        while True:
            request = requests.stream(session_id, after, replay_only)
            failure: ApiError | ConnectionFailed = ConnectionFailed("the stream ended")
            retry_after: str | None = None
            try:
                with self._http.stream("GET", request.path, params=request.params, headers=self._headers(request)) as response:
                    if response.status_code >= 400:
                        failure, retry_after = error_of(response.status_code, response.read()), response.headers.get("retry-after")
                    else:
                        parser = Parser()
                        for chunk in response.iter_raw():
                            attempts.alive()
                            for message in parser.feed(chunk):
                                if message.event == "end":
                                    return
                                attempts.progressed()
                                after = int(message.id)
                                yield Event.of(json.loads(message.data))
            except httpx.TransportError as error:
                failure = failed(error)
            self._pause(attempts, failure, retry_after)

    def export(self, session_id: str, *, from_sequence: int = 1, end_sequence: int | None = None, lineage: bool = False) -> Iterator[bytes]:
        """The lines of the session's export, each with its line end: header, positions, trailer (docs/export.md); with `lineage`,
        behind those of its ancestors. What breaks off is continued where it broke off. `session_streams.export` verifies them;
        raises `ExportChanged` too."""
        transfer = Transfer(session_id, from_sequence=from_sequence, end_sequence=end_sequence, lineage=lineage)
        attempts = Attempts(self._retries)
        while True:
            request = transfer.next_request()
            failure: ApiError | ConnectionFailed = ConnectionFailed("the export broke off")
            retry_after: str | None = None
            try:
                with self._http.stream("GET", request.path, params=request.params, headers=self._headers(request)) as response:
                    if response.status_code >= 400:
                        failure, retry_after = error_of(response.status_code, response.read()), response.headers.get("retry-after")
                    else:
                        for chunk in response.iter_bytes():
                            attempts.alive()
                            for line in transfer.feed(chunk):
                                attempts.progressed()
                                yield line
                        if transfer.done:
                            return
                        failure = transfer.failure or failure
            except httpx.TransportError as error:
                failure = failed(error)
            self._pause(attempts, failure, retry_after)

    def upload_snapshot(self, session_id: str, content: bytes | BinaryIO, *, report: Report, key: str | None = None) -> Upload:
        """Takes in recovery material, for a checkpoint to name: bytes, or a file from where it stands. A file that cannot be read
        twice is sent once, without a digest to check it by."""
        source = Source(content)
        request = recovery.upload(session_id, report, source.sha256(), key=key)
        return Upload.of(self._send(request, source).json())

    def create_checkpoint(
        self,
        session_id: str,
        *,
        report: Report,
        through_sequence: int,
        through_event_id: str,
        snapshot: Body | None,
        continuation: Body,
        harness: str | None = None,
        harness_revision: str | None = None,
        environment_revision: str | None = None,
        key: str | None = None,
    ) -> CheckpointCreated:
        """`snapshot` is {"upload_id"} or {"provider", "reference"}; `continuation` {"kind": "native", "upload_id"} or
        {"kind": "event_log_rebuild"}."""
        given = {
            "through_sequence": through_sequence, "through_event_id": through_event_id, "snapshot": snapshot,
            "continuation": continuation, "harness": harness, "harness_revision": harness_revision,
            "environment_revision": environment_revision,
        }  # fmt: skip
        return CheckpointCreated.of(self._send(recovery.create_checkpoint(session_id, given, report=report, key=key)).json())

    def checkpoints(self, session_id: str, *, page_size: int = 100) -> Iterator[Checkpoint]:
        """All of a session, newest first, fetched page by page."""
        cursor: str | None = None
        while True:
            page = self._send(recovery.checkpoints(session_id, cursor, page_size)).json()
            yield from map(Checkpoint.of, page["checkpoints"])
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def checkpoint_content(self, session_id: str, checkpoint_id: str, *, part: str = "snapshot") -> Iterator[bytes]:
        """What a checkpoint retains, piece by piece; `part` is snapshot or native. What breaks off is continued where it broke off.
        Raises `KeptElsewhere`."""
        request = recovery.checkpoint_content(session_id, checkpoint_id, part)
        received, attempts = Received(), Attempts(self._retries)
        while True:
            failure: ApiError | ConnectionFailed
            retry_after: str | None = None
            try:
                with self._http.stream("GET", request.path, params=request.params, headers=self._headers(request)) as response:
                    if response.status_code >= 400:
                        failure, retry_after = error_of(response.status_code, response.read()), response.headers.get("retry-after")
                    elif response.headers["content-type"] == requests.JSON:
                        raise recovery.kept_elsewhere(response.read())
                    else:
                        received.begin(response.headers["content-type"], request.path)
                        for piece in response.iter_bytes():
                            if new := received.new(piece):
                                attempts.progressed()
                                yield new
                        return
            except httpx.TransportError as error:
                failure = failed(error)
            self._pause(attempts, failure, retry_after)

    def download(
        self, session_id: str, checkpoint_id: str, file: BinaryIO, *, part: str = "snapshot", sha256: bytes | None = None
    ) -> bytes:
        """Writes what a checkpoint retains to a file, and returns its SHA-256. Raises `DigestMismatch` where `sha256` is another."""
        hashed = hashlib.sha256()
        for piece in self.checkpoint_content(session_id, checkpoint_id, part=part):
            hashed.update(piece)
            file.write(piece)
        return recovery.require_digest(hashed.digest(), sha256)

    def fork(
        self,
        session_id: str,
        *,
        checkpoint_id: str | None = None,
        at_event: str | None = None,
        through_sequence: int | None = None,
        key: str | None = None,
    ) -> Fork:
        """By checkpoint, or at an event; the child can be read once this returns."""
        given = {"checkpoint_id": checkpoint_id, "at_event": at_event, "through_sequence": through_sequence}
        return Fork.of(self._send(recovery.fork(session_id, given, key=key)).json())

    def claim(self, session_id: str, run_id: str, *, key: str | None = None, **terms: Any) -> Claim:
        """`terms`: lease_ms, incomplete_ok, harness_revision, environment_revision. The same `key` gives the same grant again."""
        return Claim.of(self._send(recovery.claim(session_id, run_id, terms, key=key)).json())

    def claim_next(self, lanes: Sequence[str], *, wait_ms: int = 0, key: str | None = None, **terms: Any) -> Claim | None:
        """Any Run of these lanes; None where none came within `wait_ms`. Else as `claim`."""
        answer = self._send(recovery.claim_next(lanes, wait_ms, terms, key=key))
        return None if answer.status == 204 else Claim.of(answer.json())

    def replace(self, session_id: str, run_id: str, *, key: str | None = None, **evidence: Any) -> Claim:
        """Takes a Run whose attempt was ready. A refusal tells in `missing` all that the `evidence` lacks."""
        return Claim.of(self._send(recovery.replace(session_id, run_id, evidence, key=key)).json())

    def conversation(
        self, claimed: Claim, *, report: Report | None = None, after_sequence: int = 0, lineage: bool = True, require_complete: bool = False
    ) -> Iterator[HistoryLine]:
        """The history for the holder of a Run, ancestors first; the last line is a `HistoryEnd`. Where it breaks off,
        `ConnectionFailed` is raised, and it is to be asked for anew. `report`: once the harness has started anew, with its task.
        """
        request = recovery.conversation(claimed, report or claimed.report, after_sequence, lineage, require_complete)
        attempts = Attempts(self._retries)
        while True:
            begun = False
            try:
                with self._http.stream("GET", request.path, params=request.params, headers=self._headers(request)) as response:
                    if response.status_code < 400:
                        for line in response.iter_lines():
                            begun = True
                            yield (told := recovery.history_line(line))
                            if isinstance(told, HistoryEnd):
                                return
                        raise ConnectionFailed("the history broke off")
                    failure: ApiError | ConnectionFailed = error_of(response.status_code, response.read())
                    retry_after = response.headers.get("retry-after")
            except httpx.TransportError as error:
                failure, retry_after = failed(error), None
                if begun:
                    raise failure from error
            self._pause(attempts, failure, retry_after)

    def capabilities(self, **query: Any) -> Body:
        """What is supported, each exact tuple with its evidence; `query`: capability, or the coordinates of one tuple."""
        found: Body = self._send(recovery.capabilities(query)).json()
        return found

    def request(
        self,
        method: str,
        path: str,
        body: Body | bytes | None = None,
        *,
        key: str | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Any route of the interface, with the same retries."""
        return self._send(requests.general(method, path, body, key=key, params=params, headers=headers))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, request: Request, source: Source | None = None) -> Answer:
        attempts = Attempts(self._retries)
        while True:
            failure: ApiError | ConnectionFailed
            retry_after: str | None = None
            try:
                response = self._http.request(
                    request.method,
                    request.path,
                    params=request.params,
                    headers=self._headers(request),
                    content=request.content if source is None else source.pieces(),
                    timeout=self._timeout_s + request.waits_s,
                )
            except httpx.TransportError as error:
                failure = failed(error)
            else:
                if response.status_code < 400:
                    answer = Answer(response.status_code, response.headers, response.content)
                    self._positions.learn(request, answer)
                    return answer
                failure, retry_after = error_of(response.status_code, response.content), response.headers.get("retry-after")
            if (source is not None and not source.again) or (request.once and not undecided(failure)):
                raise failure
            self._pause(attempts, failure, retry_after)

    def _pause(self, attempts: Attempts, failure: ApiError | ConnectionFailed, retry_after: str | None) -> None:
        """Waits for the next attempt, or raises `failure` where there is none."""
        if isinstance(failure, ApiError) and failure.status not in AGAIN:
            raise failure
        pause_s = attempts.pause_s(retry_after)
        if pause_s is None:
            raise failure
        self._sleep(pause_s)

    def _headers(self, request: Request) -> dict[str, str]:
        return {**self._positions.headers_for(request.path), **request.headers}


def failed(error: httpx.TransportError) -> ConnectionFailed:
    """What a transport could not do, as an error of this package."""
    made = ConnectionFailed(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made
