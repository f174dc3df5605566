"""Reads of agents' checkpoints: what was acknowledged before a question is in its answer, and a question costs the same at any size."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from streams.agents import rows
from streams.agents.core import Head
from streams.agents.ids import mint
from streams.agents.records import decode_checkpoint
from streams.errors import NotOwner, ProjectionBehind, TransactionAborted
from streams.loop.crash import CrashPoint
from streams.store.table import Reads
from tests.support.agent_world import SECOND, WORKSPACE, AgentWorld, Process, scope, state
from tests.support.waiting import eventually

HERE, ELSEWHERE = scope(1), scope(2)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    made = AgentWorld(tmp_path)
    made.start()
    made.settle()
    yield made
    made.close()


class Reader:
    """A serving loop of its own, as the owner's web server has it."""

    def __init__(self, process: Process) -> None:
        self.process, self.loop = process, asyncio.new_event_loop()
        process.freshness.bind(self.loop)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def ask(self, question: Any) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(question, self.loop)

    def held(self, question: Any) -> "Future[Any]":
        """The question, once it waits."""
        asked = self.ask(question)
        eventually(lambda: self.process.freshness._count == 1)
        assert not asked.done()
        return asked

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def reader(world: AgentWorld) -> Iterator[Reader]:
    made = Reader(world.processes["0"])
    yield made
    made.close()


def at_commit(world: AgentWorld, action: Callable[[], None]) -> None:
    crash = world.processes["0"].crash
    crash.action, crash.point = action, CrashPoint.AFTER_COMMIT


def head_of(value: bytes | None) -> Head:
    assert value is not None
    return decode_checkpoint(value)


def test_a_read_between_the_commit_and_the_store_is_held_until_the_store_has_what_was_acknowledged(
    world: AgentWorld, reader: Reader
) -> None:
    world.save(ELSEWHERE, 7)
    world.save(HERE, 1)
    world.settle()
    command_id = world.save(HERE, 2)
    reads, answers = world.processes["0"].reads, list["Future[Any]"]()

    def read() -> None:
        assert world.outcome(command_id).version == 2  # acknowledged
        assert head_of(reader.ask(reads.by_scope(ELSEWHERE.key, 5)).result(5)).state_hash == state(7)  # not of this commit: at once
        answers.append(reader.held(reads.by_scope(HERE.key, 30)))

    at_commit(world, read)
    world.step()
    assert head_of(answers[0].result(5)).state_hash == state(2)


@pytest.mark.parametrize("point", [CrashPoint.AFTER_PRODUCE, CrashPoint.AFTER_COMMIT], ids=lambda point: point.name.lower())
def test_a_save_is_acknowledged_only_when_it_is_committed_and_readable(world: AgentWorld, point: CrashPoint) -> None:
    """Killed before its commit nobody is told of it; whoever was told reads it from its heir. Decided once either way."""
    command_id = world.save(HERE, 1)
    world.processes["0"].crash.point = point
    assert not world.step(), "it has died there"
    committed = point is CrashPoint.AFTER_COMMIT
    assert [each.command_id for each in world.outcomes()] == ([command_id] if committed else [])
    assert len(world.table()) == committed
    world.start()
    world.settle()
    assert (world.outcome(command_id).status, world.outcome(command_id).version) == ("saved", 1)
    head = world.head(HERE)
    assert head is not None
    assert (head.state_hash, head.version) == (state(1), 1)


def test_a_read_by_the_id_of_a_row_that_was_just_acknowledged_finds_it(world: AgentWorld, reader: Reader) -> None:
    command_id = world.save(HERE, 1)
    reads, answers = world.processes["0"].reads, list["Future[Any]"]()

    def read() -> None:
        answers.append(reader.held(reads.by_id(WORKSPACE, world.outcome(command_id).checkpoint_id or "", 30)))

    at_commit(world, read)
    world.step()
    assert head_of(answers[0].result(5)).state_hash == state(1)


def test_a_read_after_an_acknowledged_deletion_finds_nothing(world: AgentWorld, reader: Reader) -> None:
    first = world.save(HERE, 1)
    world.settle()
    deleted = world.delete(HERE, world.outcome(first).checkpoint_id or "")
    reads, answers = world.processes["0"].reads, list["Future[Any]"]()

    def read() -> None:
        assert world.outcome(deleted).status == "deleted"
        answers.append(reader.held(reads.by_scope(HERE.key, 30)))

    at_commit(world, read)
    world.step()
    assert answers[0].result(5) is None


