"""What every `Log` promises: the simulator and a real broker run these same tests.

A subclass supplies `make_log(instance)`: a process's view of one and the same cluster, whose topics have four partitions.
"""

import time
from collections.abc import Callable

import pytest

from streams.errors import Fatal, TransactionAborted
from streams.log.log import Log, Member, Reader, Transactions
from streams.log.reader import Place, Record, Row

PARTITION = 1
GROUP = "contract"


class LogContract:
    """`input` is consumed, `output` is written in transactions; both are topics of the cluster."""

    input: str
    output: str
    patience_s = 20.0

    def make_log(self, instance: str) -> Log:
        raise NotImplementedError

    # -- what tests do with it

    @property
    def source(self) -> Place:
        return (self.input, PARTITION)

    @property
    def target(self) -> Place:
        return (self.output, PARTITION)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.patience_s
        while not condition():
            assert time.monotonic() < deadline, "not within the contract's patience"

    def join(self, log: Log, events: list[tuple[str, list[Place]]]) -> Member:
        def assigned(places: list[Place]) -> dict[Place, int | None]:
            events.append(("assigned", places))
            return dict.fromkeys(places)

        member = log.member(GROUP, self.input, f"{GROUP}@127.0.0.1:1", assigned, lambda places: events.append(("given up", places)))
        self.until(lambda: member.read(1, 0.1) == [] and bool(events))
        return member

    def write(self, log: Log, *values: bytes, instance: str = "writer", topic: str | None = None) -> list[int]:
        offsets: list[int] = []
        writer = log.transactions(instance)
        writer.initialise()
        writer.begin()
        for value in values:
            writer.produce(topic or self.output, PARTITION, b"key-" + value, value, offsets.append)
        writer.commit()
        writer.close()
        return offsets

    def write_as(self, transactions: Transactions, value: bytes) -> None:
        transactions.begin()
        transactions.produce(self.output, PARTITION, b"k", value)
        transactions.commit()

    def read_to(self, reader: Reader, place: Place, end: int) -> list[Record]:
        records: list[Record] = []

        def reached() -> bool:
            records.extend(reader.read(100, 0.1))
            return reader.position(*place) >= end

        self.until(reached)
        return records

    # -- transactions

    def test_what_was_committed_is_read_in_order_and_its_offsets_are_told(self) -> None:
        log = self.make_log("a")
        offsets = self.write(log, b"1", b"2")
        # A control record takes an offset: the end is not the last record's successor. It may come a moment after the commit.
        end = offsets[1] + 2
        self.until(lambda: log.end_offsets([self.target], committed=True)[self.target] == end)
        reader = log.reader("test", {self.target: 0})
        records = self.read_to(reader, self.target, end)
        assert [(record.offset, record.key, record.value) for record in records] == [
            (offsets[0], b"key-1", b"1"),
            (offsets[1], b"key-2", b"2"),
        ]
        reader.close()

    def test_rows_are_read_as_records_are_and_to_the_same_position(self) -> None:
        log = self.make_log("a")
        offsets = self.write(log, b"1", b"2", b"3")
        end = offsets[2] + 2
        self.until(lambda: log.end_offsets([self.target], committed=True)[self.target] == end)
        reader = log.reader("test", {self.target: offsets[1]})
        rows: list[Row] = []

        def reached() -> bool:
            rows.extend(reader.read_rows(100, 0.1))
            return reader.position(*self.target) >= end

        self.until(reached)
        assert rows == [(b"key-2", b"2"), (b"key-3", b"3")]
        assert log.log_start_offsets([self.target])[self.target] == 0
        reader.close()

    def test_an_open_transaction_hides_what_follows_it_and_separates_the_two_ends(self) -> None:
        log = self.make_log("a")
        hanging = log.transactions("hanging")
        hanging.initialise()
        hanging.begin()
        hanging.produce(self.output, PARTITION, b"k", b"hidden")
        self.until(lambda: log.end_offsets([self.target], committed=False)[self.target] >= 1 or self.settle(hanging))
        stable = log.end_offsets([self.target], committed=True)[self.target]
        self.write(log, b"later")
        reader = log.reader("test", {self.target: 0})
        assert log.end_offsets([self.target], committed=True)[self.target] == stable
        assert log.end_offsets([self.target], committed=False)[self.target] > stable
        assert reader.read(100, 0.5) == []
        # The next of the same id frees them.
        heir = log.transactions("hanging")
        heir.initialise()
        end = log.end_offsets([self.target], committed=False)[self.target]
        assert [record.value for record in self.read_to(reader, self.target, end)] == [b"later"]
        reader.close()
        with pytest.raises((Fatal, TransactionAborted)):
            hanging.commit()

    def settle(self, transactions: object) -> bool:
        """For a client that sends in the background: give it a moment. Never ends the wait by itself."""
        time.sleep(0.02)
        return False

    def test_the_older_of_two_producers_of_one_id_is_fenced(self) -> None:
        older, newer = self.make_log("a").transactions("same"), self.make_log("a").transactions("same")
        older.initialise()
        newer.initialise()
        with pytest.raises(Fatal):
            self.write_as(older, b"zombie")
        self.write_as(newer, b"alive")
        log = self.make_log("b")
        end = log.end_offsets([self.target], committed=False)[self.target]
        reader = log.reader("test", {self.target: 0})
        assert [record.value for record in self.read_to(reader, self.target, end)] == [b"alive"]
        reader.close()

    # -- groups

    def test_a_member_comes_paused_and_starts_where_the_group_committed(self) -> None:
        log = self.make_log("a")
        self.write(log, b"1", b"2", topic=self.input)
        events: list[tuple[str, list[Place]]] = []
        member = self.join(log, events)
        assert sorted(events[0][1]) == [(self.input, partition) for partition in range(4)]
        assert member.read(10, 0.3) == []
        member.resume([self.source])
        records: list[Record] = []
        self.until(lambda: bool(records.extend(member.read(10, 0.1)) or len(records) == 2))
        assert [record.value for record in records] == [b"1", b"2"]
        self.commit(log, member, records[0].offset + 1)
        assert member.committed([self.source]) == {self.source: records[0].offset + 1}
        member.seek({self.source: records[0].offset})
        again: list[Record] = []
        self.until(lambda: bool(again.extend(member.read(10, 0.1)) or len(again) == 2))
        assert again == records
        member.close()

    def commit(self, log: Log, member: Member, offset: int) -> None:
        transactions = log.transactions("committer")
        transactions.initialise()
        transactions.begin()
        transactions.produce(self.output, PARTITION, b"k", b"v")
        transactions.send_offsets({self.source: offset}, member.metadata())
        transactions.commit()
        transactions.close()

    def test_offsets_of_a_generation_that_has_passed_abort_the_transaction(self) -> None:
        log = self.make_log("a")
        first_events: list[tuple[str, list[Place]]] = []
        first = self.join(log, first_events)
        stale = first.metadata()
        second_events: list[tuple[str, list[Place]]] = []
        other = self.make_log("b")

        def assigned(places: list[Place]) -> dict[Place, int | None]:
            second_events.append(("assigned", places))
            return dict.fromkeys(places)

        second = other.member(GROUP, self.input, f"{GROUP}@127.0.0.1:2", assigned, lambda places: None)
        self.until(lambda: first.read(1, 0.1) == second.read(1, 0.1) and bool(second_events) and len(first.owned) == 2)
        assert first.owned | second.owned == {(self.input, partition) for partition in range(4)}
        assert not first.owned & second.owned
        transactions = log.transactions("stale")
        transactions.initialise()
        transactions.begin()
        transactions.produce(self.output, PARTITION, b"k", b"stale")
        with pytest.raises(TransactionAborted):
            transactions.send_offsets({self.source: 1}, stale)
        end = log.end_offsets([self.target], committed=False)[self.target]
        reader = log.reader("test", {self.target: 0})
        assert self.read_to(reader, self.target, end) == []
        reader.close()
        second.close()
        first.close()
