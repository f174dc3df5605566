"""Leases lapse and waits expire by themselves: custodian and authority on the simulator, under a clock that the test turns."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.custodian.asking import PAUSES_S, PRINCIPAL
from streams.custodian.custodian import ROLE
from streams.custodian.rows import begun_key, upload_key
from streams.custodian.timers import ARMED, DUE, lease_key, wait_key
from streams.loop.crash import CrashPoint
from streams.session.commands import Kind
from streams.session.events import AttemptAttributes, CheckpointAttributes, RunAttributes, SessionAttributes, WaitAttributes
from streams.session.ids import is_id
from tests.support.event_log import EventLog
from tests.support.examples import made_up_id
from tests.support.timekeeping import SECOND, World

POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]
CHECKPOINT = made_up_id("ckpt")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.start("authority")
    world.start(ROLE)
    world.settle()
    yield world
    world.close()


def test_a_lease_that_is_over_fails_its_attempt_once(world: World) -> None:
    session_id, grant = world.claimed(lease_s=10)
    world.pass_time(9.9)
    world.settle()
    assert world.asked() == []
    assert world.types("attempt.failed") == []
    for _ in range(3):
        world.pass_time(60)
        world.settle()
    (failed,) = [event for event in world.events() if event.type == "attempt.failed"]
    assert failed.attributes == AttemptAttributes(
        principal_id=failed.attributes.principal_id, lease_expires_at=grant.lease_expires_at, reason="lease_lapsed"
    )
    (asked,) = world.asked()
    assert (asked.kind, asked.drafts, asked.session_id) == (Kind.LAPSE, (), session_id)
    assert asked.principal_id == PRINCIPAL
    assert is_id(PRINCIPAL, "key")
    assert world.timers() == {}


def test_a_lapsed_run_may_be_claimed_and_its_next_generation_lapses_once_too(world: World) -> None:
    session_id, grant = world.claimed(lease_s=10)
    world.pass_time(11)
    world.settle()
    world.claim(session_id, grant.run_id, lease_s=10)
    world.settle()
    assert world.timers()[lease_key(session_id, grant.run_id)].generation == 2
    world.pass_time(11)
    world.settle()
    assert [event.attempt_generation for event in world.events() if event.type == "attempt.failed"] == [1, 2]


def test_a_renewed_lease_is_not_failed_before_its_real_end_and_then_at_once(world: World) -> None:
    session_id, grant = world.claimed(lease_s=10)
    world.pass_time(8)
    world.renew(session_id, grant)
    world.settle()
    world.pass_time(2.1)  # over, as far as the log tells
    world.settle()
    assert world.types("attempt.failed") == []
    assert world.timers()[lease_key(session_id, grant.run_id)].due_at == grant.lease_expires_at + 8 * SECOND + 1
    assert len(world.asked()) == 1
    world.pass_time(7.8)
    world.settle()
    assert world.types("attempt.failed") == []
    assert len(world.asked()) == 1
    world.pass_time(0.2)
    world.settle()
    assert world.types("attempt.failed") == ["attempt.failed"]


def test_after_a_takeover_every_lease_has_its_length_once_more(world: World) -> None:
    _, grant = world.claimed(lease_s=10)
    world.kill("authority")
    world.pass_time(30)
    world.settle()
    world.start("authority")
    world.settle()
    assert world.types("attempt.failed") == []
    world.pass_time(9)
    world.settle()
    assert world.types("attempt.failed") == []
    world.pass_time(2)
    world.settle()
    (failed,) = [event for event in world.events() if event.type == "attempt.failed"]
    assert failed.accepted_at > grant.lease_expires_at + 29 * SECOND


def test_a_lost_answer_costs_a_pause_and_no_more(world: World) -> None:
    session_id, grant = world.claimed(lease_s=10)
    world.renew(session_id, grant)
    world.pass_time(5)
    world.renew(session_id, grant)
    world.settle()
    world.deaf = True
    world.pass_time(5.1)
    world.settle()
    assert len(world.asked()) == 1
    world.deaf = False
    world.kill(ROLE)
    world.start(ROLE)  # another epoch: what was answered to the one before is not for it
    world.settle()
    world.pass_time(PAUSES_S[0])
    world.settle()
    assert world.types("attempt.failed") == ["attempt.failed"]
    assert len({asked.command_id for asked in world.asked()}) == len(world.asked()) == 2


def test_without_an_authority_it_asks_ever_more_rarely(world: World) -> None:
    world.claimed(lease_s=10)
    world.kill("authority")
    world.pass_time(10)
    for _ in range(600):
        world.pass_time(1)
        world.step(ROLE)
    assert len(world.asked()) == len(PAUSES_S) + (600 - sum(PAUSES_S)) // PAUSES_S[-1] + 1


@pytest.mark.parametrize("how", ["attempt.failed", "run.completed", "run.cancelled", "session.closed"])
def test_what_is_over_is_not_asked_for(world: World, how: str) -> None:
    session_id, grant = world.claimed(lease_s=10)
    report = world.report(grant)
    if how == "attempt.failed":
        world.tell(session_id, how, AttemptAttributes(reason="gave_up"), report, run_id=grant.run_id)
    elif how == "run.completed":
        world.tell(session_id, how, RunAttributes(outcome="done"), report, run_id=grant.run_id)
    elif how == "run.cancelled":
        world.tell(session_id, how, RunAttributes(outcome="cancelled"), run_id=grant.run_id)
    else:
        world.open_wait(session_id, 5)
        world.tell(session_id, how, SessionAttributes(reason="done"))
    world.settle()
    assert how in world.types()
    assert world.timers() == {}
    world.pass_time(100)
    world.settle()
    assert world.asked() == []


def test_a_wait_expires_by_itself_and_its_run_goes_on(world: World) -> None:
    session_id, grant = world.claimed(lease_s=600)
    wait_id = world.open_wait(session_id, 30, world.report(grant))
    world.settle()
    world.pass_time(29)
    world.settle()
    assert world.types("wait.expired") == []
    world.pass_time(2)
    world.settle()
    (expired,) = [event for event in world.events() if event.type == "wait.expired"]
    assert expired.attributes == WaitAttributes(wait_id=wait_id)
    assert expired.run_id == grant.run_id
    assert world.types()[-1] == "run.resumed"
    assert list(world.timers()) == [lease_key(session_id, grant.run_id)]


def test_a_wait_expires_outside_of_runs_and_after_its_run_is_over(world: World) -> None:
    session_id, grant = world.claimed(lease_s=600)
    outside = world.open_wait(session_id, 30)
    inside = world.open_wait(session_id, 30, world.report(grant))
    world.settle()
    world.tell(session_id, "run.cancelled", RunAttributes(outcome="cancelled"), run_id=grant.run_id)
    world.settle()
    world.pass_time(31)
    world.settle()
    expired = [event.attributes.wait_id for event in world.events() if event.type == "wait.expired"]
    assert sorted(expired) == sorted([outside, inside])
    assert world.timers() == {}


def test_an_answered_wait_does_not_expire(world: World) -> None:
    session_id = world.session()
    wait_id = world.open_wait(session_id, 30)
    world.settle()
    assert list(world.timers()) == [wait_key(session_id, wait_id)]
    world.tell(session_id, "wait.answered", WaitAttributes(wait_id=wait_id))
    world.settle()
    world.pass_time(60)
    world.settle()
    assert world.asked() == []
    assert world.timers() == {}


def test_a_restore_from_the_changelog_gives_the_same_rows(world: World, tmp_path: Path) -> None:
    held = [world.claimed(lease_s=60) for _ in range(3)]
    world.claimed(lease_s=10)
    world.pass_time(30)
    for session_id, grant in held:
        world.open_wait(session_id, 90)
        world.renew(session_id, grant)
    world.settle()
    world.pass_time(31)
    world.settle()
    before = world.store_rows()
    assert int.from_bytes(before[ARMED], "big") == len(world.timers()) == len([key for key in before if key.startswith(DUE)]) > 3
    world.cluster.compact("sessions.timers")
    world.kill(ROLE)
    world.start(ROLE, "1")  # with a folder of its own
    world.settle()
    assert world.store_rows("1") == before
    world.pass_time(600)
    world.settle()
    assert len(world.types("wait.expired")) == 3
    assert len(world.types("attempt.failed")) == 4
    assert world.timers() == {}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_it_asks_the_same_and_the_log_ends_the_same(world: World, point: CrashPoint, count: int) -> None:
    """`count`: while it takes events in, and in the transaction that time alone has caused."""
    custodian = world.processes[ROLE, "0"]
    if count == 1:
        custodian.crash.point = point
    session_id, _ = world.claimed(lease_s=10)
    world.open_wait(session_id, 10.5)
    world.settle()
    if count == 2:
        custodian.crash.point = point
        world.pass_time(11)
        world.settle()
    assert (ROLE, "0") not in world.processes
    world.start(ROLE)
    world.settle()
    world.pass_time(30)
    world.settle()
    world.pass_time(30)
    world.settle()
    assert sorted(world.types("attempt.failed", "wait.expired")) == ["attempt.failed", "wait.expired"]
    assert world.timers() == {}
    asked = [each.command_id for each in world.asked()]
    assert len(set(asked)) == len(asked)


def test_a_record_that_cannot_be_read_stops_nobody(world: World) -> None:
    with capture_logs() as logs:
        for value in (b"\x00nonsense", None):
            world.cluster.append(("sessions.events", 0), b"sess", value)
        world.settle()
    assert [line["offset"] for line in logs if line["event"] == "record_unreadable"] == [0, 1]
    session_id = world.session()
    world.open_wait(session_id, 30)
    world.settle()
    world.pass_time(31)
    world.settle()
    assert [each.kind for each in world.asked()] == [Kind.APPEND]


def test_what_checkpoints_name_is_kept_with_the_timers_and_stays_when_the_session_closes(world: World) -> None:
    snapshot, native, brought = (made_up_id("snap", label) for label in ("snapshot", "native", "brought"))
    log = EventLog()
    session_id = log.create("a")
    log.command(
        session_id, [("checkpoint.created", CheckpointAttributes(checkpoint_id=CHECKPOINT, snapshot_id=snapshot, native_id=native))]
    )
    log.command(session_id, [("checkpoint.created", CheckpointAttributes(fork_id=made_up_id("fork"), snapshot_id=brought))])
    log.close(session_id)
    for record in log.records:
        world.cluster.append(("sessions.events", 0), record.key, record.value)
    world.settle()
    named = {upload_key(session_id, each) for each in (snapshot, native)} | {begun_key(session_id)}
    assert {key for key in world.store_rows() if key.startswith(b"sess_")} == named
    world.kill(ROLE)
    world.start(ROLE, "1")
    world.settle()
    assert {key for key in world.store_rows("1") if key.startswith(b"sess_")} == named
