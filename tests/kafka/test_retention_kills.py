"""The process that decides erasures, killed and stopped at points of its transaction, on a real broker: each step is told once, in one
order, and two of them never act twice. Every point in every state: `tests/unit/retention/test_driver.py`."""

from collections.abc import Callable, Iterator

import pytest

from streams.custody.keyring import SecretRef
from streams.log.retention import ACCEPTED, DESTROYED, ENFORCED, ERASURE
from streams.loop.crash import CrashPoint
from streams.settings import Settings
from tests.conftest import Broker
from tests.support.driving import Driven, asking
from tests.support.processes import Fleet, RoleProcess, eventually
from tests.support.roles import WORKSPACE

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
KILLS = [(CrashPoint.AFTER_DECIDE, 1), (CrashPoint.AFTER_DECIDE, 2), (CrashPoint.AFTER_SEND_OFFSETS, 2), (CrashPoint.AFTER_COMMIT, 2)]
"""What is accepted is destroyed in the next transaction: after the second decision, a secret is gone that nobody is told of yet."""


@pytest.fixture
def driven(broker: Broker, settings_on: Callable[..., Settings]) -> Iterator[Driven]:
    settings = settings_on(broker.bootstrap, partitions=1, lease_s=1.5, transaction_timeout_s=3.0, member_session_timeout_s=3.0)
    with asking(settings) as made:
        yield made


def told_once_and_in_order(driven: Driven, erasures: dict[str, str]) -> None:
    """`erasures`: id -> the subject. Each passed through its states, each secret is gone, and orders are counted from 1 on."""
    rows = driven.rows()
    for erasure_id, subject_id in erasures.items():
        assert [row.state for row in rows if row.kind == ERASURE and row.id == erasure_id] == [ACCEPTED, DESTROYED, ENFORCED]
        secret = SecretRef("subject", WORKSPACE, subject_id)
        assert driven.keyring.destroyed([secret]) == {secret}
    orders = [(order.order, order.id) for order in driven.orders()]
    assert [number for number, _ in orders] == list(range(1, len(erasures) + 1))
    assert {target for _, target in orders} == set(erasures.values())


def asked(driven: Driven, erasures: dict[str, str]) -> str:
    subject_id = driven.subject()
    erasure_id = driven.ask(subject_id)
    erasures[erasure_id] = subject_id
    return erasure_id


def killed(custodian: RoleProcess) -> None:
    custodian.wait(60)
    assert custodian.process.returncode == -9, custodian.log()


def test_killed_anywhere_in_a_transaction_the_next_one_goes_on_and_tells_each_step_once(driven: Driven) -> None:
    erasures: dict[str, str] = {}
    with Fleet(driven.settings) as fleet:
        custodian: RoleProcess | None = None
        for point, count in KILLS:
            asked(driven, erasures)
            crash = ("--port", "0", "--crash-at", f"retention:{point}:{count}")
            if custodian is None:
                custodian = fleet.start("custodian", "0", *crash)
            else:
                custodian.restart(*crash)
            killed(custodian)
        assert custodian is not None
        custodian.restart("--port", "0")
        for erasure_id in erasures:
            driven.reached(erasure_id, ENFORCED, timeout_s=60)
        assert custodian.stop() == 0, custodian.log()
    told_once_and_in_order(driven, erasures)


def test_one_that_stood_still_in_the_middle_tells_nothing_once_another_has(driven: Driven) -> None:
    erasures: dict[str, str] = {}
    erasure_id = asked(driven, erasures)
    with Fleet(driven.settings) as fleet:
        first = fleet.start("custodian", "0", "--port", "0", "--crash-at", f"retention:{CrashPoint.AFTER_SEND_OFFSETS}:2:SIGSTOP")
        eventually(lambda: first.stopped, why=first.log())
        second = fleet.start("custodian", "1", "--port", "0")
        driven.reached(erasure_id, ENFORCED, timeout_s=60)
        assert first.stopped
        first.proceed()
        driven.reached(asked(driven, erasures), ENFORCED, timeout_s=60)
        assert second.stop() == 0, second.log()
    told_once_and_in_order(driven, erasures)
