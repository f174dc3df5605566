"""Orders to erase reach every session and fork that they concern: custodian and authority on the simulator."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.custodian.custodian import ROLE
from streams.log.retention import ERASED, SESSION, SUBJECT
from streams.loop.crash import CrashPoint
from streams.session.commands import Kind
from tests.support.commands import new_id
from tests.support.erasing_world import ErasingWorld

LEASE_S = 11
POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ErasingWorld]:
    world = ErasingWorld(tmp_path)
    world.start("authority")
    world.start(ROLE)
    world.settle()
    yield world
    world.close()


def settle(world: ErasingWorld) -> None:
    """What is to be done now, and once more when no gateway can be behind."""
    world.settle()
    world.pass_time(LEASE_S)
    world.settle()


def kinds(world: ErasingWorld) -> list[tuple[str, Kind]]:
    return sorted((each.session_id, each.kind) for each in world.asked())


def test_an_erased_subject_loses_all_its_sessions_and_nobody_else_anything(world: ErasingWorld) -> None:
    subject, other = new_id("subj"), new_id("subj")
    own, others = [world.begin(subject) for _ in range(5)], [world.begin(other), world.begin()]
    for session_id in own:
        world.say(session_id, subject)
    for session_id, subject_id in zip(others, (other, None), strict=True):
        world.say(session_id, subject_id)
    world.settle()
    made = set(world.blobs)
    world.erase(SUBJECT, subject)
    settle(world)
    world.check_end()
    assert kinds(world) == sorted((each, Kind.ERASE) for each in own)
    assert world.blobs == world.expected_blobs(made) == {blob for blob in made if blob[0] in others}
    assert sum(counts.get("sessions", 0) for counts in world.reports.values()) == 5
    assert sum(counts.get("texts", 0) for counts in world.reports.values()) == 5


def test_an_erased_session_is_taken_from_its_forks_whose_own_content_stays(world: ErasingWorld) -> None:
    source = world.begin()
    world.say(source)
    world.settle()
    world.fork(source)
    world.settle()
    (fork,) = world.created().keys() - {source}
    world.say(fork)
    world.settle()
    world.fork(fork)
    world.settle()
    (below,) = world.created().keys() - {source, fork}
    made = set(world.blobs)
    world.erase(SESSION, source)
    settle(world)
    world.check_end()
    assert kinds(world) == sorted([(source, Kind.ERASE), (fork, Kind.DISINHERIT), (below, Kind.DISINHERIT)])
    assert world.blobs == world.expected_blobs(made) == {blob for blob in made if blob[0] == fork}
    counts = {name: sum(each.get(name, 0) for each in world.reports.values()) for name in ("sessions", "forks")}
    assert counts == {"sessions": 1, "forks": 2}


def test_checkpoints_of_a_fork_so_far_go_with_its_source_and_later_ones_stay(world: ErasingWorld) -> None:
    source = world.begin()
    world.say(source)
    world.settle()
    world.fork(source)
    world.settle()
    (fork,) = world.created().keys() - {source}
    grant = world.claimed_in(fork)
    before = world.checkpoint(fork, grant, world.upload(fork))
    world.settle()
    world.erase(SESSION, source)
    settle(world)
    later = world.checkpoint(fork, grant, world.upload(fork))
    made = set(world.blobs)
    settle(world)
    world.check_end()
    assert world.blobs == made
    rows = world.retention()
    assert later not in rows
    assert (rows[before].state, rows[before].order) == (ERASED, 0)


def test_what_comes_to_an_erased_session_later_is_erased_as_well(world: ErasingWorld) -> None:
    subject = new_id("subj")
    first = world.begin(subject)
    world.settle()
    grant = world.claimed_in(first)
    world.erase(SUBJECT, subject)
    settle(world)
    assert len(world.asked()) == 1
    world.say(first, subject)
    settle(world)
    assert len(world.asked()) == 2
    world.checkpoint(first, grant, world.upload(first))
    settle(world)
    late = world.begin(subject)
    world.say(late, subject)
    settle(world)
    world.check_end()
    assert world.blobs == set()
    (told,) = world.retention().values()
    assert told.state == ERASED


def test_a_partition_says_nothing_before_it_has_read_what_had_come(world: ErasingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.loop.loop._MAX_BATCH", 1)
    subject = new_id("subj")
    for _ in range(4):
        world.begin(subject)
    world.kill(ROLE)
    for _ in range(3):
        world.step("authority")
    world.erase(SUBJECT, subject)
    world.start(ROLE)
    settle(world)
    world.check_end()
    assert len(world.asked()) == 4


def test_what_is_accepted_between_a_decision_and_its_answer_is_asked_for_again(world: ErasingWorld) -> None:
    subject = new_id("subj")
    session_id = world.begin(subject)
    world.settle()
    world.deaf = True
    world.erase(SUBJECT, subject)
    for _ in range(4):
        world.step(ROLE)
        world.step("authority")
    world.say(session_id, subject)
    world.settle()
    assert len(world.asked()) == 1
    world.deaf = False
    settle(world)
    assert len(world.asked()) == 2
    world.check_end()


def test_a_checkpoint_that_comes_while_its_session_is_removed_goes_with_it(world: ErasingWorld) -> None:
    subject = new_id("subj")
    session_id = world.begin(subject)
    world.settle()
    grant = world.claimed_in(session_id)
    world.erase(SUBJECT, subject)
    world.settle()
    world.held = True
    world.pass_time(LEASE_S)
    world.step(ROLE)
    upload_id = world.upload(session_id)
    checkpoint_id = world.checkpoint(session_id, grant, upload_id)
    world.settle()
    world.held = False
    settle(world)
    world.check_end()
    assert world.blobs == set()
    assert list(world.retention()) == [checkpoint_id]


def test_orders_that_this_process_does_not_know_yet_hold_its_partitions_up(world: ErasingWorld) -> None:
    subject = new_id("subj")
    session_id = world.begin(subject)
    world.settle()
    world.erase(SUBJECT, subject)
    settle(world)
    world.kill(ROLE)
    world.unheard = True
    world.start(ROLE, "1")
    world.settle()
    world.say(session_id, subject)
    settle(world)
    assert len(world.asked()) == 1
    world.unheard = False
    settle(world)
    assert len(world.asked()) == 2
    world.check_end()


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_it_does_the_same_once_more(world: ErasingWorld, point: CrashPoint, count: int) -> None:
    subject = new_id("subj")
    own, other = [world.begin(subject) for _ in range(2)], world.begin(new_id("subj"))
    for each in own:
        world.say(each, subject)
    world.upload(other)
    world.settle()
    made = set(world.blobs)
    world.erase(SUBJECT, subject)
    for _ in range(count):
        world.step("authority")
        world.step(ROLE)
    world.processes[ROLE, "0"].crash.point = point
    settle(world)
    if (ROLE, "0") not in world.processes:
        world.start(ROLE)
    settle(world)
    world.check_end()
    assert world.blobs == world.expected_blobs(made)
    assert sum(counts.get("sessions", 0) for counts in world.reports.values()) == 2


def test_a_restore_from_the_changelog_gives_the_same_rows(world: ErasingWorld) -> None:
    subject = new_id("subj")
    world.say(world.begin(subject), subject)
    source = world.begin()
    world.say(source)
    world.settle()
    world.fork(source)
    world.settle()
    world.held = True
    world.erase(SUBJECT, subject)
    world.erase(SESSION, source)
    world.settle()

    def rows(instance: str) -> dict[bytes, bytes]:
        return {key: value for store in world.processes[ROLE, instance].loop._stores.values() for key, value in _all(store)}

    before = rows("0")
    assert {key.split(b"/")[0] for key in before} >= {b"~subject", b"~fork", b"~open", b"~remove", b"orders"}
    world.cluster.compact("sessions.timers")
    world.kill(ROLE)
    world.unheard = True
    world.start(ROLE, "1")
    world.settle()
    assert rows("1") == before
    world.held = world.unheard = False
    settle(world)
    world.check_end()


def _all(store) -> list[tuple[bytes, bytes]]:  # type: ignore[no-untyped-def]
    with store.scan(b"") as rows:
        return list(rows)
