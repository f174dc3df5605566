"""Lines that `tail` prints: what a person wants to see first, safe on a terminal, never longer than a line."""

from typing import Any

import pytest

from connectors.cli.reading import event_line
from session_streams import Event


def event(content: Any = None, **raw: Any) -> Event:
    given = {"sequence": 7, "event_id": "evt_1", "type": "message.appended", "accepted_at": "2026-01-01T00:00:00Z", **raw}
    return Event.of(given if content is None else {**given, "content": content})


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"role": "user", "content": "plain"}, '"plain"'),
        ({"type": "user", "message": {"role": "user", "content": "wrapped"}}, '"wrapped"'),
        ({"message": {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}}, '"one" "two"'),
        ({"message": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]}}, 'Bash {"command": "ls"}'),
        ({"other": 1}, '{"other": 1}'),
        ([1, 2], "[1, 2]"),
        ("text", '"text"'),
    ],
)
def test_the_text_that_people_wrote_comes_first(content: object, shown: str) -> None:
    assert event_line(event(content)) == f"     7 2026-01-01T00:00:00Z message.appended   {shown}"


def test_escape_sequences_of_a_transcript_do_not_reach_the_terminal() -> None:
    line = event_line(event({"content": "\x1b[31mred\nnext\x07"}))
    assert "\\u001b[31mred\\nnext\\u0007" in line
    assert line.isprintable()


def test_long_content_is_cut_to_a_line() -> None:
    line = event_line(event({"content": "x" * 5000}))
    assert len(line) < 200
    assert line.endswith("…")


def test_content_that_is_gone_says_why() -> None:
    assert event_line(event(gap={"reason": "expired"})).endswith("[content expired]")
