"""What `ingest` tells a person: counts that read well, where dead letters are, and what did not go in."""

import pytest

from connectors.cli.ingesting import IngestSummary, tell
from connectors.sources.check import CheckReport
from connectors.sources.ingest import Failure, IngestReport


def told(capsys: pytest.CaptureFixture[str], report: IngestReport) -> tuple[list[str], list[str]]:
    tell(IngestSummary(report=report, seconds=2.0), as_json=False)
    printed = capsys.readouterr()
    return printed.out.splitlines(), printed.err.splitlines()


def test_one_of_a_kind_is_told_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    report = IngestReport(files=1, sessions=1, records=1, events=2, dead_letters=1, check=CheckReport(sessions=1))
    out, _ = told(capsys, report)
    assert out == [
        "1 file, 1 session: 1 record became 2 events in 2.0 s (1 events/s), 1 dead letter",
        "checked 1 session against its source: no difference",
    ]


def test_the_first_dead_letters_are_told_on_stderr_with_the_number_of_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = told(capsys, IngestReport(dead_letters=3, letter_places=["a\x1b.jsonl:4: cut", "b.jsonl:1: too_deep"]))
    assert err == ["dead letter: a\\x1b.jsonl:4: cut", "dead letter: b.jsonl:1: too_deep", "… and 1 more"]


def test_a_path_that_is_not_there_is_told_once_and_leaves_nothing_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = told(capsys, IngestReport(failures=[Failure("", "/nope: no such file or folder")], check=CheckReport()))
    assert out[1:] == ["failed: /nope: no such file or folder", "nothing to check"]
    assert err == []
