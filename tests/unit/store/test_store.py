"""The store on disk: what every store promises, and what only a disk can break."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from streams.errors import Misconfigured, NotOwner, StoreUnusable
from streams.store.memory import MemoryStore
from streams.store.store import SharedMemory, Store, shared_memory
from streams.store.table import StoreIdentity
from tests.contract.store_contract import StoreContract

IDENTITY = StoreIdentity("projector", 3, "cluster-a", "topic-a", 2)


Lines = list[MutableMapping[str, object]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What the store logs."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stores" / "2"


class TestStore(StoreContract):
    @pytest.fixture
    def store(self, path: Path) -> Iterator[Store]:
        store = Store.open(path, IDENTITY)
        yield store
        store.close()


def filled(path: Path, rows: int = 100) -> str:
    """A store as a killed process leaves it: its rows in the write-ahead log, which closing would empty."""
    original = path.with_name("original")
    store = Store.open(original, IDENTITY)
    for number in range(rows):
        store.write([(b"row/%04d" % number, b"value %d" % number)], {"events": number + 1})
    digest = store.digest()
    shutil.copytree(original, path)
    store.close()
    return digest


def test_rows_and_offsets_are_there_after_reopening(path: Path) -> None:
    digest = filled(path)
    store = Store.open(path, IDENTITY)
    assert store.get(b"row/0042") == b"value 42"
    assert store.offsets() == {"events": 100}
    assert store.digest() == digest
    store.close()


def test_both_implementations_give_the_same_digest(path: Path) -> None:
    memory = MemoryStore()
    for number in range(100):
        memory.write([(b"row/%04d" % number, b"value %d" % number)], {"events": 5})
    assert filled(path) == memory.digest()


def _killed(program: str, path: Path, count: int) -> tuple[int, int]:
    """Runs a child that writes `a/` and `b/` of each number to the store until it has reported `count`, kills it, and checks
    that the store holds exactly the numbers that its offset tells. Returns what was reported last, and that offset."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    assert child.stdout is not None
    reported = 0
    for line in child.stdout:
        reported = int(line)
        if reported >= count:
            break
    child.send_signal(signal.SIGKILL)
    child.stdout.close()
    child.wait()
    store = Store.open(path, IDENTITY)
    written = store.offsets()["events"]
    for prefix in (b"a/", b"b/"):
        with store.scan(prefix) as rows:
            assert [int(key[2:]) for key, _ in rows] == list(range(written))
    store.close()
    return reported, written


def test_rows_survive_the_kill_of_the_process(path: Path) -> None:
    """A child writes, reports how far it is and is killed with SIGKILL; every batch that it reported is there, whole."""
    program = """
import sys
from pathlib import Path
from streams.store.store import Store
from streams.store.table import StoreIdentity
store = Store.open(Path(sys.argv[1]), StoreIdentity("projector", 3, "cluster-a", "topic-a", 2))
number = 0
while True:
    store.write([(b"a/%06d" % number, b"x" * 500), (b"b/%06d" % number, b"y" * 500)], {"events": number + 1})
    number += 1
    print(number, flush=True)
"""
    reported, written = _killed(program, path, 500)
    assert written >= reported


def test_a_kill_while_a_store_is_filled_takes_rows_and_offset_back_together(path: Path) -> None:
    """Nothing is logged meanwhile: what is left is what went to files, and the offset tells of exactly that."""
    program = """
import os, sys
from pathlib import Path
from streams.store.store import Store
from streams.store.table import StoreIdentity
store = Store.open(Path(sys.argv[1]), StoreIdentity("projector", 3, "cluster-a", "topic-a", 2))
store.write([(b"a/%06d" % 0, b""), (b"b/%06d" % 0, b"")], {"events": 1})
store.begin_filling()
number = 1
while True:
    store.write([(b"a/%06d" % number, os.urandom(5000)), (b"b/%06d" % number, os.urandom(5000))], {"events": number + 1})
    number += 1
    print(number, flush=True)
"""
    reported, written = _killed(program, path, 5000)  # several memtables
    assert 1 < written < reported


