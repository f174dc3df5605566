"""The key file: made once, readable by its owner, and good for the workspaces that it wrapped for."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.custody.local_keys import LocalKeyFile
from streams.errors import KeyringUnavailable, Misconfigured

WORKSPACE = "ws_" + "1" * 32
OTHER_WORKSPACE = "ws_" + "2" * 32


def test_a_key_comes_back_from_its_wrapping_also_after_a_restart(tmp_path: Path) -> None:
    key = os.urandom(32)
    first = LocalKeyFile(tmp_path / "k")
    wrapped = first.wrap(WORKSPACE, key)
    assert key not in wrapped
    assert LocalKeyFile(tmp_path / "k").unwrap(WORKSPACE, first.key_id, wrapped) == key


def test_the_file_is_readable_by_its_owner_only_and_nothing_else_is_left(tmp_path: Path) -> None:
    LocalKeyFile(tmp_path / "folder" / "k")
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "folder").iterdir()] == [("k", 0o600)]
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700


def test_processes_that_start_together_load_the_same_key(start_worker: Callable[[str], "subprocess.Popen[str]"], directory: Path) -> None:
    workers = [start_worker("open") for _ in range(6)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    answers = {worker.communicate("go\n", timeout=30)[0] for worker in workers}
    assert answers == {LocalKeyFile(directory / "workspace.key").key_id + "\n"}
    assert [path.name for path in directory.iterdir()] == ["workspace.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    LocalKeyFile(tmp_path / "k")
    (tmp_path / "k").chmod(mode)
    with pytest.raises(Misconfigured, match="chmod 600"):
        LocalKeyFile(tmp_path / "k")


@pytest.mark.parametrize("text", ["", "nonsense\n", "session-streams/workspace-keys/v1 " + "0" * 63 + "\n"])
def test_a_file_that_is_no_key_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").touch(mode=0o600)
    (tmp_path / "k").write_text(text)
    with pytest.raises(Misconfigured, match="64 hex digits"):
        LocalKeyFile(tmp_path / "k")


def test_a_file_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    with pytest.raises(KeyringUnavailable):
        LocalKeyFile(tmp_path / "k")


def test_what_was_wrapped_for_one_workspace_opens_for_no_other(tmp_path: Path) -> None:
    provider = LocalKeyFile(tmp_path / "k")
    wrapped = provider.wrap(WORKSPACE, os.urandom(32))
    with pytest.raises(Misconfigured):
        provider.unwrap(OTHER_WORKSPACE, provider.key_id, wrapped)


def test_another_key_file_says_whose_key_is_missing(tmp_path: Path) -> None:
    one, other = LocalKeyFile(tmp_path / "one"), LocalKeyFile(tmp_path / "other")
    with pytest.raises(Misconfigured, match=one.key_id):
        other.unwrap(WORKSPACE, one.key_id, one.wrap(WORKSPACE, os.urandom(32)))
