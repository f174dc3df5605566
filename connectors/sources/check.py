"""The check of an import: every session is read back and compared with its source.

The source is read here by itself, with the standard library's JSON parser and straight rules, not by the mapping that
wrote it: what both agree on holds. Compared are, per session, the content-bearing events with the source's records in
number, kind and order; their content, deep-equal with numbers of any size; every parent, call and result that resolves
in the source; and that the sequences run 1, 2, 3 without a gap.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial

from msgspec import UNSET, Struct, field

from connectors.sources import claude_code
from connectors.sources.files import PlannedSession, SourceFile, read_some
from connectors.sources.patience import patiently
from connectors.sources.records import LineSplitter, Record, read_record, read_tail
from connectors.sources.runs import agent_thread
from connectors.sources.transport import LogEvent, Transport

_TOLD_MAX = 50
_PAGE_EVENTS = 500


class CheckReport(Struct):
    """Counts over all sessions that were checked, and the differences found (the first 50; `different` counts all)."""

    sessions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    different: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.different == 0

    def expect(self, holds: bool, session_id: str, what: str) -> None:
        """Notes a difference where `holds` is false; `what` names places and numbers, never content."""
        if not holds:
            self.different += 1
            if len(self.differences) < _TOLD_MAX:
                self.differences.append(f"{session_id}: {what}")


class _Expected(Struct):
    """What one record of the source must have become. `parent` is the index of a record before it."""

    index: int
    type: str
    text: bytes
    parent: int | None = None
    parent_missing: bool = False
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


class _Log(Struct):
    """A session's events as the check needs them."""

    content_bearing: list[LogEvent] = field(default_factory=list)
    derived: dict[str, list[LogEvent]] = field(default_factory=dict)
    """tool.* events by the event that caused them."""
    counts: Counter[str] = field(default_factory=Counter)
    run_end: LogEvent | None = None


async def check_session(
    transport: Transport, plan: PlannedSession, session_id: str, report: CheckReport, *, patience_s: float = 120.0
) -> None:
    """Compares one session with its source, part by part, and adds to `report`."""
    log = await _read(transport, session_id, report, patience_s)
    report.sessions += 1
    report.counts.update(log.counts)
    known: set[str] = set()
    for events, expected in _paired(plan, session_id, log):
        report.counts["records"] += len(expected)
        known.update(event.event_id for event in events)
        _compare(report, session_id, events, expected, log)
    strays = sum(event.event_id not in known for event in log.content_bearing)
    report.expect(strays == 0, session_id, f"{strays} content-bearing events of no record")
    if plan.trajectory is not None:
        _compare_end(report, session_id, plan, log.run_end)


async def _read(transport: Transport, session_id: str, report: CheckReport, patience_s: float) -> _Log:
    log, after, sequence = _Log(), 0, 0
    while True:
        page = await patiently(partial(transport.events, session_id, after_sequence=after, limit=_PAGE_EVENTS), patience_s)
        for event in page.events:
            sequence += 1
            report.expect(event.sequence == sequence, session_id, f"sequence {event.sequence} stands where {sequence} should")
            sequence = event.sequence
            log.counts[event.type] += 1
            if event.type in ("message.appended", "source.recorded"):
                log.content_bearing.append(event)
            elif event.type.startswith("tool."):
                for cause in event.linked("cause"):
                    log.derived.setdefault(cause, []).append(event)
            elif event.type == "run.completed":
                log.run_end = event
        if page.next_after_sequence is None:
            return log
        after = page.next_after_sequence


def _paired(plan: PlannedSession, session_id: str, log: _Log) -> Iterator[tuple[list[LogEvent], list[_Expected]]]:
    """The events of each part beside what its source says."""
    if plan.trajectory is not None:
        yield log.content_bearing, [_of_trajectory(record) for record in plan.trajectory.records[:-1]]
        return
    if all(file != plan.file for _, file in plan.agents):
        mains = [event for event in log.content_bearing if event.attribute("source_kind") == claude_code.SOURCE_KIND]
        yield mains, _of_transcript(plan.file)
    for agent_id, file in plan.agents:
        thread_id = agent_thread(session_id, agent_id)
        events = [event for event in log.content_bearing if event.attribute("source_kind") == claude_code.AGENT_SOURCE_KIND]
        yield [event for event in events if event.thread_id == thread_id], _of_transcript(file)


def _records(file: SourceFile) -> Iterator[Record]:
    splitter = LineSplitter()
    with file.open() as handle:
        while piece := read_some(handle, 1 << 20):
            for line in splitter.feed(piece):
                record = read_record(line)
                if isinstance(record, Record):
                    yield record
    tail = splitter.tail()
    last = None if tail is None else read_tail(tail)
    if last is not None:
        yield last


