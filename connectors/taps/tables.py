"""The tables of one partition: sessions, minutes and tools, folded from its records in their order.

Rules: the tables are a function of the records below `next_offset` and of nothing else (minutes are those of
`accepted_at`, no clock is asked), so whoever reads the partition from its beginning has the same ones; a record below
`next_offset` was counted before and is not counted again, nor is a sequence that its session has passed; a record that
cannot be read is counted under its reason; what grows with time has a bound.
"""

import heapq
from collections import Counter
from typing import Final

from streams.errors import RecordUnreadable
from streams.log.record import decode_event
from streams.session.events import Event, ToolAttributes

MINUTES_KEPT: Final = 7 * 24 * 60
"""Minutes before a partition's newest one that keep a row."""
TOOLS_KEPT: Final = 1000
"""Names of tools with a row of their own, the first ones seen in a partition: names come from outside."""
OTHER_TOOLS: Final = "(other)"
UNKNOWN_TOOL: Final = "(unknown)"
"""Of a result whose call is not in the log, or was answered before."""
OPEN_CALLS_KEPT: Final = 1000
"""Calls of a session that wait for their result; the oldest give way."""

_MINUTE_US: Final = 60_000_000
_END_OF_TIME_US: Final = 253_402_300_800_000_000
"""The year 10000: a time behind it would push every minute out of the table."""
_NO_MINUTE: Final = -1


class ToolCounts:
    """Calls, results, and results that were errors."""

    __slots__ = ("calls", "errors", "returned")

    def __init__(self) -> None:
        self.calls = 0
        self.returned = 0
        self.errors = 0

    def add(self, other: "ToolCounts") -> None:
        self.calls += other.calls
        self.returned += other.returned
        self.errors += other.errors


class Minute:
    """`sessions` is how many different ones had an event in it."""

    __slots__ = ("events", "sessions", "tools")

    def __init__(self) -> None:
        self.events = 0
        self.sessions = 0
        self.tools: dict[str, ToolCounts] = {}

    def add(self, other: "Minute") -> None:
        self.events += other.events
        self.sessions += other.sessions
        for name, counts in other.tools.items():
            self.tools.setdefault(name, ToolCounts()).add(counts)


class _Session:
    __slots__ = ("closed", "minute", "open_calls", "sequence")

    def __init__(self) -> None:
        self.sequence = 0
        self.minute = _NO_MINUTE
        self.closed = False
        self.open_calls: dict[str, str] | None = None


class PartitionTables:
    """Belongs to one thread. `minutes` are numbered from the epoch."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.events = 0
        self.live = 0
        self.closed = 0
        self.missing = 0
        """Sequences that were passed over: unreadable records, or a log whose beginning is gone."""
        self.repeated = 0
        """Records at a place of their own that repeat a sequence; the log never holds one."""
        self.accepted_at = 0
        self.unreadable: Counter[str] = Counter()
        self.minutes: dict[int, Minute] = {}
        self.tools: dict[str, ToolCounts] = {}
        self._sessions: dict[str, _Session] = {}
        self._minute_numbers: list[int] = []
        self._oldest_minute = 0

    @property
    def sessions(self) -> int:
        return self.live + self.closed

    def apply(self, offset: int, value: bytes | None) -> None:
        """Counts one record, once however often it comes. Raises nothing that a record can cause."""
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        try:
            event = decode_event(value or b"")
        except RecordUnreadable as unreadable:
            self.unreadable[unreadable.code] += 1
            return
        if not 0 <= event.accepted_at < _END_OF_TIME_US:
            self.unreadable["field.misplaced"] += 1
            return
        self._count(event)

    def _count(self, event: Event) -> None:
        session = self._sessions.get(event.session_id)
        if session is None:
            session = self._sessions[event.session_id] = _Session()
            self.live += 1
        if event.sequence <= session.sequence:
            self.repeated += 1
            return
        self.missing += event.sequence - session.sequence - 1
        session.sequence = event.sequence
        self.events += 1
        self.accepted_at = max(self.accepted_at, event.accepted_at)
        minute = self._minute(session, event.accepted_at // _MINUTE_US)
        if isinstance(event.attributes, ToolAttributes):
            self._count_tool(session, minute, event.type, event.attributes)
        elif event.type == "session.closed" and not session.closed:
            session.closed, session.open_calls = True, None
            self.live -= 1
            self.closed += 1

    def _minute(self, session: _Session, number: int) -> Minute | None:
        """The row of the minute with this event in it; None where the minute has none any more."""
        row = self.minutes.get(number)
        if row is None:
            if number < self._oldest_minute:
                return None
            row = self.minutes[number] = Minute()
            heapq.heappush(self._minute_numbers, number)
            self._oldest_minute = max(self._oldest_minute, number - MINUTES_KEPT + 1)
            while self._minute_numbers[0] < self._oldest_minute:
                del self.minutes[heapq.heappop(self._minute_numbers)]
        row.events += 1
        if session.minute != number:  # times never decrease within a session
            session.minute = number
            row.sessions += 1
        return row

    def _count_tool(self, session: _Session, minute: Minute | None, event_type: str, tool: ToolAttributes) -> None:
        if event_type == "tool.called":
            name = self._tool_name(tool.name or UNKNOWN_TOOL)
            _await_result(session, tool.call_id, name)
        else:
            called = session.open_calls.pop(tool.call_id, None) if session.open_calls and tool.call_id else None
            name = called or self._tool_name(tool.name or UNKNOWN_TOOL)
        rows = [self.tools.setdefault(name, ToolCounts())]
        if minute is not None:
            rows.append(minute.tools.setdefault(name, ToolCounts()))
        for row in rows:
            if event_type == "tool.called":
                row.calls += 1
            else:
                row.returned += 1
                row.errors += bool(tool.is_error)

    def _tool_name(self, name: str) -> str:
        has_row = name in self.tools or name == UNKNOWN_TOOL or len(self.tools) < TOOLS_KEPT
        return name if has_row else OTHER_TOOLS


def _await_result(session: _Session, call_id: str | None, name: str) -> None:
    if call_id is None or session.closed:
        return
    if session.open_calls is None:
        session.open_calls = {}
    session.open_calls[call_id] = name
    if len(session.open_calls) > OPEN_CALLS_KEPT:
        del session.open_calls[next(iter(session.open_calls))]
