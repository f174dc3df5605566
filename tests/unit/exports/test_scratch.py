"""What waits for the end of a bundle takes bounded memory and a bounded file that has no name, and is closed while others are in it."""

import sqlite3
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streams.exports import scratch
from streams.exports.scratch import Item, Scratch

FACT = b'{"sequence":1}'


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Scratch]:
    with closing(Scratch(tmp_path / "spool")) as made:
        yield made


def tell(waiting: Scratch, count: int, size: int = 1024) -> None:
    """Of so many objects, once each."""
    for number in range(1, count + 1):
        waiting.tell("work", "run", f"run_{number}", number, number.to_bytes(4, "big") * (size // 4))


def test_bytes_are_counted_and_not_items(waiting: Scratch) -> None:
    tracemalloc.start()
    try:
        tell(waiting, 4000, 16 * 1024)
        assert sum(1 for _ in waiting.items("work")) == 4000
        assert tracemalloc.get_traced_memory()[1] < 2 * scratch._HELD_BYTES
    finally:
        tracemalloc.stop()


def test_its_file_is_in_its_folder_and_has_no_name(waiting: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_HELD_BYTES", 1)
    tell(waiting, 10)
    assert list((tmp_path / "spool").iterdir()) == []
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    (tmp_path / "a file").touch()
    with pytest.raises(OSError, match="a file"):
        Scratch(tmp_path / "a file")


def test_its_file_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_FILE_BYTES_MAX", 128 * 1024)
    monkeypatch.setattr(scratch, "_HELD_BYTES", 1)
    with closing(Scratch(tmp_path)) as bounded, pytest.raises(sqlite3.OperationalError, match="full"):
        tell(bounded, 200)


def test_what_is_told_before_and_behind_a_spill_is_one_item(waiting: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    for held in (10**6, 1, 10**6):
        monkeypatch.setattr(scratch, "_HELD_BYTES", held)
        for number in (1, 2):
            waiting.tell("work", "run", "a", number, b'{"%d":%d}' % (held, number))
    waiting.tell("work", "run", "b", 3, FACT)
    assert list(waiting.items("work")) == [
        Item(1, "run", "a", 6, b'{"1000000":1}', b'{"1000000":2}'), Item(3, "run", "b", 1, FACT, FACT),
    ]  # fmt: skip


def test_the_first_items_come_without_a_look_at_all(waiting: Scratch) -> None:
    count = 8000
    tell(waiting, count)
    assert [item.sequence for item in waiting.items("work")] == list(range(1, count + 1))
    steps = [0]

    def step() -> None:
        steps[0] += 1

    waiting._rows.set_progress_handler(step, 100)
    next(waiting.items("work"))
    assert 0 < 100 * steps[0] < count


def test_closing_waits_for_the_step_of_another_thread_which_finds_it_closed_afterwards(waiting: Scratch) -> None:
    tell(waiting, 1000)
    is_in, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def stay() -> None:
        is_in.set()
        go_on.wait(10)

    def read() -> None:
        try:
            list(waiting.items("work"))
        except sqlite3.Error as error:
            raised.append(error)

    waiting._rows.set_progress_handler(stay, 100)
    reader, closer = threading.Thread(target=read), threading.Thread(target=waiting.close)
    reader.start()
    assert is_in.wait(10)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    go_on.set()
    closer.join(10)
    reader.join(10)
    assert "closed" in str(raised[0])
