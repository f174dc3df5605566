"""Exit codes, tables on a terminal and elsewhere, and progress where nobody watches."""

import os
import sys

import pytest

from connectors.cli.console import FATAL, MISCONFIGURED, REFUSED, UNAVAILABLE, exit_code, print_table, progress
from streams.errors import BrokerUnavailable, Fatal, Invalid, Misconfigured, NotFound, OutcomeUnknown, StoreUnusable, StreamsError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), REFUSED),
        (Invalid("x"), REFUSED),
        (Misconfigured("x"), MISCONFIGURED),
        (BrokerUnavailable("x"), UNAVAILABLE),
        (OutcomeUnknown("x"), UNAVAILABLE),
        (Fatal("x"), FATAL),
        (StoreUnusable("x"), FATAL),
        (StreamsError("x"), REFUSED),
    ],
)
def test_each_error_has_the_exit_code_of_what_to_do_next(error: StreamsError, code: int) -> None:
    assert exit_code(error) == code


COLUMNS = ["session", "status", "created", "events", "of which", "source"]
ROWS = [
    ["sess_" + "a" * 32, "open", "2026-11-30T15:26:29", "1,026", "message.appended 12, tool.called 3, 9 more", "live"],
    ["sess_" + "b" * 32, "closed", "2026-11-30T15:26:29", "2", "session.created 1", "tau-bench, record 11"],
]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((columns, 24)))


def test_on_a_terminal_of_80_columns_a_table_is_two_lines_a_row_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch, 80)
    print_table(COLUMNS, ROWS)
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        "session                                status  created              events",
        "    of which                                    source",
        f"{ROWS[0][0]}  open    2026-11-30T15:26:29  1,026",
        "    message.appended 12, tool.called 3, 9 more  live",
        f"{ROWS[1][0]}  closed  2026-11-30T15:26:29  2",
        "    session.created 1                           tau-bench, record 11",
    ]
    assert all(len(line) <= 80 for line in printed.splitlines())


def test_on_a_wide_terminal_and_where_padded_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS, padded=True)
    padded = capsys.readouterr().out
    on_a_terminal(monkeypatch, 200)
    print_table(COLUMNS, ROWS)
    assert capsys.readouterr().out == padded
    lines = padded.splitlines()
    assert len(lines) == 3
    assert {line.index(source) for line, source in zip(lines, ["source", "live", "tau-bench"], strict=True)} == {lines[0].index("source")}


def test_elsewhere_a_table_is_tab_separated_and_never_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["tool", "calls"], [["\x1b[31mred\t\n\x9b", "1"]])
    assert capsys.readouterr().out == "tool\tcalls\n\\x1b[31mred\\t\\n\\x9b\t1\n"


def test_wide_characters_keep_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["tool", "calls"], [["検索", "1"], ["find", "2"]], padded=True)
    assert capsys.readouterr().out == "tool  calls\n検索  1\nfind  2\n"


def test_without_a_terminal_progress_is_plain_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("ingest", "records") as report:
        report(5, 10)
        report(10, 10, "a.jsonl")
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("ingest: 10 of 10 records, ")
    assert lines[0].endswith("/s (a.jsonl)")


def test_quiet_progress_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("ingest", "records", quiet=True) as report:
        report(10, 10)
    assert capsys.readouterr() == ("", "")
