"""Recovery as the clients see it: claims, checkpoints, forks and histories, and the requests for them. Pure: the clients send."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from session_streams.errors import DigestMismatch, KeptElsewhere, SessionStreamsError
from session_streams.models import Body, Event, Report
from session_streams.requests import NDJSON, Request, change, new_key, session_path

OCTETS: Final = "application/octet-stream"
PIECE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class Upload:
    """`digest` is of the sealed bytes; None where the session keeps none."""

    upload_id: str
    bytes: int
    digest: str | None

    @classmethod
    def of(cls, raw: Body) -> "Upload":
        return cls(raw["upload_id"], raw["bytes"], raw["digest"])


@dataclass(frozen=True)
class Checkpoint:
    """As it is listed: recovery material, without its bytes. Times as RFC 3339."""

    checkpoint_id: str
    session_id: str
    run_id: str | None
    through_sequence: int
    through_event_id: str
    harness_revision: str | None
    environment_revision: str | None
    continuation_kind: str
    created_at: str
    expires_at: str
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Checkpoint":
        return cls(
            raw["id"], raw["session_id"], raw["run_id"], raw["through_sequence"], raw["through_event_id"], raw["harness_revision"],
            raw["environment_revision"], raw["continuation_kind"], raw["created_at"], raw["expires_at"], raw,
        )  # fmt: skip


@dataclass(frozen=True)
class CheckpointCreated:
    """`run_sequence` is the position that the next report has to name. Without `retained`, it is metadata only."""

    checkpoint_id: str
    expires_at: str
    retained: bool
    run_sequence: int
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "CheckpointCreated":
        return cls(raw["checkpoint_id"], raw["expires_at"], raw["retained"], raw["run_sequence"], raw)


@dataclass(frozen=True)
class Fork:
    """`session_id` is the child's. `restores` says of history, files, native_continuation and live_processes what came along."""

    session_id: str
    fork_id: str
    source_session_id: str
    through_sequence: int
    through_event_id: str
    restores: Body
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Fork":
        return cls(
            raw["session_id"], raw["fork_id"], raw["source_session_id"], raw["through_sequence"], raw["through_event_id"],
            raw["restores"], raw,
        )  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A Run that is held, until `lease_expires_at` unless it is renewed. `recovery` says from what to go on."""

    session_id: str
    run_id: str
    generation: int
    native_task_id: str
    lease_expires_at: str
    run_sequence: int
    run: Body
    recovery: Body
    frontier_sequence: int
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Claim":
        return cls(
            raw["session_id"], raw["run_id"], raw["generation"], raw["native_task_id"], raw["lease_expires_at"], raw["run_sequence"],
            raw["run"], raw["recovery"], raw["frontier_sequence"], raw,
        )  # fmt: skip

    @property
    def report(self) -> Report:
        """What the first report has to prove."""
        return Report(self.run_id, self.generation, self.native_task_id, self.run_sequence)


@dataclass(frozen=True)
class HistoryGap:
    """Between these positions of a session content cannot be read."""

    session_id: str
    first_sequence: int
    last_sequence: int
    reason: str


@dataclass(frozen=True)
class HistoryEnd:
    """A history without it is not whole. `complete`: there was no gap."""

    through_sequence: int
    complete: bool


HistoryLine = Event | HistoryGap | HistoryEnd


def history_line(line: str) -> HistoryLine:
    """Raises `SessionStreamsError` for what is no line of a history."""
    raw = json.loads(line)
    match raw.pop("kind", None):
        case "event":
            return Event.of(raw)
        case "gap":
            return HistoryGap(raw["session_id"], raw["first_sequence"], raw["last_sequence"], raw["reason"])
        case "end":
            return HistoryEnd(raw["through_sequence"], raw["complete"])
    raise SessionStreamsError("a line that is neither event, gap nor end")


# -- requests ---------------------------------------------------------------------------------------------------------


def upload(session_id: str, report: Report, sha256: bytes | None, *, key: str | None) -> Request:
    """Without its content, which the client adds for each attempt anew."""
    headers = {"content-type": OCTETS, "idempotency-key": key or new_key(), "session-streams-report": report.header()}
    if sha256 is not None:
        headers["repr-digest"] = f"sha-256=:{base64.b64encode(sha256).decode()}:"
    return Request("POST", session_path(session_id) + "/snapshots", headers)


def create_checkpoint(session_id: str, given: Mapping[str, Any], *, report: Report, key: str | None) -> Request:
    return change(session_path(session_id) + "/checkpoints", _given(given), key=key, report=report)


def checkpoints(session_id: str, cursor: str | None, limit: int) -> Request:
    return Request("GET", session_path(session_id) + "/checkpoints", {}, _params({"cursor": cursor, "limit": limit}))


def checkpoint_content(session_id: str, checkpoint_id: str, part: str) -> Request:
    return Request("GET", f"{session_path(session_id)}/checkpoints/{checkpoint_id}/content", {}, {"part": part})


def fork(session_id: str, given: Mapping[str, Any], *, key: str | None) -> Request:
    return change(session_path(session_id) + "/forks", _given(given), key=key)


def claim(session_id: str, run_id: str, given: Mapping[str, Any], *, key: str | None) -> Request:
    return change(f"{session_path(session_id)}/runs/{run_id}/claim", _given(given), key=key)


def claim_next(lanes: Sequence[str], wait_ms: int, given: Mapping[str, Any], *, key: str | None) -> Request:
    request = change("/v1/runs/claim", {"lanes": list(lanes), "wait_ms": wait_ms, **_given(given)}, key=key)
    return Request(request.method, request.path, request.headers, request.params, request.content, waits_s=wait_ms / 1000)


def replace(session_id: str, run_id: str, given: Mapping[str, Any], *, key: str | None) -> Request:
    return change(f"{session_path(session_id)}/runs/{run_id}/replace", _given(given), key=key)


def conversation(claimed: Claim, report: Report, after_sequence: int, lineage: bool, require_complete: bool) -> Request:
    path = f"{session_path(claimed.session_id)}/runs/{claimed.run_id}/attempts/{claimed.generation}/conversation"
    params = _params({"after_sequence": after_sequence, "lineage": lineage, "require_complete": require_complete})
    return Request("GET", path, {"accept": NDJSON, "session-streams-report": report.header()}, params)


def capabilities(given: Mapping[str, Any]) -> Request:
    return Request("GET", "/v1/support/capabilities", {}, _params(given))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _params(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in _given(values).items()}


# -- bytes ------------------------------------------------------------------------------------------------------------


class Source:
    """What is uploaded: bytes, or an open file from where it stands. A file that cannot be read again is sent once."""

    def __init__(self, content: bytes | BinaryIO) -> None:
        self._content = content
        self.again = isinstance(content, bytes) or content.seekable()
        """Whether it can be sent again."""
        self._start = 0 if isinstance(content, bytes) or not self.again else content.tell()

    def sha256(self) -> bytes | None:
        """None where it could not be read again afterwards."""
        if not self.again:
            return None
        hashed = hashlib.sha256()
        for piece in self.pieces():
            hashed.update(piece)
        return hashed.digest()

    def pieces(self) -> Iterator[bytes]:
        if isinstance(self._content, bytes):
            yield self._content
            return
        if self.again:
            self._content.seek(self._start)
        while piece := self._content.read(PIECE_BYTES):
            yield piece


class Received:
    """Bytes on their way in, over as many answers as it takes: what comes a second time is dropped."""

    def __init__(self) -> None:
        self.size = 0
        self._behind = 0

    def begin(self, content_type: str, path: str) -> None:
        """A new answer. Raises `SessionStreamsError` for one that holds no bytes."""
        if content_type.partition(";")[0] != OCTETS:
            raise SessionStreamsError(f"{path}: expected {OCTETS}, got {content_type}")
        self._behind = self.size

    def new(self, piece: bytes) -> bytes:
        """What of a piece has not come before; empty where nothing."""
        dropped = min(self._behind, len(piece))
        self._behind -= dropped
        self.size += len(piece) - dropped
        return piece[dropped:]


def kept_elsewhere(body: bytes) -> KeptElsewhere:
    raw = json.loads(body)
    return KeptElsewhere(raw["provider"], raw["reference"])


def require_digest(found: bytes, expected: bytes | None) -> bytes:
    """Raises `DigestMismatch`."""
    if expected not in (None, found):
        raise DigestMismatch(f"sha256 {found.hex()} came, and {(expected or b'').hex()} was expected")
    return found
