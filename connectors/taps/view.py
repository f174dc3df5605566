"""The tables of all partitions as one JSON value: what `GET /tap/` answers and `demo --taps` prints."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from heapq import nlargest
from typing import Final

from msgspec import Struct

from connectors.taps.tables import MINUTES_KEPT, Minute, PartitionTables, ToolCounts

MINUTES_SHOWN: Final = 60


class Progress(Struct, frozen=True, kw_only=True):
    """`next_offset`: every record below it is counted. `end_offset`: where the partition ended when last asked (markers
    of transactions take offsets too, so it stays ahead); null while nobody has asked."""

    next_offset: int
    end_offset: int | None


class SessionCounts(Struct, frozen=True, kw_only=True):
    """`live` are those that were not closed."""

    seen: int
    live: int
    closed: int


class ToolRow(Struct, frozen=True, kw_only=True):
    tool: str
    calls: int
    returned: int
    errors: int


class MinuteRow(Struct, frozen=True, kw_only=True):
    """`minute` is its beginning, by the time of acceptance. `sessions` had an event in it."""

    minute: str
    events: int
    sessions: int
    tool_calls: int
    tool_errors: int
    tools: list[ToolRow]


class TapView(Struct, frozen=True, kw_only=True):
    """Newest minute first; tools by calls. `unreadable` records by reason; `missing` sequences were passed over."""

    partitions: dict[int, Progress]
    accepted_at: str | None
    events: int
    sessions: SessionCounts
    tools: list[ToolRow]
    minutes: list[MinuteRow]
    unreadable: dict[str, int]
    missing: int
    repeated: int


def view_of(tables: Mapping[int, PartitionTables], ends: Mapping[int, int], *, minutes: int = MINUTES_SHOWN) -> TapView:
    """`tables` by partition; `minutes` is the number of rows, of the newest minutes that have one."""
    every = list(tables.values())
    accepted_at = max((each.accepted_at for each in every), default=0)
    return TapView(
        partitions={
            partition: Progress(next_offset=each.next_offset, end_offset=ends.get(partition)) for partition, each in sorted(tables.items())
        },
        accepted_at=_rfc3339(accepted_at) if accepted_at else None,
        events=sum(each.events for each in every),
        sessions=SessionCounts(
            seen=sum(each.sessions for each in every),
            live=sum(each.live for each in every),
            closed=sum(each.closed for each in every),
        ),
        tools=_tool_rows(_sum_of_tools(each.tools for each in every)),
        minutes=_minute_rows(every, minutes),
        unreadable=dict(sorted(sum((each.unreadable for each in every), Counter[str]()).items())),
        missing=sum(each.missing for each in every),
        repeated=sum(each.repeated for each in every),
    )


def _minute_rows(every: list[PartitionTables], limit: int) -> list[MinuteRow]:
    numbers = {number for each in every for number in each.minutes}
    # A quiet partition still holds minutes that a busy one has let go.
    oldest = max(numbers, default=0) - MINUTES_KEPT + 1
    rows = []
    for number in nlargest(min(limit, MINUTES_KEPT), (number for number in numbers if number >= oldest)):
        whole = Minute()
        for each in every:
            if number in each.minutes:
                whole.add(each.minutes[number])
        rows.append(
            MinuteRow(
                minute=_rfc3339(number * 60_000_000),
                events=whole.events,
                sessions=whole.sessions,
                tool_calls=sum(tool.calls for tool in whole.tools.values()),
                tool_errors=sum(tool.errors for tool in whole.tools.values()),
                tools=_tool_rows(whole.tools),
            )
        )
    return rows


def _sum_of_tools(tables: Iterable[Mapping[str, ToolCounts]]) -> dict[str, ToolCounts]:
    whole: dict[str, ToolCounts] = {}
    for tools in tables:
        for name, counts in tools.items():
            whole.setdefault(name, ToolCounts()).add(counts)
    return whole


def _tool_rows(tools: Mapping[str, ToolCounts]) -> list[ToolRow]:
    return [
        ToolRow(tool=name, calls=counts.calls, returned=counts.returned, errors=counts.errors)
        for name, counts in sorted(tools.items(), key=lambda item: (-item[1].calls, item[0]))
    ]


def _rfc3339(time_us: int) -> str:
    whole, fraction_us = divmod(time_us, 1_000_000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction_us:06d}Z" if fraction_us else f"{text}Z"
