"""An erased subject's rows go, from every partition, with tombstones; who is not erased keeps all (design 06)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.agents import rows
from streams.log.retention import REISSUE, SESSION
from streams.loop.crash import CrashPoint
from tests.support.agent_world import SECOND, TOPICS, WORKSPACE, AgentWorld, scope

KINDS = ("cursor", "workflow", "task_state", "conversation")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    made = AgentWorld(tmp_path, partitions=2)
    made.start()
    made.settle()
    yield made
    made.close()


def subject(number: int) -> str:
    return scope(number).subject_id


def logged(world: AgentWorld, subject_id: str) -> dict[bytes, bytes | None]:
    """What compaction leaves of a subject's rows: the last value of each key."""
    found: dict[bytes, bytes | None] = {}
    for partition in range(world.settings.partitions):
        for entry in world.cluster.committed((TOPICS.agent_checkpoints, partition)):
            if entry.key is not None and entry.key.startswith(f"{WORKSPACE}/{subject_id}/".encode()):
                found[entry.key] = entry.value
    return found


def test_every_row_and_version_of_an_erased_subject_goes_with_a_tombstone_and_others_stay(world: AgentWorld) -> None:
    for kind in KINDS:
        for number in range(3):
            world.save(scope(1, kind), number)
        world.save(scope(2, kind), 7)
    world.settle()
    before = logged(world, subject(2))
    assert len(logged(world, subject(1))) == len(KINDS) * 3
    order = world.order(subject(1))
    world.settle()
    assert set(logged(world, subject(1)).values()) == {None}
    assert [world.head(scope(1, kind)) for kind in KINDS] == [None] * len(KINDS)
    assert logged(world, subject(2)) == before
    assert world.telling.through == {0: order, 1: order}
    assert sum(world.telling.counts[order].values()) == len(KINDS) * 3


def test_a_save_that_was_under_way_for_an_erased_subject_takes_no_effect(world: AgentWorld) -> None:
    world.order(subject(1))
    command_id = world.save(scope(1), 1)
    world.settle()
    assert world.outcome(command_id).status == "late"
    assert world.head(scope(1)) is None


def test_a_subject_who_has_no_rows_is_confirmed_too(world: AgentWorld) -> None:
    order = world.order(subject(5))
    world.settle()
    assert set(world.telling.through.values()) == {order}
    assert world.telling.counts == {}


def test_erased_sessions_take_no_row(world: AgentWorld) -> None:
    world.save(scope(1), 1)
    world.settle()
    order = world.order("sess_" + "1" * 32, SESSION)
    world.settle()
    assert world.head(scope(1)) is not None
    assert set(world.telling.through.values()) == {order}


def test_a_store_that_is_made_anew_follows_everything_again_and_removes_nothing_else(world: AgentWorld, tmp_path: Path) -> None:
    for number in (1, 2):
        world.save(scope(number), number)
    world.settle()
    order = world.order(subject(1))
    world.settle()
    kept = logged(world, subject(2))
    world.kill()
    world.start("another")
    world.telling.through.clear()
    world.telling.counts.clear()
    world.settle()
    assert set(world.telling.through.values()) == {order}
    assert sum(world.telling.counts[order].values()) == 1
    assert logged(world, subject(2)) == kept
    assert world.processes["another"].tables is not None


@pytest.mark.parametrize("point", [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE])
def test_one_killed_anywhere_while_it_removes_leaves_nothing_and_counts_each_row_once(world: AgentWorld, point: CrashPoint) -> None:
    for kind in KINDS:
        world.save(scope(1, kind), 1)
    world.save(scope(2), 2)
    world.settle()
    kept = logged(world, subject(2))
    order = world.order(subject(1))
    world.processes["0"].crash.point = point
    world.settle()
    assert world.processes == {}
    world.start("0")
    world.settle()
    assert set(logged(world, subject(1)).values()) == {None}
    assert sum(world.telling.counts[order].values()) == len(KINDS)
    assert set(world.telling.tombstones_at[order].values()) == {world.now}
    assert world.telling.through == {0: order, 1: order}
    assert logged(world, subject(2)) == kept


def test_tombstones_are_written_once_more_where_a_broker_came_back(world: AgentWorld) -> None:
    world.save(scope(1), 1)
    world.settle()
    world.order(subject(1))
    world.settle()
    partition = world.partition(scope(1))
    key = rows.head_key(scope(1).key)

    def tombstones() -> int:
        return sum(entry.key == key and entry.value is None for entry in world.cluster.committed((TOPICS.agent_checkpoints, partition)))

    assert tombstones() == 1
    reissue = world.order("broker-1", REISSUE)
    world.settle()
    assert tombstones() == 2
    assert set(world.telling.through.values()) == {reissue}


