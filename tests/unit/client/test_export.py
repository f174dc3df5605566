"""An export is verified by its file alone, and whatever is done to a file is found and named."""

import json
import random
import shutil
import subprocess
import sys
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import session_streams.export
from session_streams.export import Refuted, Verdict, read, verify
from session_streams.export.evidence import SCHEMAS
from streams.exports import lines as form
from streams.session.events import RunAttributes, SessionAttributes
from tests.support.examples import made_up_id
from tests.support.export_vector import FILE, vector
from tests.support.exports import History, changed, conversation, spelled

LINES = conversation().lines()


def found(lines: list[bytes], **options: Any) -> tuple[str, int, int | None]:
    """Code, line and position of what is wrong."""
    verdict = verify(lines, **options)
    assert not verdict.ok
    assert str(verdict).startswith("NOT VERIFIED")
    return verdict.code, verdict.line, verdict.sequence


class TestAWholeExport:
    def test_is_verified_and_says_what_it_holds(self) -> None:
        verdict = verify(LINES)
        assert verdict.ok, verdict
        assert (verdict.positions, verdict.opened, verdict.end_sequence) == (6, 6, 6)
        assert verdict.last_hash == json.loads(LINES[-1])["last_hash"]
        assert verdict.good_bytes == sum(map(len, LINES))

    def test_is_read_back_with_content_as_it_was_sent(self) -> None:
        entries = list(read(LINES))
        assert [entry.sequence for entry in entries] == [1, 2, 3, 4, 5, 6]
        assert entries[2].content == {"n": float("inf"), "big": 10**30 + 2, "e": 'é\0 \u2028 "é"', "x": []}
        assert entries[2].text == f'{{"n": 1e400, "big": {10**30 + 2}, "e": "\\u00e9\\u0000 \u2028 \\"é\\"" , "x":[ ]}}'
        assert entries[2].attributes == {"role": "user", "model": "a-model-1", "input_tokens": 2, "output_tokens": 2**53 + 1}

    def test_verifies_where_content_is_gone_and_tells_why(self) -> None:
        history = History().tell("session.created", SessionAttributes(origin="live"), text='{"a":1}', gone="erased")
        history.tell(text="2", gone="expired").tell(gone="omitted").tell(text="4", gone="unreadable").tell(text="5").tell()
        verdict = verify(history.lines())
        assert verdict.ok, verdict
        assert verdict.unavailable == {"erased": 1, "expired": 1, "omitted": 1, "unreadable": 1}
        assert [entry.unavailable for entry in read(history.lines())] == ["erased", "expired", "omitted", "unreadable", None, None]
        assert [entry.content for entry in read(history.lines())] == [None, None, None, None, 5, None]

    @pytest.mark.parametrize("reward", [0.1, -0.0, 1e-7, 1e22, 123456789.125, float("nan"), float("inf"), float("-inf")])
    def test_shows_fractions_as_their_bytes_hold_them(self, reward: float) -> None:
        lines = History().tell("run.completed", RunAttributes(reward=reward, claimable=False), run_id=made_up_id("run")).lines()
        assert verify(lines).ok
        assert [entry.attributes["reward"] for entry in read(lines)] == [reward if abs(reward) < 1e300 else str(reward)]

    def test_may_be_a_file_a_path_or_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "x.ndjson"
        path.write_bytes(b"".join(LINES))
        with path.open("rb") as file:
            assert [verify(path).ok, verify(str(path)).ok, verify(file).ok, verify(iter(LINES)).ok] == [True] * 4

    def test_knows_every_schema_that_is_published(self) -> None:
        entries = json.loads((Path(form.codec.__file__).parent / "registry.json").read_text(encoding="utf-8"))
        published = {f"{entry['subject']}.v{entry['version']}": entry["digest"] for entry in entries}
        assert {name: digest for name, digest in published.items() if name.startswith("attributes/")} == SCHEMAS

    def test_has_the_published_bytes(self) -> None:
        """Format version 1 is what this file holds; a plain checker beside it knows nothing of ours."""
        assert b"".join(vector()) == FILE.read_bytes()
        verdict = verify(FILE)
        assert verdict.ok, verdict
        assert verdict.unavailable == {"erased": 1, "expired": 1, "omitted": 1, "unreadable": 1}

    def test_begins_with_the_same_bytes_however_long_it_is(self) -> None:
        shorter, longer = conversation(3).lines(), conversation(5).lines()
        assert shorter[1:4] == longer[1:4]


