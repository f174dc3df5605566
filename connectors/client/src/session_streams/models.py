"""What the clients take and give. `raw` holds the whole JSON object, so nothing that the service tells is lost."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """An answer below 400. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def repeated(self) -> bool:
        """Whether this is the recorded outcome of an earlier request."""
        return self.headers.get("session-streams-repeated") == "true"

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Report:
    """What a worker proves with each report into its Run. `expected_run_sequence` may be missing for a renewal."""

    run_id: str
    generation: int
    native_task_id: str
    expected_run_sequence: int | None = None

    def header(self) -> str:
        position = "" if self.expected_run_sequence is None else f";{self.expected_run_sequence}"
        return f"{self.run_id};{self.generation};{self.native_task_id}{position}"


@dataclass(frozen=True)
class Session:
    """A session as it stands. After a creation `status` is open, and what only a read tells is in `raw`."""

    session_id: str
    sequence: int
    position: str | None
    subject_id: str | None
    status: str
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Session":
        return cls(raw["session_id"], raw["sequence"], raw["position"], raw["subject_id"], raw.get("status", "open"), raw)


@dataclass(frozen=True)
class Appended:
    """An accepted append. `event_ids` are those of the events sent, in order; `sequence` is the session's afterwards."""

    session_id: str
    first_sequence: int
    last_sequence: int
    sequence: int
    position: str | None
    event_ids: tuple[str, ...]
    run_sequence: int | None
    repeated: bool
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, answer: Answer) -> "Appended":
        raw = answer.json()
        return cls(
            raw["session_id"],
            raw["first_sequence"],
            raw["last_sequence"],
            raw["sequence"],
            raw["position"],
            tuple(raw["event_ids"]),
            raw.get("run_sequence"),
            answer.repeated,
            raw,
        )


@dataclass(frozen=True)
class Gap:
    """Why content cannot be shown: expired, erased, omitted or unreadable."""

    reason: str


@dataclass(frozen=True)
class Event:
    """An accepted event. `content` is None where there is none, and where `gap` says why it cannot be shown."""

    sequence: int
    event_id: str
    type: str
    attributes: Body
    content: Any
    gap: Gap | None
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Event":
        gap = raw.get("gap")
        return cls(
            raw["sequence"],
            raw["event_id"],
            raw["type"],
            raw.get("attributes", {}),
            raw.get("content"),
            None if gap is None else Gap(gap["reason"]),
            raw,
        )


def encoded(body: Body) -> bytes:
    """JSON on one line. Raises ValueError for what JSON has no form for (NaN, infinities)."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # A lone surrogate: the service names the field that holds it.
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()


def encoded_lines(events: Iterable[Body | bytes]) -> bytes:
    """NDJSON; bytes are taken as JSON on one line."""
    return b"".join((event if isinstance(event, bytes) else encoded(event)) + b"\n" for event in events)
