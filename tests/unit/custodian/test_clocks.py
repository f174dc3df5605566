"""A custodian whose clock jumps makes nothing happen too early, and nothing much too late once its clock is right again."""

import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.custodian.asking import PAUSES_S
from streams.custodian.custodian import ROLE
from tests.support.timekeeping import SECOND, World

LEASE_S, WAIT_S = 30.0, 60.0
DAY_S = 24 * 3600.0
AHEAD_S = st.floats(0.5, 2 * DAY_S)


def overdue(world: World, event_type: str, until: float) -> list[float]:
    """How long after `until` (seconds of the world's clock) such events were accepted."""
    return [event.accepted_at / SECOND - until for event in world.events() if event.type == event_type]


def set_ahead(world: World, seconds: float) -> None:
    world.processes[ROLE, "0"].ahead = int(seconds * SECOND)


def run_through(jumps: list[tuple[float, float]], *, renewed: bool = False, restarts: bool = False) -> None:
    """`jumps` are how far ahead the clock is and for how many seconds."""
    with tempfile.TemporaryDirectory() as folder, closing(World(Path(folder))) as world:
        world.start("authority")
        world.start(ROLE)
        world.settle()
        session_id, grant = world.claimed(LEASE_S)
        world.open_wait(session_id, WAIT_S)
        world.settle()
        wait_over, lease_over = world.now / SECOND + WAIT_S, grant.lease_expires_at / SECOND
        for ahead_s, for_s in jumps:
            set_ahead(world, ahead_s)
            world.settle(4)
            if renewed:
                world.renew(session_id, grant)
                lease_over = world.now / SECOND + LEASE_S
            world.pass_time(for_s)
            world.settle(4)
        if restarts:
            world.kill(ROLE)
            world.start(ROLE)
        set_ahead(world, 0)
        right_again = world.now / SECOND
        for _ in range(40):
            world.settle(4)
            world.pass_time(5)
        for event_type, over in (("attempt.failed", lease_over), ("wait.expired", wait_over)):
            (late,) = overdue(world, event_type, over)
            assert late >= 0
            assert over + late <= max(over, right_again) + PAUSES_S[-1] + 10
        assert world.timers() == {}


@pytest.mark.parametrize("ahead_s", [3600.0, DAY_S])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("renewed", [False, True])
def test_a_clock_that_was_ahead_for_a_moment_makes_nothing_late(ahead_s: float, restarts: bool, renewed: bool) -> None:
    run_through([(ahead_s, 0.5)], restarts=restarts, renewed=renewed)


@settings(max_examples=25, deadline=None)
@given(jumps=st.lists(st.tuples(AHEAD_S, st.floats(0, 12)), min_size=1, max_size=4), restarts=st.booleans(), renewed=st.booleans())
def test_however_the_clock_jumps_nothing_is_early_or_much_too_late(jumps: list[tuple[float, float]], restarts: bool, renewed: bool) -> None:
    run_through(jumps, restarts=restarts, renewed=renewed)


def test_more_timers_than_go_through_at_once_are_all_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.custodian.custodian._DUE_AT_ONCE", 3)
    with closing(World(tmp_path)) as world:
        world.start("authority")
        world.start(ROLE)
        world.settle()
        session_id = world.session()
        for _ in range(10):
            world.open_wait(session_id, WAIT_S)
        world.settle()
        set_ahead(world, DAY_S)
        world.settle(20)
        set_ahead(world, 0)
        world.settle(20)
        world.pass_time(WAIT_S)
        for _ in range(30):
            world.settle(4)
            world.pass_time(5)
        assert len(overdue(world, "wait.expired", 0)) == 10