class TestAPart:
    def test_is_no_whole_export(self) -> None:
        assert found(conversation().lines(from_sequence=3)) == ("not_whole", 1, None)

    def test_verifies_where_a_part_is_asked_for(self) -> None:
        verdict = verify(conversation().lines(from_sequence=3), part=True)
        assert verdict.ok
        assert (verdict.from_sequence, verdict.positions) == (3, 4)

    def test_behind_the_last_position_is_the_trailer_alone(self) -> None:
        lines = conversation().lines(from_sequence=7)
        assert len(lines) == 2
        assert verify(lines, part=True).ok

    def test_without_its_header_continues_the_export_that_broke_off(self) -> None:
        assert LINES[:3] + conversation().lines(from_sequence=3)[1:] == LINES


STRUCTURE: list[tuple[tuple[str | int, ...], Any]] = [
    (("event_id",), made_up_id("evt", "x")), (("type",), "message.sent"), (("workspace_id",), made_up_id("ws", "x")),
    (("thread_id",), None), (("turn_id",), made_up_id("turn", "x")), (("run_id",), None), (("attempt_generation",), 3),
    (("native_task_id",), None), (("actor_id",), made_up_id("actr", "x")), (("subject_id",), None),
    (("command_id",), made_up_id("cmd", "x")), (("occurred_at",), None), (("links",), []), (("links", 1, "relation"), "call"),
    (("links", 0, "id"), made_up_id("evt", "x")), (("content", "key_reference"), None),
    (("content", "key_reference", "subject_id"), None), (("content", "key_reference", "expiry_day"), "2027-01-03"),
    (("content", "key_reference", "session_id"), made_up_id("sess", "x")), (("command_offset",), 5), (("command_last",), False),
    (("accepted_at",), 1), (("hash",), "0" * 64),
]  # fmt: skip