def test_what_was_filled_survives_a_kill(path: Path) -> None:
    """The files of a store as they lie right after `end_filling`, and after one write more."""
    store = Store.open(path, IDENTITY)
    store.begin_filling()
    store.write([(b"row/%d" % number, b"value") for number in range(1000)], {"events": 1000})
    store.end_filling()
    shutil.copytree(path, path.with_name("filled"))
    store.write([(b"one/more", b"value")], {"events": 1001})
    shutil.copytree(path, path.with_name("later"))
    digest = store.digest()
    store.close()
    for name, offset, rows in (("filled", 1000, 1000), ("later", 1001, 1001)):
        copy = Store.open(path.with_name(name), IDENTITY)
        assert copy.offsets() == {"events": offset}
        with copy.scan(b"") as found:
            assert len(list(found)) == rows
        if name == "later":
            assert copy.digest() == digest
        copy.close()


def test_a_corrupt_byte_in_the_write_ahead_log_takes_rows_and_offset_back_together(path: Path) -> None:
    """RocksDB drops what is behind the byte without a word; the offset says so, and the log heals it."""
    digest = filled(path)
    (wal,) = path.glob("*.log")
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 0xFF
    wal.write_bytes(content)
    store = Store.open(path, IDENTITY)
    offset = store.offsets()["events"]
    assert 0 < offset < 100
    with store.scan(b"row/") as rows:
        assert len(list(rows)) == offset
    for number in range(offset, 100):
        store.write([(b"row/%04d" % number, b"value %d" % number)], {"events": number + 1})
    assert store.digest() == digest
    store.close()


def test_a_write_ahead_log_cut_in_the_middle_of_a_record_loses_that_record_only(path: Path) -> None:
    filled(path)
    (wal,) = path.glob("*.log")
    os.truncate(wal, wal.stat().st_size - 7)
    store = Store.open(path, IDENTITY)
    assert store.offsets() == {"events": 99}
    assert store.get(b"row/0098") is not None
    assert store.get(b"row/0099") is None
    store.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "newer"),
        ({"version": 4}, "older"),
        ({"cluster_id": "cluster-b"}, "foreign: cluster_id"),
        ({"topic_id": "topic-b"}, "foreign: topic_id"),
        ({"partition": 1}, "foreign: partition"),
        ({"role": "authority"}, "foreign: of role"),
    ],
)
def test_a_store_of_something_else_is_refused_and_rebuilt_saying_why(
    path: Path, lines: Lines, changes: dict[str, object], reason: str
) -> None:
    filled(path)
    expected = msgspec.structs.replace(IDENTITY, **changes)
    with pytest.raises(StoreUnusable, match=reason):
        Store.open(path, expected)
    store = Store.open_or_rebuild(path, expected)
    assert store.digest() == MemoryStore().digest()
    assert store.offsets() == {}
    (line,) = lines
    assert line["event"] == "store_rebuilt"
    assert reason in str(line["reason"])
    store.close()
    Store.open(path, expected).close()


def test_a_good_store_is_opened_without_a_word(path: Path, lines: Lines) -> None:
    digest = filled(path)
    store = Store.open_or_rebuild(path, IDENTITY)
    assert store.digest() == digest
    assert lines == []
    store.close()


