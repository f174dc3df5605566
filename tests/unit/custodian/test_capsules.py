"""The secret of a capsule goes once it, and custody of its imports, are over, after a grace and once: custodian on the simulator."""

import pytest

from streams.custodian.custodian import ROLE
from streams.custody.capsules import capsule_secret
from streams.log.retention import CAPSULE, ERASED, EXPIRED, SESSION, SUBJECT
from streams.loop.crash import CrashPoint
from streams.session.events import CapsuleAttributes
from tests.support.commands import WORKSPACE, command, draft, new_id
from tests.support.erasing_world import ErasingWorld
from tests.support.timekeeping import SECOND

DAY_S = 24 * 3600
HOUR_S = 3600
DIGEST = "sha256:" + "0" * 64
POINTS = [point for point in CrashPoint if point is not CrashPoint.IN_RESTORE]


def begun(world: ErasingWorld, subject_id: str | None = None) -> str:
    session_id = world.begin(subject_id)
    world.settle(4)
    return session_id


def made(world: ErasingWorld, session_id: str, after_s: float) -> str:
    """A capsule that ends so much later."""
    capsule_id, command_id = new_id("cap"), new_id("cmd")
    attributes = CapsuleAttributes(
        capsule_id=capsule_id, checkpoint_id=new_id("ckpt"), through_sequence=1, byte_count=1, content_digest=DIGEST,
        expires_at=world.now + int(after_s * SECOND),
    )  # fmt: skip
    told = draft(session_id, command_id, 0, "capsule.created", attributes)
    sequence = len([each for each in world.events() if each.session_id == session_id])
    world.send(command(session_id, (told,), command_id=command_id, expected_sequence=sequence))
    world.settle(4)
    return capsule_id


def imported(world: ErasingWorld, session_id: str, capsule_id: str, after_s: float) -> None:
    attributes = CapsuleAttributes(
        capsule_id=capsule_id, import_id=new_id("cimp"), through_sequence=1, byte_count=1, content_digest=DIGEST, target_digest=DIGEST,
        expires_at=world.now + int(after_s * SECOND),
    )  # fmt: skip
    world.tell(session_id, "capsule.imported", attributes)
    world.settle(4)


def destroyed(world: ErasingWorld) -> set[str]:
    return {secret.id for secret in world.destroyed if secret == capsule_secret(WORKSPACE, secret.id)}


def test_the_secret_goes_a_grace_after_custody_is_over_and_that_is_told_once(world: ErasingWorld) -> None:
    session_id = begun(world)
    capsule_id = made(world, session_id, HOUR_S)
    imported(world, session_id, capsule_id, HOUR_S)
    ends = max(each.attributes.expires_at or 0 for each in world.events() if isinstance(each.attributes, CapsuleAttributes))
    world.pass_time(HOUR_S + DAY_S - 60)
    world.settle()
    assert (destroyed(world), world.retention()) == (set(), {})
    world.pass_time(120)
    world.settle()
    assert destroyed(world) == {capsule_id}
    (row,) = world.retention().values()
    assert (row.kind, row.id, row.state, row.destroyed_at) == (CAPSULE, capsule_id, EXPIRED, world.now)
    assert row.ended_at == ends
    assert not [key for key in world.store_rows() if b"/expiry/" in key]
    world.pass_time(DAY_S)
    world.settle()
    assert len(world.retention()) == 1


def test_erasing_a_session_that_has_imported_one_leaves_it_to_those_who_have_it_besides(world: ErasingWorld) -> None:
    capsule_id, importer = made(world, begun(world), HOUR_S), begun(world)
    imported(world, importer, capsule_id, HOUR_S)
    world.erase(SESSION, importer)
    world.settle()
    world.pass_time(11)
    world.settle()
    assert destroyed(world) == set()
    world.check_end()
    world.pass_time(HOUR_S + DAY_S)
    world.settle()
    assert destroyed(world) == {capsule_id}


def test_a_clock_that_is_not_believed_destroys_none(world: ErasingWorld) -> None:
    capsule_id = made(world, begun(world), HOUR_S)
    world.believed = False
    world.pass_time(HOUR_S + 2 * DAY_S)
    world.settle()
    assert destroyed(world) == set()
    world.believed = True
    world.settle()
    assert destroyed(world) == {capsule_id}


@pytest.mark.parametrize("kind", [SUBJECT, SESSION])
def test_an_erasure_takes_them_and_nobody_elses(world: ErasingWorld, kind: str) -> None:
    subject_id = new_id("subj")
    session_id = begun(world, subject_id)
    capsule_id = made(world, session_id, HOUR_S)
    other = made(world, begun(world, new_id("subj")), HOUR_S)
    order = world.erase(kind, subject_id if kind == SUBJECT else session_id)
    world.settle()
    world.pass_time(11)
    world.settle()
    assert destroyed(world) == {capsule_id}
    assert [(row.id, row.state) for row in world.retention().values()] == [(capsule_id, ERASED)]
    assert world.reports[0, order] == {"sessions": 1}
    world.check_end()
    world.pass_time(HOUR_S + DAY_S + 60)
    world.settle()
    assert {row.id: row.state for row in world.retention().values()} == {capsule_id: ERASED, other: EXPIRED}


def test_a_fork_of_an_erased_session_loses_those_that_it_had(world: ErasingWorld) -> None:
    source = begun(world)
    world.fork(source)
    world.settle()
    (fork,) = set(world.created()) - {source}
    capsule_id = made(world, fork, HOUR_S)
    world.erase(SESSION, source)
    world.settle()
    world.pass_time(11)
    world.settle()
    assert destroyed(world) == {capsule_id}
    world.check_end()


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_each_is_told_once(world: ErasingWorld, point: CrashPoint) -> None:
    session_id = begun(world)
    capsules = {made(world, session_id, HOUR_S) for _ in range(2)}
    world.pass_time(HOUR_S + DAY_S + 60)
    world.step(ROLE)
    if (ROLE, "0") in world.processes:
        world.processes[ROLE, "0"].crash.point = point
    world.settle()
    if (ROLE, "0") not in world.processes:
        world.start(ROLE)
    world.settle()
    assert destroyed(world) == capsules
    assert set(world.retention()) == capsules