class TestWhatIsChangedIsNamed:
    @pytest.mark.parametrize(("path", "to"), STRUCTURE, ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "")
    def test_a_structural_field(self, path: tuple[str | int, ...], to: Any) -> None:
        lines = [*LINES]
        lines[3] = changed(lines[3], *path, to=to)
        assert found(lines) == ("hash_mismatch", 4, 3)

    def test_attributes_are_without(self) -> None:
        lines = [*LINES]
        lines[3] = changed(lines[3], "attributes", to=None)
        assert found(lines) == ("hash_mismatch", 4, 3)

    @pytest.mark.parametrize(
        ("name", "to"),
        [
            ("decoded", {"role": "assistant"}), ("decoded", {}), ("schema", "attributes/source.v1"), ("schema", "attributes/message.v2"),
            ("bytes", "AAAAAA=="), ("bytes", "!"), ("bytes", ""), ("bytes", "AAAAAAz/////////////////"),
        ],
    )  # fmt: skip
    def test_attributes(self, name: str, to: Any) -> None:
        lines = [*LINES]
        lines[3] = changed(lines[3], "attributes", name, to=to)
        assert found(lines) == ("attributes_mismatch", 4, 3)

    def test_an_attribute_that_is_not_in_the_bytes(self) -> None:
        lines = [*LINES]
        lines[3] = changed(lines[3], "attributes", "decoded", "input_tokens", to=2.0)
        assert found(lines) == ("attributes_mismatch", 4, 3)

    @pytest.mark.parametrize(("name", "to"), [("text", "{}"), ("salt", "0" * 32), ("digest", "0" * 64)])
    def test_content(self, name: str, to: str) -> None:
        lines = [*LINES]
        lines[3] = changed(lines[3], "content", name, to=to)
        assert found(lines) == ("content_mismatch", 4, 3)

    def test_content_that_is_spelled_otherwise_is_other_content(self) -> None:
        text = json.loads(LINES[3])["content"]["text"]
        lines = [*LINES]
        lines[3] = changed(lines[3], "content", "text", to=json.dumps(json.loads(text)))
        assert found(lines)[0] == "content_mismatch"

    def test_content_that_is_taken_away_without_a_reason(self) -> None:
        value = json.loads(LINES[3])
        value["content"] = {"state": "none", "key_reference": None, "digest": None}
        assert found([*LINES[:3], spelled(value), *LINES[4:]]) == ("hash_mismatch", 4, 3)
        value = json.loads(LINES[3])
        del value["content"]["salt"], value["content"]["text"]
        assert found([*LINES[:3], spelled(value), *LINES[4:]]) == ("malformed_line", 4, 3)

    def test_a_reason_that_the_event_contradicts(self) -> None:
        lines = History().tell(gone="omitted").tell(text="1", gone="expired").lines()
        assert found([lines[0], changed(lines[1], "reason", to="erased"), *lines[2:]]) == ("malformed_line", 2, 1)
        assert found([*lines[:2], changed(lines[2], "reason", to="omitted"), *lines[3:]]) == ("malformed_line", 3, 2)
        assert found([*lines[:2], changed(lines[2], "reason", to="lost"), *lines[3:]]) == ("malformed_line", 3, 2)

    def test_the_hash_before(self) -> None:
        lines = [*LINES]
        lines[3] = changed(lines[3], "previous_hash", to="0" * 64)
        assert found(lines) == ("previous_hash_mismatch", 4, 3)

    @pytest.mark.parametrize(
        ("name", "to", "code", "line"),
        [
            ("kind", "head", "header_missing", 1), ("format", "checkfu.session-bundle", "unknown_format", 1),
            ("format_version", 2, "unknown_format", 1), ("chain", "session-streams/chain/v2", "unknown_format", 1),
            ("session_id", made_up_id("sess", "x"), "wrong_genesis", 1), ("genesis", "0" * 64, "wrong_genesis", 1),
            ("from_sequence", 2, "not_whole", 1), ("from_sequence", 0, "malformed_line", 1), ("end_sequence", 5, "beyond_end", 7),
            ("end_sequence", 7, "gap", 8), ("attribute_schemas", {}, "attributes_mismatch", 2),
            ("attribute_schemas", {"attributes/message.v9": {}}, "unknown_schema", 1), ("attribute_schemas", [], "malformed_line", 1),
        ],
    )  # fmt: skip
    def test_the_header(self, name: str, to: Any, code: str, line: int) -> None:
        assert found([changed(LINES[0], name, to=to), *LINES[1:]])[:2] == (code, line)

    def test_a_schema_that_gives_attributes_other_names(self) -> None:
        header = changed(LINES[0], "attribute_schemas", "attributes/message.v1", "fields", 0, "name", to="roll")
        assert found([header, *LINES[1:]]) == ("unknown_schema", 1, None)

    @pytest.mark.parametrize(
        ("name", "to", "code"),
        [
            ("count", 5, "trailer_mismatch"), ("last_hash", "0" * 64, "trailer_mismatch"), ("last_hash", None, "trailer_mismatch"),
            ("kind", "end", "malformed_line"),
        ],
    )  # fmt: skip
    def test_the_trailer(self, name: str, to: Any, code: str) -> None:
        assert found([*LINES[:-1], changed(LINES[-1], name, to=to)]) == (code, 8, None)


