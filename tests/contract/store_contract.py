"""What every store promises, whatever it is made of. A test class inherits it and says how to make one."""

from abc import ABC, abstractmethod

import pytest

from streams.errors import NotOwner
from streams.store.table import Table


class StoreContract(ABC):
    @abstractmethod
    @pytest.fixture
    def store(self) -> Table:
        """An empty store; whoever makes it closes it."""

    def test_an_absent_row_reads_as_none(self, store: Table) -> None:
        assert store.get(b"absent") is None
        assert store.offsets() == {}

    def test_a_write_puts_rows_and_offsets_and_keeps_the_other_offsets(self, store: Table) -> None:
        store.write([(b"a", b"1"), (b"b", b"2")], {"events": 3, "commands": 1})
        store.write([(b"a", b"one")], {"events": 9})
        assert store.get_many([b"b", b"none", b"a"]) == [b"2", None, b"one"]
        assert store.offsets() == {"events": 9, "commands": 1}

    def test_none_deletes_a_row_and_the_last_put_of_a_batch_wins(self, store: Table) -> None:
        store.write([(b"a", b"1"), (b"b", b"2")], {})
        store.write([(b"a", None), (b"b", None), (b"b", b"3"), (b"absent", None)], {})
        assert store.get_many([b"a", b"b"]) == [None, b"3"]

    def test_an_empty_value_is_not_an_absent_one(self, store: Table) -> None:
        store.write([(b"", b""), (b"k", b"")], {})
        assert store.get(b"") == b""
        assert store.get(b"k") == b""

    def test_offsets_alone_may_be_written(self, store: Table) -> None:
        store.write([], {"events": 2**40})
        assert store.offsets() == {"events": 2**40}

    def test_what_is_written_while_a_store_is_filled_is_read_during_it_and_after(self, store: Table) -> None:
        store.write([(b"a", b"1"), (b"b", b"2")], {"events": 1})
        store.begin_filling()
        store.write([(b"b", None), (b"c", b"3")], {"events": 2})
        store.write([(b"c", b"4")], {"events": 3})
        assert store.get_many([b"a", b"b", b"c"]) == [b"1", None, b"4"]
        store.end_filling()
        store.write([(b"d", b"5")], {"commands": 1})
        with store.scan(b"") as rows:
            assert list(rows) == [(b"a", b"1"), (b"c", b"4"), (b"d", b"5")]
        assert store.offsets() == {"events": 3, "commands": 1}

    @pytest.mark.parametrize(
        ("start", "reverse", "expected"),
        [
            (None, False, [b"k/1", b"k/2", b"k/3", b"k\xff\xff"]),
            (None, True, [b"k\xff\xff", b"k/3", b"k/2", b"k/1"]),
            (b"k/2", False, [b"k/2", b"k/3", b"k\xff\xff"]),
            (b"k/2", True, [b"k/2", b"k/1"]),
            (b"k/25", False, [b"k/3", b"k\xff\xff"]),
            (b"k/25", True, [b"k/2", b"k/1"]),
            (b"a", False, [b"k/1", b"k/2", b"k/3", b"k\xff\xff"]),
            (b"a", True, []),
            (b"z", False, []),
            (b"z", True, [b"k\xff\xff", b"k/3", b"k/2", b"k/1"]),
        ],
    )
    def test_a_scan_gives_the_rows_of_its_prefix_in_order(
        self, store: Table, start: bytes | None, reverse: bool, expected: list[bytes]
    ) -> None:
        keys = [b"", b"j", b"j\xff", b"k/1", b"k/2", b"k/3", b"k\xff\xff", b"l", b"l/1"]
        store.write([(key, b"value of " + key) for key in keys], {"events": 1})
        with store.scan(b"k", start=start, reverse=reverse) as rows:
            assert list(rows) == [(key, b"value of " + key) for key in expected]

    def test_a_scan_of_everything_sees_rows_only(self, store: Table) -> None:
        store.write([(b"m", b"1"), (b"\xff", b"2"), (b"d", b"3")], {"events": 1})
        with store.scan(b"") as rows:
            assert [key for key, _ in rows] == [b"d", b"m", b"\xff"]
        with store.scan(b"", reverse=True) as rows:
            assert [key for key, _ in rows] == [b"\xff", b"m", b"d"]

    def test_a_scan_does_not_see_what_is_written_meanwhile(self, store: Table) -> None:
        store.write([(b"a", b"1"), (b"c", b"3")], {})
        with store.scan(b"") as rows:
            first = next(rows)
            store.write([(b"b", b"2"), (b"c", None)], {})
            assert [first, *rows] == [(b"a", b"1"), (b"c", b"3")]

    def test_the_digest_is_of_rows_not_of_how_they_came(self, store: Table) -> None:
        empty = store.digest()
        store.write([(b"a", b"1"), (b"b", b"2")], {"events": 7})
        both = store.digest()
        store.write([(b"a", None)], {"events": 8})
        store.write([(b"b", None)], {"events": 9})
        assert store.digest() == empty
        store.write([(b"b", b"2")], {})
        store.write([(b"a", b"1")], {"other": 1})
        assert store.digest() == both
        store.write([(b"a", b"12"), (b"b", b"")], {})
        assert store.digest() not in {empty, both}

    def test_a_closed_store_refuses_and_ends_its_scans(self, store: Table) -> None:
        store.write([(b"a", b"1"), (b"b", b"2")], {})
        with store.scan(b"") as rows:
            next(rows)
            store.close()
            with pytest.raises(NotOwner):
                next(rows)
        store.close()
        with pytest.raises(NotOwner):
            store.get(b"a")
        with pytest.raises(NotOwner):
            store.write([(b"a", b"2")], {})
        with pytest.raises(NotOwner), store.scan(b""):
            pass
