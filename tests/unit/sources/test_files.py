"""Which files are sources, what identifies a session, and which agent belongs to which transcript."""

import gzip
import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from connectors.sources.files import PlannedSession, Planner, SourceUnusable, discover
from connectors.sources.samples import FOLDER


def plan(*paths: Path | str, subject: str | None = None) -> tuple[list[PlannedSession], Planner]:
    planner = Planner(subject)
    return planner.plan(discover(paths)), planner


def keys(*paths: Path | str) -> set[str]:
    return {session.key for session in plan(*paths)[0]}


def test_a_folder_gives_its_transcripts_and_trajectories_each_a_session() -> None:
    sessions, planner = plan(FOLDER)
    assert len([session for session in sessions if session.trajectory is None]) == 3
    assert len([session for session in sessions if session.trajectory is not None]) == 6
    assert planner.problems == []


def test_a_copy_packed_or_grown_is_the_same_session(tmp_path: Path) -> None:
    source = FOLDER / "tide-tables.jsonl"
    packed = tmp_path / "tide-tables.jsonl.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    grown = tmp_path / "tide-tables.jsonl"
    grown.write_bytes(source.read_bytes() + b'{"type":"user"}\n')
    crlf = tmp_path / "there" / "tide-tables.json"
    crlf.parent.mkdir()
    crlf.write_bytes(source.read_bytes().replace(b"\n", b"\r\n"))
    assert keys(source) == keys(packed) == keys(grown) == keys(crlf)


def test_another_name_or_another_first_record_is_another_session(tmp_path: Path) -> None:
    source = FOLDER / "tide-tables.jsonl"
    renamed = Path(shutil.copy(source, tmp_path / "other.jsonl"))
    changed = tmp_path / "tide-tables.jsonl"
    changed.write_bytes(b'{"type":"summary"}\n' + source.read_bytes())
    assert len(keys(source) | keys(renamed) | keys(changed)) == 3


def test_equal_trajectories_in_one_file_are_sessions_of_their_own(tmp_path: Path) -> None:
    one = json.loads((FOLDER / "trajectories.json").read_bytes())[0]
    (tmp_path / "twice.json").write_text(json.dumps([one, one]))
    assert len(keys(tmp_path / "twice.json")) == 2


def test_an_agents_file_goes_to_the_transcript_that_it_names(tmp_path: Path) -> None:
    by_folder = {str(session.file): session for session in plan(FOLDER)[0]}
    main = by_folder[str(FOLDER / "tide-tables.jsonl")]
    assert [(agent_id, file.name) for agent_id, file in main.agents] == [("a7c31f0", "agent-a7c31f0")]
    (alone,), _ = plan(FOLDER / "agent-a7c31f0.jsonl")
    assert [file == alone.file for _, file in alone.agents] == [True]


def test_trajectories_name_their_customer_and_transcripts_take_the_callers() -> None:
    subjects = {session.subject for session in plan(FOLDER, subject="team")[0]}
    assert subjects == {"team", "ada_quill_1042", "ben_okafor_2210", "chiara_lund_3907", "dimitri_voss_4471"}
    assert {session.subject for session in plan(FOLDER / "tide-tables.jsonl")[0]} == {None}


def test_the_callers_key_tells_nothing_of_the_files_name() -> None:
    for key in keys(FOLDER):
        assert key.startswith("import:")
        assert len(key) == 7 + 64


def test_files_of_another_kind_are_passed_over_in_a_folder_and_told_where_named(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("[1, 2]")
    (tmp_path / "notes.txt").write_text("hello")
    sessions, planner = plan(tmp_path)
    assert (sessions, planner.problems) == ([], [])
    assert [file.name for file in planner.ignored] == ["settings", "settings"]
    _, planner = plan(tmp_path / "settings.json")
    assert "element 0" in planner.problems[0][1]


def test_what_cannot_be_taken_says_so_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "start.jsonl").write_bytes(b'{"type": "us')
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress((FOLDER / "tide-tables.jsonl").read_bytes())[:60])
    (tmp_path / "torn.jsonl.gz").write_bytes(b"\x1f\x8b" + b"x" * 40)
    shutil.copy(FOLDER / "tide-tables.jsonl", tmp_path)
    sessions, planner = plan(tmp_path)
    assert [session.file.name for session in sessions] == ["tide-tables"]
    assert {file.name: reason for file, reason in planner.problems} == {
        "empty": "holds no complete record",
        "start": "holds no complete record",
        "cut": "the gzip file ends early",
        "torn": "the gzip file is broken",
    }


def test_a_file_without_a_record_of_a_known_source_is_told_and_is_no_session(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"level": "info"}\n{"level": "warn"}\n')
    (tmp_path / "numbers.jsonl").write_text("1\nbroken\n")
    (tmp_path / "settings.json").write_text('{\n  "theme": "dark"\n}\n')
    sessions, planner = plan(tmp_path)
    assert sessions == []
    assert {file.name: reason for file, reason in planner.problems} == dict.fromkeys(
        ["metrics", "numbers"], "holds no record of a transcript"
    )
    assert [file.name for file in planner.ignored] == ["settings"]
    _, planner = plan(tmp_path / "settings.json")
    assert [reason for _, reason in planner.problems] == ["holds no record of a transcript"]


def test_a_path_that_is_not_there_is_named() -> None:
    with pytest.raises(SourceUnusable, match="nowhere"):
        list(discover(["nowhere"]))


def test_a_file_named_twice_is_taken_once(tmp_path: Path) -> None:
    assert len(list(discover([FOLDER, FOLDER / "tide-tables.jsonl"]))) == 5


def test_standard_input_is_a_source_packed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (FOLDER / "tide-tables.jsonl").read_bytes()
    for given in (data, gzip.compress(data)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        (session,), _ = plan("-")
        with session.file.open() as handle:
            assert handle.read() == data