class TestWhatIsMovedIsNamed:
    def test_a_dropped_line(self) -> None:
        assert found(LINES[:3] + LINES[4:]) == ("gap", 4, 3)
        assert "position 3 is missing" in verify(LINES[:3] + LINES[4:]).detail

    def test_the_first_and_the_last_one(self) -> None:
        assert found([LINES[0], *LINES[2:]]) == ("gap", 2, 1)
        assert found([*LINES[:6], LINES[7]]) == ("gap", 7, 6)

    def test_several(self) -> None:
        assert "positions 2 to 5 are missing" in verify([*LINES[:2], *LINES[6:]]).detail

    @pytest.mark.parametrize(("one", "other"), [(1, 2), (3, 4), (2, 6), (1, 6)])
    def test_two_swapped_lines(self, one: int, other: int) -> None:
        lines = [*LINES]
        lines[one], lines[other] = lines[other], lines[one]
        assert found(lines) == ("out_of_order", one + 1, other)
        assert f"position {one} is due; it stands on line {other + 1}" in verify(lines).detail

    def test_a_line_that_is_there_twice(self) -> None:
        assert found([*LINES[:4], LINES[3], *LINES[4:]]) == ("duplicate", 5, 3)
        assert found([*LINES[:6], LINES[2], *LINES[6:]]) == ("duplicate", 7, 2)

    def test_a_line_of_another_session(self) -> None:
        other = conversation(6, made_up_id("sess", "other")).lines()
        assert found([*LINES[:3], other[3], *LINES[4:]]) == ("wrong_session", 4, 3)

    def test_another_sessions_lines_under_this_ones_header(self) -> None:
        other = conversation(6, made_up_id("sess", "other")).lines()
        assert found([LINES[0], *other[1:]]) == ("wrong_session", 2, 1)

    def test_two_histories_of_one_session_spliced(self) -> None:
        other = History().tell(text="0").tell(text="1").tell(text="2").tell(text="3").tell(text="4").tell(text="5").lines()
        assert found([*LINES[:4], *other[4:]]) == ("previous_hash_mismatch", 5, 4)

    def test_a_history_that_does_not_begin_at_the_sessions_genesis(self) -> None:
        assert found([LINES[0], changed(LINES[1], "previous_hash", to="0" * 64), *LINES[2:]]) == ("wrong_genesis", 2, 1)

    def test_a_header_within(self) -> None:
        assert found([*LINES[:3], LINES[0], *LINES[3:]]) == ("malformed_line", 4, None)
        assert found([LINES[0], *LINES]) == ("malformed_line", 2, None)

    def test_a_whole_history_written_anew_shows_by_its_last_hash(self) -> None:
        known = verify(LINES).last_hash
        shorter = conversation(5).lines()
        assert verify(shorter).ok
        assert found(shorter, last_hash=known) == ("other_history", 7, None)
        assert verify(LINES, last_hash=known).ok


class TestWhatIsCutIsIncomplete:
    @pytest.mark.parametrize("kept", range(1, len(LINES)))
    def test_between_lines(self, kept: int) -> None:
        verdict = verify(LINES[:kept])
        assert (verdict.code, verdict.next_sequence, verdict.good_bytes) == ("incomplete", kept, sum(map(len, LINES[:kept])))

    def test_within_a_line(self) -> None:
        data = b"".join(LINES)
        for size in random.Random(7).sample(range(len(data)), 60):
            verdict = verify(BytesIO(data[:size]))
            assert verdict.code == "incomplete"
            assert data[: verdict.good_bytes].endswith(b"\n") or verdict.good_bytes == 0

    def test_and_tells_where_it_says_so_itself(self) -> None:
        verdict = verify([*LINES[:3], form.error_line("service.not_owner", status=503, next_sequence=3)])
        assert (verdict.code, verdict.line, verdict.next_sequence) == ("incomplete", 4, 3)
        assert "service.not_owner" in verdict.detail

    def test_nothing_at_all(self) -> None:
        assert found([]) == ("incomplete", 0, None)

    def test_more_than_an_export_is_named_too(self) -> None:
        assert found([*LINES, b"\n"]) == ("after_end", 9, None)
        assert found([*LINES, *LINES]) == ("wrong_source", 10, 1)
        assert found([*LINES, LINES[2]]) == ("after_end", 9, None)


def lineage(*ends: int) -> list[History]:
    """Sessions, each forked from the one before it at that one's position `end`."""
    made = [History(made_up_id("sess", 0)).tell("session.created", SessionAttributes(origin="live"))]
    for number, end in enumerate(ends, 1):
        for text in range(end):
            made[-1].tell(text=f'"{text}"')
        at = made[-1].events[end - 1][0]
        attributes = SessionAttributes(
            origin="live", source_session_id=at.session_id, through_sequence=end, through_event_id=at.event_id,
            source_hash=at.hash.hex(), depth=number,
        )  # fmt: skip
        made.append(History(made_up_id("sess", number)).tell("session.created", attributes))
    return made


def in_one_file(sessions: list[History], *ends: int) -> list[bytes]:
    """Their exports one behind the other: each up to its end, the last one whole."""
    parts = [session.lines(end_sequence=end) for session, end in zip(sessions, ends, strict=False)]
    return [line for part in [*parts, sessions[-1].lines()] for line in part]