def test_many_tombstones_are_written_again_a_page_at_a_time(world: AgentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.agents.purging._PAGE", 3)
    for number in range(1, 9):
        world.save(scope(number), number)
    world.settle()
    for number in range(1, 9):
        world.order(subject(number))
    world.settle()
    before = {number: len(tombstones_of(world, number)) for number in range(1, 9)}
    world.order("broker-1", REISSUE)
    world.settle(30)
    assert {number: len(tombstones_of(world, number)) for number in range(1, 9)} == {number: count + 1 for number, count in before.items()}
    assert set(world.telling.through.values()) == {world.orders.reached}


def tombstones_of(world: AgentWorld, number: int) -> list[int]:
    """Offsets."""
    key, place = rows.head_key(scope(number).key), (TOPICS.agent_checkpoints, world.partition(scope(number)))
    return [entry.offset for entry in world.cluster.committed(place) if entry.key == key and entry.value is None]


def test_what_was_removed_long_ago_is_forgotten_at_last(world: AgentWorld) -> None:
    world.save(scope(1), 1)
    world.settle()
    world.order(subject(1))
    world.settle()
    world.now += 14 * 7 * 86_400 * SECOND
    world.order("broker-1", REISSUE)
    world.settle()
    partition = world.partition(scope(1))
    last = {entry.key: entry.value for entry in world.cluster.committed((TOPICS.agent_checkpoints, partition)) if entry.key is not None}
    assert last[rows.PURGED + rows.head_key(scope(1).key)] is None


def test_a_partition_with_fresh_tombstones_is_nudged_for_as_long_as_they_may_take(world: AgentWorld) -> None:
    world.save(scope(1), 1)
    world.settle()
    world.order(subject(1))
    world.settle()
    partition = world.partition(scope(1))

    def nudges(of: int) -> int:
        return sum(entry.key == rows.NUDGE for entry in world.cluster.committed((TOPICS.agent_checkpoints, of)))

    before = nudges(partition)
    for _ in range(3):
        world.now += 2 * SECOND
        world.settle(2)
    assert nudges(partition) == before + 3
    assert nudges(1 - partition) == 0
    world.now += 2 * 86_400 * SECOND
    world.settle()
    assert nudges(partition) == before + 3


@pytest.mark.parametrize("instance", ["0", "another"])
def test_whoever_goes_on_with_the_partition_nudges_it_for_as_long_as_the_first_would_have(world: AgentWorld, instance: str) -> None:
    """ "0" has the store of the one that died, the other makes it anew."""
    world.save(scope(1), 1)
    world.settle()
    order = world.order(subject(1))
    world.settle()
    place = (TOPICS.agent_checkpoints, world.partition(scope(1)))
    (told_at,) = set(world.telling.tombstones_at[order].values())
    world.kill()
    world.start(instance)
    world.settle()
    before = [entry.key for entry in world.cluster.committed(place)].count(rows.NUDGE)
    for _ in range(3):
        world.now += 2 * SECOND
        world.settle(2)
    assert [entry.key for entry in world.cluster.committed(place)].count(rows.NUDGE) == before + 3
    assert set(world.telling.tombstones_at[order].values()) == {told_at}
    world.now += 2 * 86_400 * SECOND
    world.settle()
    assert [entry.key for entry in world.cluster.committed(place)].count(rows.NUDGE) == before + 3


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("save"), st.integers(1, 3), st.sampled_from(KINDS)),
            st.tuples(st.just("erase"), st.integers(1, 3), st.just("")),
            st.tuples(st.just("restart"), st.integers(0, 1), st.just("")),
            st.tuples(st.just("step"), st.integers(0, 0), st.just("")),
        ),
        max_size=30,
    )
)
def test_whatever_happens_meanwhile_nothing_of_an_erased_subject_is_left(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str]]
) -> None:
    world = AgentWorld(tmp_path_factory.mktemp("world"), partitions=2)
    try:
        world.start()
        erased: set[int] = set()
        for what, number, kind in steps:
            if what == "save":
                world.save(scope(number, kind), number)
            elif what == "erase" and number not in erased:
                erased.add(number)
                world.order(subject(number))
            elif what == "restart":
                for instance in list(world.processes):
                    world.kill(instance)
                world.start("again" if number else "0")
            else:
                world.step(next(iter(world.processes)))
        world.settle(20)
        for number in range(1, 4):
            left = [value for value in logged(world, subject(number)).values() if value is not None]
            assert number not in erased or left == []
        assert not erased or set(world.telling.through.values()) == {world.orders.reached}
    finally:
        world.close()