def test_a_read_during_a_commit_that_is_aborted_waits_for_the_batch_to_be_decided_again(world: AgentWorld, reader: Reader) -> None:
    world.save(HERE, 1)
    world.settle()
    world.save(HERE, 2)
    process, answers = world.processes["0"], list["Future[Any]"]()
    commit = process.loop._producer.commit

    def aborted() -> None:
        answers.append(reader.held(process.reads.by_scope(HERE.key, 30)))
        process.loop._producer.commit = commit  # type: ignore[method-assign]
        process.loop._producer.abort()
        raise TransactionAborted("the coordinator said so")

    process.loop._producer.commit = aborted  # type: ignore[method-assign]
    world.step()
    assert not answers[0].done()
    world.step()
    assert head_of(answers[0].result(5)).state_hash == state(2)


def test_a_read_whose_commit_never_ends_is_refused_in_time(world: AgentWorld, reader: Reader) -> None:
    world.save(HERE, 1)
    reads = world.processes["0"].reads

    def read() -> None:
        with pytest.raises(ProjectionBehind):
            reader.ask(reads.by_scope(HERE.key, 0.05)).result(5)

    at_commit(world, read)
    world.step()


def test_an_id_of_another_workspace_or_none_is_not_there(world: AgentWorld, reader: Reader) -> None:
    command_id = world.save(HERE, 1)
    world.settle()
    reads = world.processes["0"].reads
    known = world.outcome(command_id).checkpoint_id or ""
    assert head_of(reader.ask(reads.by_id(WORKSPACE, known, 5)).result(5)).version == 1
    for workspace_id, checkpoint_id in (("ws_" + "b" * 32, known), (WORKSPACE, mint(0)), (WORKSPACE, "ckpt_x"), (WORKSPACE, mint(1))):
        assert reader.ask(reads.by_id(workspace_id, checkpoint_id, 5)).result(5) is None


def test_history_is_told_newest_first_page_by_page(world: AgentWorld, reader: Reader) -> None:
    for number in range(1, 31):
        world.save(HERE, number)
    world.settle()
    reads, found, before = world.processes["0"].reads, list[int](), None
    checkpoint_id = world.outcomes()[0].checkpoint_id or ""
    while page := reader.ask(reads.history(WORKSPACE, checkpoint_id, limit=6, before=before, wait_s=5)).result(5):
        assert len(page) <= 6
        found += [decode_checkpoint(value).version for value in page]
        before = found[-1]
    assert found == list(range(30, 9, -1))


def test_versions_that_have_expired_go_and_an_expired_head_stays(world: AgentWorld, reader: Reader) -> None:
    first = world.save(HERE, 1, ttl=60)
    world.save(HERE, 2, ttl=60)
    world.save(HERE, 3, ttl=600)
    world.save(HERE, 4, ttl=60)
    world.settle()
    world.now += 61 * SECOND
    world.settle()
    reads, checkpoint_id = world.processes["0"].reads, world.outcome(first).checkpoint_id or ""
    page = reader.ask(reads.history(WORKSPACE, checkpoint_id, limit=10, before=None, wait_s=5)).result(5)
    assert [decode_checkpoint(value).version for value in page] == [4, 3]
    assert set(world.table()) == {rows.head_key(HERE.key), rows.version_key(HERE.key, 3)}


class Counting:
    """A store that counts what is asked of it."""

    def __init__(self, store: Reads) -> None:
        self._store, self.asked = store, 0

    def get(self, key: bytes) -> bytes | None:
        self.asked += 1
        return self._store.get(key)

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        self.asked += 1
        return self._store.get_many(keys)


def test_a_read_by_scope_is_one_look_up_and_one_by_id_is_two_at_any_number_of_rows(world: AgentWorld, reader: Reader) -> None:
    for number in range(2000):
        world.save(scope(number), number)
    world.settle()
    process = world.processes["0"]
    counting = process.tables.owned[0].store = Counting(process.tables.owned[0].store)  # type: ignore[assignment]
    assert head_of(reader.ask(process.reads.by_scope(scope(1234).key, 5)).result(5)).state_hash == state(1234)
    assert counting.asked == 1
    checkpoint_id = world.outcomes()[1234].checkpoint_id or ""
    assert head_of(reader.ask(process.reads.by_id(WORKSPACE, checkpoint_id, 5)).result(5)).state_hash == state(1234)
    assert counting.asked == 3


def test_who_gave_the_partition_up_answers_nothing_and_the_heir_everything(world: AgentWorld) -> None:
    world.save(HERE, 1)
    world.settle()
    world.processes["0"].log.members[-1].expire()
    world.start("1")
    world.step("0")
    world.settle()
    owners = [name for name, process in world.processes.items() if process.tables.owned]
    assert len(owners) == 1
    assert (head := world.head(HERE, owners[0])) is not None
    assert head.state_hash == state(1)
    (other,) = set(world.processes) - set(owners)
    with pytest.raises(NotOwner):
        world.head(HERE, other)
