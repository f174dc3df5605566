"""Exit codes, and progress where nobody watches a terminal."""

import pytest

from connectors.cli.console import FATAL, MISCONFIGURED, REFUSED, UNAVAILABLE, exit_code, progress
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
