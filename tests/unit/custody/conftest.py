"""Keyrings on a temporary folder, and processes that share them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams.custody.sqlite_keyring import SqliteKeyring, open_local_keyring

_WORKER = Path(__file__).with_name("keyring_worker.py")
_ROOT = Path(__file__).parents[3]

StartWorker = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "keyring"


@pytest.fixture
def open_keyring(directory: Path) -> Iterator[Callable[[], SqliteKeyring]]:
    opened: list[SqliteKeyring] = []

    def open_one() -> SqliteKeyring:
        opened.append(open_local_keyring(directory))
        return opened[-1]

    yield open_one
    for keyring in opened:
        keyring.close()


@pytest.fixture
def keyring(open_keyring: Callable[[], SqliteKeyring]) -> SqliteKeyring:
    return open_keyring()


@pytest.fixture
def start_worker(directory: Path) -> Iterator[StartWorker]:
    started: list[subprocess.Popen[str]] = []

    def start(mode: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(_WORKER), mode, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