@pytest.mark.parametrize("torn", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("how", ["removed", "emptied", "scrambled"])
def test_a_torn_store_is_rebuilt_and_says_so(path: Path, lines: Lines, torn: str, how: str) -> None:
    store = Store.open(path, IDENTITY)
    store.write([(b"row/%04d" % number, os.urandom(100)) for number in range(2000)], {"events": 2000})
    store._db.flush()
    store.close()
    for file in list(path.glob(torn)):
        size = file.stat().st_size
        if how == "removed":
            file.unlink()
        elif how == "emptied":
            os.truncate(file, 0)
        else:
            file.write_bytes(os.urandom(size))
    store = Store.open_or_rebuild(path, IDENTITY)
    assert store.offsets() == {}
    assert [line["event"] for line in lines] == ["store_rebuilt"]
    assert "torn" in str(lines[0]["reason"])
    store.write([(b"row", b"1")], {"events": 1})
    store.close()


@pytest.mark.parametrize("place", [0.01, 0.3, 0.6, 0.9])
def test_a_damaged_block_is_met_as_an_unusable_store_by_every_way_of_reading(path: Path, place: float) -> None:
    """The file has its right length, so RocksDB opens it; the checksum of a block tells. rocksdict's own iterators would
    end there as if nothing followed."""
    keys = [b"row/%04d" % number for number in range(2000)]
    store = Store.open(path, IDENTITY)
    store.write([(key, os.urandom(100)) for key in keys], {"events": 2000})
    store._db.flush()
    store.close()
    for file in path.glob("*.sst"):
        content = bytearray(file.read_bytes())
        content[int(len(content) * place)] ^= 0xFF
        file.write_bytes(content)
    store = Store.open(path, IDENTITY, SharedMemory(cache_bytes=1 << 20))
    for reverse in (False, True):
        with pytest.raises(StoreUnusable), store.scan(b"row/", reverse=reverse) as rows:
            list(rows)
        with pytest.raises(StoreUnusable), store.scan(b"", reverse=reverse) as rows:
            list(rows)
    with pytest.raises(StoreUnusable):
        _ = [store.get(key) for key in keys]
    with pytest.raises(StoreUnusable):
        store.get_many(keys)
    with pytest.raises(StoreUnusable):
        store.digest()
    store.wipe()
    assert not path.exists()


def test_a_directory_without_the_end_of_its_creation_is_rebuilt(path: Path, lines: Lines) -> None:
    """Killed between RocksDB's first file and the record of the identity."""
    path.mkdir(parents=True)
    (path / "LOCK").touch()
    store = Store.open_or_rebuild(path, IDENTITY)
    assert [line["event"] for line in lines] == ["store_rebuilt"]
    store._db.delete(b"m/identity")
    store.close()
    store = Store.open_or_rebuild(path, IDENTITY)
    assert "no identity" in str(lines[1]["reason"])
    store.close()


def test_a_store_that_is_held_is_neither_opened_nor_wiped(path: Path, lines: Lines) -> None:
    store = Store.open(path, IDENTITY)
    store.write([(b"a", b"1")], {"events": 1})
    with pytest.raises(Misconfigured, match="held"):
        Store.open_or_rebuild(path, IDENTITY)
    program = (
        "import sys\nfrom pathlib import Path\nfrom streams.store.store import Store\nfrom streams.store.table import StoreIdentity\n"
        "Store.open_or_rebuild(Path(sys.argv[1]), StoreIdentity('projector', 3, 'cluster-a', 'topic-a', 2))"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert "Misconfigured" in child.stderr
    assert lines == []
    assert store.get(b"a") == b"1"
    store.close()


def test_closing_lets_go_of_the_lock_though_a_scan_is_open(path: Path) -> None:
    store = Store.open(path, IDENTITY)
    store.write([(b"a/%d" % number, b"1") for number in range(10)], {})
    with store.scan(b"a/") as rows, store.scan(b"a/", reverse=True) as backwards:
        next(rows)
        next(backwards)
        store.close()
        again = Store.open(path, IDENTITY)
        with pytest.raises(NotOwner):
            next(rows)
        with pytest.raises(NotOwner):
            next(backwards)
        assert again.get(b"a/3") == b"1"
        again.close()


def test_readers_of_other_threads_meet_not_owner_when_the_store_closes(path: Path) -> None:
    store = Store.open(path, IDENTITY)
    store.write([(b"a/%04d" % number, b"1") for number in range(1000)], {})
    ends: list[BaseException] = []

    def read() -> None:
        try:
            while True:
                assert store.get(b"a/0007") == b"1"
                with store.scan(b"a/") as rows:
                    assert sum(1 for _ in rows) == 1000
        except BaseException as error:
            ends.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    store.write([(b"b", b"1")], {})
    store.close()
    for reader in readers:
        reader.join(10)
    assert [type(end) for end in ends] == [NotOwner] * 3
    Store.open(path, IDENTITY).close()


def test_a_reader_never_sees_an_offset_without_its_rows(path: Path) -> None:
    """Whoever reads the offsets first and rows then finds at least the rows that the offset stands for."""
    store = Store.open(path, IDENTITY)
    store.write([(b"last", b"0")], {"events": 0})
    done = threading.Event()
    wrong: list[tuple[int, int]] = []

    def read() -> None:
        while not done.is_set():
            offset = store.offsets()["events"]
            row = int(store.get(b"last") or b"-1")
            if row < offset:
                wrong.append((offset, row))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 5000):
        store.write([(b"last", b"%d" % number)], {"events": number})
    done.set()
    reader.join()
    assert wrong == []
    store.close()


def test_a_directory_that_cannot_be_written_is_no_reason_to_wipe(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(Misconfigured):
        Store.open_or_rebuild(file / "0", IDENTITY)
    assert file.read_text() == "mine"


def test_stores_of_a_process_share_a_bounded_cache(tmp_path: Path) -> None:
    """Twelve times as much is written as the cache and the buffers hold. Flushes may lag behind the writing, not for long."""
    memory = SharedMemory(cache_bytes=4 << 20, write_buffer_bytes=2 << 20)
    stores = [Store.open(tmp_path / str(number), msgspec.structs.replace(IDENTITY, partition=number), memory) for number in range(6)]
    value = os.urandom(1000)
    for round_ in range(8):
        for store in stores:
            store.write([(b"%d/%d" % (round_, number), value) for number in range(1000)], {})
            assert store.get(b"0/1") == value
    deadline = time.monotonic() + 20
    while memory.usage_bytes() >= 12 << 20 and time.monotonic() < deadline:
        for store in stores:
            store.write([(b"few", value)], {})
        time.sleep(0.02)
    assert memory.usage_bytes() < 12 << 20
    for store in stores:
        store.close()
    assert shared_memory() is shared_memory()


def test_a_store_that_was_made_before_reads_through_the_shared_cache(path: Path) -> None:
    """rocksdict by itself gives a store that exists the options that it was made with, a cache of its own among them."""
    value = os.urandom(1000)
    store = Store.open(path, IDENTITY)
    store.write([(b"%04d" % number, value) for number in range(1000)], {})
    store.close()
    memory = SharedMemory(cache_bytes=4 << 20, write_buffer_bytes=2 << 20)
    store = Store.open(path, IDENTITY, memory)
    before = memory.usage_bytes()
    assert all(store.get(b"%04d" % number) == value for number in range(1000))
    assert memory.usage_bytes() - before > 500_000
    store.close()


def test_wiping_leaves_nothing(path: Path) -> None:
    store = Store.open(path, IDENTITY)
    store.write([(b"a", b"1")], {"events": 1})
    store.wipe()
    assert not path.exists()
    store = Store.open(path, IDENTITY)
    assert store.get(b"a") is None
    store.close()


def test_an_interrupted_wipe_does_not_open_as_a_store(path: Path) -> None:
    filled(path)
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    (copy / "CURRENT").unlink()
    with pytest.raises(StoreUnusable, match="torn"):
        Store.open(copy, IDENTITY)


def test_reads_between_fills_go_to_a_file_once_and_not_to_the_memtable_each_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memtable of a store that is filled is copied and sorted by every look at it."""
    store = Store.open(path, IDENTITY)
    store.begin_filling()
    settled: list[int] = []
    settle = store._settle
    monkeypatch.setattr(store, "_settle", lambda: (settled.append(1), settle()))
    store.write([(b"row/%d" % number, b"value") for number in range(1000)], {"events": 1000})
    assert [store.get(b"row/%d" % number) for number in range(100)] == [b"value"] * 100
    assert store.get_many([b"row/1", b"row/2"]) == [b"value", b"value"]
    assert len(settled) == 1
    store.write([(b"row/1", b"another")], {"events": 1001})
    assert store.get(b"row/1") == b"another"
    assert len(settled) == 2
    store.end_filling()
    store.write([(b"row/2", b"logged")], {"events": 1002})
    assert store.get(b"row/2") == b"logged"
    assert len(settled) == 3  # that of the end; a store that is not filled has nothing to settle
    store.close()
