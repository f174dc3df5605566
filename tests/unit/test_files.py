"""A file that several processes need is made by one of them, and nobody sees half of it."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streams.files import create_once


def test_of_many_who_create_a_file_one_wins_and_nothing_is_left_over(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    contents = [b"%02d" % number * 1000 for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: create_once(path, content), contents))
    kept = path.read_bytes()
    assert kept in contents
    create_once(path, b"too late")
    assert path.read_bytes() == kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        create_once(tmp_path / "nowhere" / "secret", b"x")
