"""What a tap counts: a function of the log alone, whatever order of deliveries led there."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.taps import tables
from connectors.taps.tables import OTHER_TOOLS, UNKNOWN_TOOL, PartitionTables
from connectors.taps.view import TapView, view_of
from streams.log.reader import Record
from streams.session.events import ToolAttributes
from tests.support.event_log import EventLog
from tests.support.examples import made_up_id


def folded(*logs: EventLog) -> dict[int, PartitionTables]:
    found = {}
    for log in logs:
        found[log.partition] = PartitionTables()
        deliver(found[log.partition], log.records)
    return found


def deliver(to: PartitionTables, records: list[Record]) -> None:
    for record in records:
        to.apply(record.offset, record.value)


def seen(log: EventLog) -> TapView:
    return view_of(folded(log), {}, minutes=tables.MINUTES_KEPT)


def call(log: EventLog, session: str, label: object, name: str | None = "Bash") -> None:
    log.command(session, [("tool.called", ToolAttributes(call_id=made_up_id("call", label), name=name))])


def answer(log: EventLog, session: str, label: object, *, is_error: bool = False, name: str | None = None) -> None:
    log.command(session, [("tool.returned", ToolAttributes(call_id=made_up_id("call", label), is_error=is_error, name=name))])


def busy_log() -> EventLog:
    """Three sessions, calls with and without errors, records that cannot be read, one session closed."""
    log = EventLog()
    sessions = [log.create(label) for label in range(3)]
    for turn in range(6):
        session = sessions[turn % 3]
        log.say(session, 2)
        call(log, session, turn, "Bash" if turn % 2 else "Read")
        if turn == 3:
            log.append(session.encode(), b"\x07broken")
        answer(log, session, turn, is_error=turn % 3 == 0)
    log.append(None, None)
    log.close(sessions[0])
    return log


def test_events_sessions_and_tools_are_counted_by_the_minute_of_acceptance() -> None:
    view = seen(busy_log())
    assert (view.events, view.sessions.seen, view.sessions.live, view.sessions.closed) == (28, 3, 2, 1)
    assert [(row.tool, row.calls, row.returned, row.errors) for row in view.tools] == [("Bash", 3, 3, 1), ("Read", 3, 3, 1)]
    (minute,) = view.minutes
    assert (minute.minute, minute.events, minute.sessions, minute.tool_calls, minute.tool_errors) == ("2026-01-01T12:00:00Z", 28, 3, 6, 2)
    assert minute.tools == view.tools
    assert (view.missing, view.repeated) == (0, 0)


def test_what_cannot_be_read_is_counted_under_its_reason_and_stops_nothing() -> None:
    view = seen(busy_log())
    assert view.unreadable == {"wire.magic": 1, "wire.short": 1}


@settings(max_examples=60)
@given(rewinds=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=6))
def test_rewound_and_duplicated_records_are_counted_once(rewinds: list[tuple[int, int]]) -> None:
    """Deliveries that go on for a while, jump back somewhere, and go on from there, again and again."""
    log = busy_log()
    tap = PartitionTables()
    position = 0
    for steps, back_to in rewinds:
        deliver(tap, log.records[position : position + steps])
        position = min(position + steps, back_to)
    deliver(tap, log.records[position:])
    assert view_of({0: tap}, {}) == view_of(folded(log), {})


def test_a_record_that_repeats_a_sequence_at_a_place_of_its_own_is_not_counted_again() -> None:
    log = busy_log()
    copied = log.records[4]
    log.append(copied.key, copied.value)
    view = seen(log)
    assert (view.events, view.repeated) == (28, 1)


def test_sequences_that_were_passed_over_are_told() -> None:
    """A log whose beginning is gone, or a record in between that could not be read."""
    log = EventLog()
    session = log.create("a")
    log.skip(session, 3)
    log.say(session)
    view = seen(log)
    assert (view.events, view.missing) == (2, 3)


def test_a_minute_counts_a_session_once() -> None:
    log = EventLog()
    first, second = log.create("a"), log.create("b")
    log.say(first, 4)
    log.wait(1)
    log.say(second, 3)
    log.say(first)
    newest, before = seen(log).minutes
    assert (newest.minute, newest.sessions, before.minute, before.sessions) == ("2026-01-01T12:01:00Z", 2, "2026-01-01T12:00:00Z", 2)
    assert (newest.events, before.events) == (4, 6)


def test_a_result_is_counted_for_the_tool_that_was_called() -> None:
    """By the call that it names; by its own name, or as unknown, where the log has no such call or it was answered before."""
    log = EventLog()
    session = log.create("a")
    call(log, session, 1, "Read")
    answer(log, session, 1, is_error=True)
    answer(log, session, 1)
    answer(log, session, "nowhere", name="Grep")
    counted = {row.tool: (row.calls, row.returned, row.errors) for row in seen(log).tools}
    assert counted == {"Read": (1, 1, 1), UNKNOWN_TOOL: (0, 1, 0), "Grep": (0, 1, 0)}


def test_minutes_tools_and_open_calls_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in (("MINUTES_KEPT", 2), ("TOOLS_KEPT", 3), ("OPEN_CALLS_KEPT", 2)):
        monkeypatch.setattr(tables, name, bound)
    log = EventLog()
    session = log.create("a")
    for label in range(5):
        call(log, session, label, f"tool-{label}")
    for label in range(5):
        answer(log, session, label)
    for _ in range(3):
        log.wait(1)
        log.say(session)
    (tap,) = folded(log).values()
    assert {name: (row.calls, row.returned) for name, row in tap.tools.items()} == {
        "tool-0": (1, 0), "tool-1": (1, 0), "tool-2": (1, 0), OTHER_TOOLS: (2, 2), UNKNOWN_TOOL: (0, 3),
    }  # fmt: skip
    assert sorted(minute % 60 for minute in tap.minutes) == [2, 3]
    assert tap.events == 14


def test_the_view_adds_partitions_up_and_shows_as_many_minutes_as_asked() -> None:
    first, second = EventLog(0), EventLog(1)
    for log, label in ((first, "a"), (second, "b")):
        session = log.create(label)
        call(log, session, label)
        log.wait(1)
        log.say(session)
    view = view_of(folded(first, second), {0: 9}, minutes=1)
    assert view.events == 6
    assert [row.minute for row in view.minutes] == ["2026-01-01T12:01:00Z"]
    assert view.minutes[0].sessions == 2
    assert [(row.tool, row.calls) for row in view.tools] == [("Bash", 2)]
    assert [(progress.next_offset, progress.end_offset) for progress in view.partitions.values()] == [
        (first.end - 1, 9),
        (second.end - 1, None),
    ]
    assert msgspec.json.decode(msgspec.json.encode(view), type=TapView) == view


def test_nothing_read_yet_is_an_answer_too() -> None:
    view = view_of({0: PartitionTables()}, {})
    assert (view.events, view.accepted_at, view.minutes, view.tools) == (0, None, [], [])
