"""tau-bench trajectories: a file is a JSON array, each element becomes a session with one Turn and one Run.

Rules upheld here:

- every message of `traj` is a record, kept as it stands in the file; `info` is the last record, the content of
  `run.completed`, which has `reward` as an attribute; task and trial numbers go into the session's metadata;
- the customer (`info.task.user_id`) is the session's subject, an outside name: it goes nowhere else;
- there are no times and no parents in this shape, so none are made up;
- a tool's answer is an error where its text begins with "Error", which is how the environment says so.
"""

import json
import re
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from connectors.sources import claude_records as read
from connectors.sources.bodies import EventBody, Group, Place, Ref, Scalar, software_name
from connectors.sources.records import Broken, Line, Record, digest_of, read_record
from connectors.sources.runs import ImportedRun, thread_opened
from connectors.sources.tools import ToolCalls

SOURCE_KIND = "tau-bench"
_WHITE = re.compile(r"[ \t\r\n]*")
_ROLES = ("user", "assistant", "tool", "system")


class NotTrajectories(ValueError):
    """A file or an element that does not have the shape of tau-bench; says where and why, never what it holds."""


class _Element(Struct):
    traj: list[Raw]
    info: Raw
    reward: float | None = None
    task_id: int | str | None = None
    trial: int | str | None = None


class Trajectory(Struct, frozen=True, kw_only=True):
    """One element. `records` are the messages and, last, `info`; `digest` is that of the element's text."""

    digest: str
    records: tuple[Record, ...]
    reward: float | None
    user_id: str | None
    metadata: dict[str, int | str]


def read_trajectories(data: bytes) -> Iterator[Trajectory | NotTrajectories]:
    """The elements of a file, each on its own: one of another shape comes out as the error that it is.

    Raises NotTrajectories where the file as a whole is no JSON array.
    """
    try:
        elements = _sliced(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise NotTrajectories("not a JSON array of trajectories") from error
    for place, element in enumerate(elements):
        try:
            yield _read(element)
        except (msgspec.DecodeError, RecursionError, NotTrajectories) as error:
            yield NotTrajectories(f"element {place}: {error}")


def _sliced(text: str) -> list[bytes]:
    """The texts of an array's elements. Takes what a stricter parser refuses, so that it refuses single elements only.

    Raises ValueError, RecursionError.
    """
    # What numbers are worth is of no concern here, and some are too long for int().
    scanner = json.JSONDecoder(parse_int=str, parse_float=str)
    elements: list[bytes] = []
    place = _past(text, 0, "[")
    if text[place : place + 1] == "]":
        return elements
    while True:
        _, end = scanner.raw_decode(text, place)
        elements.append(text[place:end].encode())
        end = _past(text, end)
        if text[end : end + 1] == "]":
            break
        place = _past(text, end, ",")
    if _past(text, end + 1) != len(text):
        raise ValueError("more than an array")
    return elements


def _past(text: str, place: int, sign: str = "") -> int:
    """The place after white space and `sign`, and white space again."""
    place = _WHITE.match(text, place).end()  # type: ignore[union-attr]
    if not text.startswith(sign, place):
        raise ValueError(f"expected {sign}")
    return _WHITE.match(text, place + len(sign)).end()  # type: ignore[union-attr]


def _read(text: bytes) -> Trajectory:
    element = msgspec.json.decode(text, type=_Element)
    if not element.traj:
        raise NotTrajectories("a trajectory without messages")
    records: list[Record] = []
    for index, raw in enumerate((*element.traj, element.info)):
        record = read_record(Line(index, bytes(raw), len(raw), digest_of(raw)))
        if isinstance(record, Broken):
            raise NotTrajectories(f"record {index}: {record.reason}")
        records.append(record)
    numbers = {"task_id": element.task_id, "trial": element.trial}
    return Trajectory(
        digest=digest_of(text),
        records=tuple(records),
        reward=element.reward,
        user_id=read.text(read.mapping(read.mapping(records[-1].value).get("task")).get("user_id")),
        metadata={name: value for name, value in numbers.items() if value is not None},
    )


def map_trajectory(session_id: str, trajectory: Trajectory) -> list[Group]:
    """All groups of a trajectory. The Run's end joins the last message: a cursor there means that all is in."""
    run = ImportedRun.named(session_id, "trajectory")
    place = run.place(None)
    tools = ToolCalls(session_id, "")
    *messages, info = trajectory.records
    groups: list[Group] = []
    for record in messages:
        before = [thread_opened(run.thread_id, None, None), *run.opening(None, SOURCE_KIND)] if not groups else []
        after = _tool_events(tools, place, record)
        if len(groups) == len(messages) - 1:
            after += run.settling(None, reward=trajectory.reward, content=info.text)
        groups.append(Group(record.index, record.digest, (*before, _message(place, record), *after), len(before)))
    return groups


def _message(place: Place, record: Record) -> EventBody:
    role = read.mapping(record.value).get("role")
    attributes: dict[str, Scalar | None] = {
        "source_kind": SOURCE_KIND,
        "source_record_kind": "other",
        "source_index": record.index,
        "source_digest": record.digest,
    }
    if not isinstance(role, str) or role not in _ROLES:
        return place.event("source.recorded", attributes, content=record.text)
    return place.event("message.appended", {**attributes, "role": role, "source_record_kind": role}, content=record.text)


def _tool_events(tools: ToolCalls, place: Place, record: Record) -> list[EventBody]:
    source = read.mapping(record.value)
    cause = ("cause", Ref(record.index))
    events: list[EventBody] = []
    calls = source.get("tool_calls")
    if source.get("role") == "assistant" and isinstance(calls, list):
        for call in map(read.mapping, calls):
            name = software_name(read.mapping(call.get("function")).get("name"))
            call_id = tools.called(read.text(call.get("id")) or "")
            events.append(place.event("tool.called", {"call_id": call_id, "name": name}, links=[cause]))
    elif source.get("role") == "tool":
        call_id, gap = tools.returned(read.text(source.get("tool_call_id")) or "")
        content = source.get("content")
        attributes: dict[str, Scalar | None] = {
            "call_id": call_id,
            "name": software_name(source.get("name")),
            "is_error": isinstance(content, str) and content.startswith("Error"),
            "gap": gap,
        }
        events.append(place.event("tool.returned", attributes, links=[cause] if gap else [cause, ("call", call_id)]))
    return events
