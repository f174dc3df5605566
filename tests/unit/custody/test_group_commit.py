"""One writer for many callers: shared transactions, and failures that stay with whom they concern."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streams.custody.group_commit import GroupCommit, connect
from streams.errors import Invalid


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with contextlib.closing(connect(tmp_path / "db", timeout_s=1)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    return tmp_path / "db"


@pytest.fixture
def writer(path: Path) -> Iterator[GroupCommit]:
    group_commit = GroupCommit(path, path.with_name("lock"), timeout_s=5, truncate_timeout_s=1)
    yield group_commit
    group_commit.close()


def numbers(path: Path) -> set[int]:
    with contextlib.closing(connect(path, timeout_s=1)) as connection:
        return {number for (number,) in connection.execute("SELECT number FROM numbers").fetchall()}


def insert(number: int) -> Callable[[sqlite3.Connection], int]:
    def work(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return number

    return work


@contextlib.contextmanager
def gathered(writer: GroupCommit, works: list[Callable[[sqlite3.Connection], object]]) -> Iterator[list[object]]:
    """Answers (or errors) of works that were all in line while one transaction was held up."""
    begins: list[str] = []
    holding, release = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(lambda text: begins.append(text) if text.startswith("BEGIN") else None)
        holding.set()
        release.wait(5)

    with ThreadPoolExecutor(len(works) + 1) as pool:
        held = pool.submit(writer.commit, hold)
        assert holding.wait(5)
        waiting = [pool.submit(writer.commit, work) for work in works]
        while len(writer._jobs) < len(works):
            threading.Event().wait(0.01)
        release.set()
        held.result(5)
        answers: list[object] = [future.exception(5) or future.result() for future in waiting]
    assert begins == ["BEGIN IMMEDIATE"], "one transaction for all who waited"
    yield answers


def test_callers_that_wait_share_one_transaction(writer: GroupCommit, path: Path) -> None:
    with gathered(writer, [insert(number) for number in range(20)]) as answers:
        assert answers == list(range(20))
    assert numbers(path) == set(range(20))


def test_a_refused_caller_spoils_nothing_for_the_others(writer: GroupCommit, path: Path) -> None:
    def refuse(_: sqlite3.Connection) -> None:
        raise Invalid("no")

    with gathered(writer, [insert(1), refuse, insert(2)]) as answers:
        assert answers[::2] == [1, 2]
        assert isinstance(answers[1], Invalid)
    assert numbers(path) == {1, 2}


def test_a_broken_caller_undoes_the_transaction_and_the_writer_goes_on(writer: GroupCommit, path: Path) -> None:
    def broken(_: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    with gathered(writer, [insert(1), broken]) as answers:
        assert [type(answer) for answer in answers] == [ZeroDivisionError, ZeroDivisionError]
    assert numbers(path) == set()
    assert writer.commit(insert(3)) == 3


def test_a_closed_writer_takes_no_more(writer: GroupCommit) -> None:
    writer.commit(insert(1))
    writer.close()
    with pytest.raises(RuntimeError, match="closed"):
        writer.commit(insert(2))


def test_a_fork_is_noticed(writer: GroupCommit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer's thread does not exist in a forked child; waiting for it would be waiting for ever."""
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="fork"):
        writer.commit(insert(1))
