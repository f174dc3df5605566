"""What surrounds the verdict on a bundle: its words, its files, and whether what was fetched is whole."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_streams.bundle import items, verify
from session_streams.bundle.__main__ import main
from session_streams.bundle.verdict import gap_in_words
from session_streams.bundles import _broken_off
from session_streams.errors import ConnectionFailed, Unavailable
from streams.custody.signing import SigningKey
from streams.session.events import Draft
from tests.support.bundles import bundle_of, history, trust_of
from tests.support.examples import made_up_id
from tests.support.exports import History

KEY = SigningKey.generate()
GOOD = bundle_of(history().lines(), KEY)
FORK: dict[str, Any] = {"reason": "in_source_session", "session_id": "sess_x"}
RANGE = {"count": 3, "first_sequence": 2, "last_sequence": 9}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "x.bundle").write_bytes(GOOD)
    (tmp_path / "trust.json").write_bytes(trust_of(KEY))
    return tmp_path / "x.bundle"


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        ({"reason": "none_recorded"}, "none recorded"),
        ({"reason": "bytes_not_held", "count": 2}, "2 bytes not held"),
        ({"reason": "erased", **RANGE}, "3 erased, positions 2 to 9"),
        ({"reason": "erased", **RANGE, "last_sequence": 2}, "3 erased, position 2"),
        (FORK, "in source session sess_x"),
        ({**FORK, "source_hash": "ab"}, "in source session sess_x"),
        ({**FORK, "through_sequence": 7}, "in source session sess_x, positions 1 to 7"),
    ],
)
def test_every_form_of_a_gap_has_words(gap: dict[str, Any], words: str) -> None:
    assert gap_in_words(gap) == words


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_what_is_no_name_of_a_file_cannot_be_read(file: Path, name: str) -> None:
    with pytest.raises(OSError, match="no name of a file"):
        verify(name, file.with_name("trust.json"))
    with pytest.raises(OSError, match="no name of a file"):
        next(items(file, Path(name), "work"))
    assert main(["verify", name, "--trust", str(file.with_name("trust.json"))]) == 2


@pytest.mark.parametrize("arguments", [["show", "--section", "events"], ["show", "--section", "work"], ["verify", "--json"], ["show"]])
def test_is_told_to_a_terminal_of_any_encoding_in_characters_that_it_does_not_obey(
    file: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    odd = "é\x1b[2J\x9b\u2028"
    draft = Draft(
        event_id=made_up_id("evt"), session_id="", type="run.accepted", workspace_id=odd, command_id=made_up_id("cmd"), run_id=odd
    )  # fmt: skip
    file.write_bytes(bundle_of(History().accept(draft, text='"é"', gone=None).lines(), KEY))
    told = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(told, "ascii"))
    assert main([*arguments, str(file), "--trust", str(file.with_name("trust.json"))]) == 0
    lines = told.getvalue().decode("ascii").splitlines()
    assert all(line.isprintable() for line in lines)
    assert "\\x1b[2J" in lines[0] if arguments == ["show"] else odd in list(_texts([json.loads(line) for line in lines]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


@pytest.mark.parametrize(
    "got",
    [
        b"",
        b"\n",
        GOOD[:-1],
        GOOD[:-2] + b"\n",
        GOOD[:-40],
        GOOD + b"{",
        b'{"payload":"abc',
        b'{"payload":\n',
        b'{"kind":"error","status":"503"}\n',
        b'{"kind":"error","status":true}\n',
        b'{"kind":"error","status":200}\n',
        b'{"kind":"error","code":"x"}\n',
        b'{"kind":"error",}\n',
        b'{"kind":"error","status":' + b"[" * 100_000 + b"}\n",
        b'{"kind":"error","status":"\xff"}\n',
    ],
)
def test_what_was_fetched_is_whole_only_where_it_ends_with_an_envelope(got: bytes) -> None:
    assert isinstance(_broken_off(io.BytesIO(got)), ConnectionFailed)


def test_what_was_fetched_may_say_why_it_ends() -> None:
    assert _broken_off(io.BytesIO(GOOD)) is None
    failed = _broken_off(io.BytesIO(GOOD + b'{"kind":"error","status":503,"code":"service.not_owner","next_sequence":9}\n'))
    assert isinstance(failed, Unavailable)
    assert (failed.status, failed.code) == (503, "service.not_owner")