def _of_transcript(file: SourceFile) -> list[_Expected]:
    seen: dict[str, int] = {}
    found: list[_Expected] = []
    for record in _records(file):
        source = _object(record)
        message = source.get("message")
        speaks = source.get("type") in ("user", "assistant") and isinstance(message, dict)
        content = message.get("content") if isinstance(message, dict) else None
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        parent = source.get("parentUuid")
        expected = _Expected(record.index, "message.appended" if speaks else "source.recorded", record.text)
        if isinstance(parent, str) and parent:
            expected.parent = seen.get(parent)
            expected.parent_missing = parent not in seen
        if source.get("type") == "assistant":
            expected.calls = tuple(_name(block.get("id")) for block in blocks if block.get("type") == "tool_use")
        elif source.get("type") == "user":
            expected.results = tuple(_name(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result")
        uuid = source.get("uuid")
        if isinstance(uuid, str):
            seen[uuid] = record.index
        found.append(expected)
    return found


def _object(record: Record) -> dict[str, object]:
    source = json.loads(record.text, parse_int=Decimal, parse_float=Decimal)
    return source if isinstance(source, dict) else {}


def _name(value: object) -> str:
    return value if isinstance(value, str) else ""


def _of_trajectory(record: Record) -> _Expected:
    source = _object(record)
    role = source.get("role")
    expected = _Expected(
        record.index, "message.appended" if role in ("user", "assistant", "tool", "system") else "source.recorded", record.text
    )
    calls = source.get("tool_calls")
    if role == "assistant" and isinstance(calls, list):
        expected.calls = tuple(_name(call.get("id")) for call in calls if isinstance(call, dict))
    elif role == "tool":
        expected.results = (_name(source.get("tool_call_id")),)
    return expected


def _compare(report: CheckReport, session_id: str, events: list[LogEvent], expected: list[_Expected], log: _Log) -> None:
    report.expect(
        [event.attribute("source_index") for event in events] == [record.index for record in expected],
        session_id,
        f"{len(events)} content-bearing events for {len(expected)} records, or another order",
    )
    ids: dict[object, str] = {event.attribute("source_index"): event.event_id for event in events}
    waiting: dict[str, list[object]] = {}
    latest: dict[str, object] = {}
    for event, record in zip(events, expected, strict=False):
        place = f"record {record.index}"
        report.expect(event.type == record.type, session_id, f"{place} is {event.type}, not {record.type}")
        report.expect(_same_content(event, record.text), session_id, f"{place} has other content")
        _compare_parent(report, session_id, event, record, ids)
        derived = log.derived.get(event.event_id, [])
        called = [each for each in derived if each.type == "tool.called"]
        returned = [each for each in derived if each.type == "tool.returned"]
        report.expect(len(called) == len(record.calls), session_id, f"{place} has {len(called)} calls, not {len(record.calls)}")
        for each, tool_id in zip(called, record.calls, strict=False):
            waiting.setdefault(tool_id, []).append(each.attribute("call_id"))
            latest[tool_id] = each.attribute("call_id")
        report.expect(len(returned) == len(record.results), session_id, f"{place} has {len(returned)} results, not {len(record.results)}")
        for each, tool_id in zip(returned, record.results, strict=False):
            open_calls = waiting.get(tool_id)
            call_id = open_calls.pop(0) if open_calls else latest.get(tool_id)
            resolves = call_id is not None
            report.counts["results resolved" if resolves else "results without a call"] += 1
            right = each.attribute("call_id") == call_id if resolves else each.attribute("gap") == "call_missing"
            report.expect(right, session_id, f"{place} answers another call than in the source")
    report.counts["calls"] += sum(len(record.calls) for record in expected)
    report.counts["calls without a result"] += sum(len(calls) for calls in waiting.values())


def _compare_parent(report: CheckReport, session_id: str, event: LogEvent, record: _Expected, ids: Mapping[object, str]) -> None:
    links = event.linked("parent_event")
    if record.parent is not None:
        report.counts["parents resolved"] += 1
        resolved = links == (ids.get(record.parent),)
        report.expect(resolved, session_id, f"record {record.index} has another parent than record {record.parent}")
        return
    report.counts["parents missing in the source"] += record.parent_missing
    gap = "parent_missing" if record.parent_missing else None
    report.expect(
        links == () and event.attribute("source_gap") == gap, session_id, f"record {record.index} has a parent that the source lacks"
    )


def _compare_end(report: CheckReport, session_id: str, plan: PlannedSession, end: LogEvent | None) -> None:
    assert plan.trajectory is not None
    report.counts["records"] += 1
    report.expect(end is not None, session_id, "the trajectory's Run is not completed")
    if end is not None:
        report.expect(_same_content(end, plan.trajectory.records[-1].text), session_id, "info has other content")
        report.expect(end.attribute("reward") == plan.trajectory.reward, session_id, "another reward")


def _same_content(event: LogEvent, text: bytes) -> bool:
    if event.content is UNSET:
        return False
    held = bytes(event.content)
    return held == text or _exact(held) == _exact(text)


def _exact(text: bytes) -> object:
    """JSON with numbers as they are written: an integer never equals a fraction, a number never a truth value."""
    return json.loads(
        text.decode(),
        parse_int=lambda digits: ("integer", Decimal(digits)),
        parse_float=lambda digits: ("fraction", Decimal(digits)),
    )