class TestALineage:
    def test_is_verified_as_one_chain_a_session_tied_by_what_each_fork_names(self) -> None:
        sessions = lineage(3, 2)
        lines = in_one_file(sessions, 3, 2)
        verdict = verify(lines, lineage=True)
        assert verdict.ok, verdict
        assert (verdict.session_id, verdict.end_sequence) == (sessions[2].session_id, 1)
        assert [(session_id, end) for session_id, end, _ in verdict.ancestors] == [
            (sessions[0].session_id, 3), (sessions[1].session_id, 2),
        ]  # fmt: skip
        assert [(entry.session_id, entry.sequence) for entry in read(lines)][:4] == [
            (sessions[0].session_id, 1), (sessions[0].session_id, 2), (sessions[0].session_id, 3), (sessions[1].session_id, 1),
        ]  # fmt: skip
        assert f"behind {sessions[1].session_id} to 2, behind {sessions[0].session_id} to 3" in str(verdict)

    def test_a_fork_alone_is_an_export_of_its_own_but_no_lineage(self) -> None:
        lines = lineage(3)[1].lines()
        assert verify(lines).ok
        assert found(lines, lineage=True) == ("not_whole", 2, 1)

    def test_a_source_that_ends_elsewhere_than_the_fork_says_is_found(self) -> None:
        sessions = lineage(3)
        for end in (2, 4):
            assert found(in_one_file(sessions, end))[0] == "wrong_source"

    def test_another_history_of_the_source_is_found(self) -> None:
        """Every chain holds in itself; the hash that the fork names is not the one that its source ends with."""
        fork, other = lineage(3)[1], History(made_up_id("sess", 0)).tell("session.created", SessionAttributes(origin="live"))
        for text in ("another", "history", "altogether"):
            other.tell(text=f'"{text}"')
        assert verify(other.lines()).ok
        assert found(in_one_file([other, fork], 3))[0] == "wrong_source"

    def test_an_ancestor_that_is_left_out_or_stands_in_another_place_is_found(self) -> None:
        first, second, third = lineage(3, 2)
        assert found(in_one_file([first, third], 3))[0] == "wrong_source"
        assert found(in_one_file([second, third], 2), lineage=True)[0] == "not_whole"
        assert found(in_one_file([second, first, third], 2, 3))[0] == "wrong_source"
        assert found(in_one_file([first, second, second, third], 3, 2, 2))[0] == "wrong_source"

    def test_a_cut_anywhere_within_is_incomplete(self) -> None:
        sessions = lineage(3, 2)
        lines = in_one_file(sessions, 3, 2)
        ends = [5, 9]  # lines behind which the file is the whole export of an ancestor
        for cut in range(1, len(lines)):
            verdict = verify(lines[:cut])
            assert (verdict.code == "verified") == (cut in ends), cut
            assert verdict.ok or verdict.code == "incomplete"

    def test_a_part_stands_only_at_the_beginning(self) -> None:
        first, second = lineage(3)
        assert verify([*first.lines(2, end_sequence=3), *second.lines()], part=True).ok
        second.tell(text="1")
        assert found([*first.lines(end_sequence=3), *second.lines(2)], part=True)[0] == "not_whole"

    def test_the_last_hash_that_is_expected_is_the_forks(self) -> None:
        sessions = lineage(3)
        lines = in_one_file(sessions, 3)
        expected = json.loads(lines[-1])["last_hash"]
        assert verify(lines, last_hash=expected).ok
        source_end = json.loads(sessions[0].lines(end_sequence=3)[-1])["last_hash"]
        assert found(lines, last_hash=source_end)[0] == "other_history"

    def test_has_at_most_sixteen_ancestors(self) -> None:
        ends = (1,) * 17
        assert verify(in_one_file(lineage(*ends[:16]), *ends[:16]), lineage=True).ok
        assert found(in_one_file(lineage(*ends), *ends))[0] == "wrong_source"


