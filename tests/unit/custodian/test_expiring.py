"""Uploads of checkpoints go once their time is over, after a grace and by a clock that is believed: custodian on the simulator."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.custodian.custodian import ROLE
from streams.log.retention import EXPIRED, SUBJECT
from streams.loop.crash import CrashPoint
from streams.session.events import CheckpointAttributes
from tests.support.commands import new_id
from tests.support.erasing_world import ErasingWorld
from tests.support.timekeeping import SECOND

DAY_S = 24 * 3600
WINDOW_S = 30 * DAY_S
POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]


def saved(world: ErasingWorld, count: int = 1, subject_id: str | None = None) -> dict[str, str]:
    """Checkpoint -> its upload, of one session whose Run goes on."""
    session_id = world.begin(subject_id)
    world.settle()
    grant = world.claimed_in(session_id)
    made = {}
    for _ in range(count):
        upload_id = world.upload(session_id)
        made[world.checkpoint(session_id, grant, upload_id)] = upload_id
        world.settle(4)
    return made


def left(world: ErasingWorld) -> set[str]:
    return {name for _, name in world.blobs}


def test_an_upload_goes_a_grace_after_its_checkpoint_has_expired_and_that_is_told_once(world: ErasingWorld) -> None:
    ((checkpoint_id, upload_id),) = saved(world).items()
    (created,) = [each for each in world.events() if each.type == "checkpoint.created"]
    assert isinstance(created.attributes, CheckpointAttributes)
    expires_at = created.attributes.expires_at
    assert expires_at is not None
    world.pass_time(WINDOW_S + DAY_S - 60)
    world.settle()
    assert left(world) == {upload_id}
    assert world.retention() == {}
    world.pass_time(120)
    world.settle()
    assert left(world) == set()
    (row,) = world.retention().values()
    assert (row.key, row.state, row.ended_at) == (f"checkpoint/{row.workspace_id}/{checkpoint_id}".encode(), EXPIRED, expires_at)
    assert row.destroyed_at == world.now
    assert not [key for key in world.store_rows() if b"/expiry/" in key or b"/upload/" in key]
    world.pass_time(DAY_S)
    world.settle()
    assert len(world.retention()) == 1


def test_an_upload_that_a_later_checkpoint_names_too_waits_for_that_one(world: ErasingWorld) -> None:
    session_id = world.begin()
    world.settle()
    grant, upload_id = world.claimed_in(session_id), world.upload(session_id)
    first = world.checkpoint(session_id, grant, upload_id)
    world.settle()
    world.pass_time(300)
    second = world.checkpoint(session_id, grant, upload_id)
    world.settle()
    world.pass_time(WINDOW_S + DAY_S - 60)
    world.settle()
    assert set(world.retention()) == {first}
    assert left(world) == {upload_id}
    world.pass_time(120)
    world.settle()
    assert set(world.retention()) == {first, second}
    assert left(world) == set()


def test_a_clock_that_is_not_believed_destroys_nothing_and_says_so_once(world: ErasingWorld) -> None:
    made = saved(world, 3)
    world.believed = False
    world.pass_time(WINDOW_S + 2 * DAY_S)
    with capture_logs() as logs:
        world.settle()
    assert left(world) == set(made.values())
    assert [line["log_level"] for line in logs if line["event"] == "clock_disagrees"] == ["error"]
    world.believed = True
    world.settle()
    assert left(world) == set()
    assert set(world.retention()) == set(made)


def test_a_clock_that_jumps_forward_within_the_grace_destroys_nothing(world: ErasingWorld) -> None:
    made = saved(world)
    world.processes[ROLE, "0"].ahead = int((WINDOW_S + DAY_S - 60) * SECOND)
    world.settle()
    world.processes[ROLE, "0"].ahead = -int(DAY_S * SECOND)
    world.settle()
    assert left(world) == set(made.values())
    world.processes[ROLE, "0"].ahead = 0
    world.pass_time(WINDOW_S + DAY_S + 60)
    world.settle()
    assert left(world) == set()


def test_who_is_erased_first_expires_no_more(world: ErasingWorld) -> None:
    subject = new_id("subj")
    made = saved(world, 2, subject)
    world.erase(SUBJECT, subject)
    world.settle()
    world.pass_time(11)
    world.settle()
    world.pass_time(WINDOW_S + 2 * DAY_S)
    world.settle()
    assert {row.state for row in world.retention().values()} == {"erased"}
    assert set(world.retention()) == set(made)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_each_is_told_once(world: ErasingWorld, point: CrashPoint, count: int) -> None:
    made = saved(world, 3)
    world.pass_time(WINDOW_S + DAY_S + 60)
    for _ in range(count):
        world.step(ROLE)
    if (ROLE, "0") in world.processes:
        world.processes[ROLE, "0"].crash.point = point
    world.settle()
    if (ROLE, "0") not in world.processes:
        world.start(ROLE)
    world.settle()
    assert left(world) == set()
    assert set(world.retention()) == set(made)


def test_they_go_at_a_bounded_rate(tmp_path: Path) -> None:
    world = ErasingWorld(tmp_path, partitions=1, expiries_per_s=2.0)
    try:
        world.start("authority")
        world.start(ROLE)
        world.settle()
        made = saved(world, 7)
        world.pass_time(WINDOW_S + DAY_S + 60)
        gone = []
        for _ in range(5):
            world.settle()
            gone.append(len(made) - len(left(world)))
            world.pass_time(1)
        assert gone == [2, 4, 6, 7, 7]
    finally:
        world.close()