class TestLinesThatNoExportHas:
    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (b"\n", "malformed_line"), (b"{}\n", "malformed_line"), (b"[]\n", "malformed_line"), (b"null\n", "malformed_line"),
            (b"\xff\xfe\n", "malformed_line"), (b'{"kind":"event"\n', "malformed_line"), (b'{"kind":7}\n', "malformed_line"),
            (b'{"kind":["event"]}\n', "malformed_line"), (b'{"kind":"event"}\n', "malformed_line"),
            (b'{"kind":"event","sequence":3}\n', "malformed_line"), (b'{"kind":"event","sequence":true}\n', "malformed_line"),
            (b'{"kind":"event","sequence":3.0}\n', "malformed_line"), (b'{"kind":"missing","sequence":3}\n', "malformed_line"),
            (b'{"kind":"event","sequence":' + b"9" * 5000 + b"}\n", "malformed_line"), (b"[" * 100_000 + b"\n", "malformed_line"),
            (b'{"kind":"x","a":NaN}\n', "malformed_line"), (b'{"kind":"\\ud800"}\n', "malformed_line"),
            (b'{"kind":"x","kind":"event"}\n', "duplicate_key"), (b'{"kind":"x","a":{"b":1,"b":1}}\n', "duplicate_key"),
            (b'{"kind": "event"}\n', "not_canonical"), (b'{"kind":"event"}\r\n', "not_canonical"),
            (b'{"kind":"\\u0065vent"}\n', "not_canonical"), (b'{"kind":"x","a":1e2}\n', "not_canonical"),
            (b'\xef\xbb\xbf{"kind":"x"}\n', "malformed_line"),
        ],
        ids=range(24),
    )  # fmt: skip
    def test_are_named(self, line: bytes, code: str) -> None:
        assert found([*LINES[:3], line, *LINES[3:]])[:2] == (code, 4)

    def test_are_no_header_either(self) -> None:
        assert found([b"{}\n"])[0] == "header_missing"
        assert found([LINES[1]])[0] == "header_missing"

    @pytest.mark.parametrize("name", sorted(json.loads(LINES[3])))
    def test_a_member_is_left_out_renamed_or_of_another_kind(self, name: str) -> None:
        value = json.loads(LINES[3])
        without = {key: item for key, item in value.items() if key != name}
        renamed = {(key + "x" if key == name else key): item for key, item in value.items()}
        other = {**value, name: {"of": ["another", "kind"]}}
        moved = {**without, name: value[name]}
        for changed_value in (without, renamed, other, *([moved] if list(moved) != list(value) else [])):
            assert found([*LINES[:3], spelled(changed_value), *LINES[4:]])[:2] == ("malformed_line", 4)

    def test_a_line_without_end_is_not_taken_into_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session_streams.export.reading.form, "LINE_BYTES_MAX", 20_000)
        path = tmp_path / "x.ndjson"
        path.write_bytes(LINES[0] + b"x" * 1_000_000)
        verdict = verify(path)
        assert (verdict.code, verdict.line) == ("malformed_line", 2)


LACKING = [*LINES[:3], form.missing_line(3, "wire.body"), *LINES[4:]]


class TestAPositionThatCouldNotBeExported:
    def test_is_named_and_the_rest_is_looked_at_all_the_same(self) -> None:
        assert found(LACKING) == ("missing_position", 4, 3)
        assert found([*LACKING[:6], changed(LINES[6], "accepted_at", to=1), LINES[7]]) == ("hash_mismatch", 7, 6)
        assert found(LACKING[:-1])[0] == "incomplete"

    def test_is_read_as_one_of_which_nothing_is_known(self) -> None:
        reading = read(LACKING)
        entries = [(entry.sequence, entry.type, entry.unavailable) for entry in islice(reading, 6)]
        assert entries[1:4] == [(2, "message.appended", None), (3, None, "wire.body"), (4, "message.appended", None)]
        with pytest.raises(Refuted, match="missing_position: line 4, position 3"):
            next(reading)


def alone(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The verifier as a stranger has it: its folder copied somewhere, and nothing else on the path."""
    shutil.copytree(Path(session_streams.export.__file__).parent, folder / "export", dirs_exist_ok=True)
    command = [sys.executable, "-S", "-s", "-E", "-m", "export", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


class TestOnTheCommandLine:
    def test_a_stranger_verifies_with_nothing_but_python(self, tmp_path: Path) -> None:
        (tmp_path / "x.ndjson").write_bytes(b"".join(LINES))
        result = alone(tmp_path, "x.ndjson")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith("verified sess_")

    def test_what_is_wrong_is_told_with_line_and_position(self, tmp_path: Path) -> None:
        (tmp_path / "x.ndjson").write_bytes(b"".join([*LINES[:3], changed(LINES[3], "run_id", to=None), *LINES[4:]]))
        result = alone(tmp_path, "x.ndjson")
        assert result.returncode == 1
        assert result.stdout == "NOT VERIFIED hash_mismatch: line 4, position 3: its hash is not that of its fields\n"

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        result = alone(tmp_path, "x.ndjson")
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr


def test_a_verdict_tells_itself_in_a_line() -> None:
    assert "\n" not in str(verify(LINES)) + str(Verdict("gap", "x", 3, 2))
