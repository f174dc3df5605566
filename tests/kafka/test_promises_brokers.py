"""Promise 7 of the log: what was acknowledged survives the kill of one broker of three, and the restart of a lone one.

Acknowledged means committed: the checkers look for each acknowledged append at the sequences that were told, in what a
reader of committed records sees at the end. (The kills of authority, gateway and projector stand in `test_promises.py`,
`test_up.py` and `recordings/test_kills.py`.)
"""

from collections.abc import Callable

import pytest

from connectors.cli.kafka import LocalKafka
from streams.errors import BrokerUnavailable
from streams.log import inspect
from streams.settings import Settings
from tests.consistency.checkers import check
from tests.consistency.history import End
from tests.support.load import Load
from tests.support.processes import Fleet, RoleProcess, eventually

FAST = {"member_session_timeout_s": 6.0, "transaction_timeout_s": 6.0}


def grown(load: Load, authority: RoleProcess, appends: int, *, why: str) -> None:
    """Waits until so many appends more are acknowledged. An authority that left is started again, as `up` does."""
    goal = load.accepted() + appends

    def reached() -> bool:
        if not authority.alive:
            authority.restart()
        return load.accepted() >= goal

    eventually(reached, within_s=120, why=f"{why}: {load.accepted()} of {goal}\n{authority.log()[-2000:]}")


def all_in_sync(settings: Settings) -> bool:
    """Whether every partition of the cluster, the groups' and transactions' own included, has all its replicas again."""
    try:
        return all(topic.short == 0 and topic.leaderless == 0 for topic in inspect.topics(settings).values())
    except BrokerUnavailable:
        return False


@pytest.mark.timeout(600)
def test_promise_7_what_was_acknowledged_survives_the_kill_of_each_broker_of_three(
    cluster3: LocalKafka, settings_on: Callable[..., Settings]
) -> None:
    """kill -9 of one broker after the other under load, each back and in sync before the next one dies: whichever led the
    partitions, the transactions and the group was among them."""
    settings = settings_on(cluster3.bootstrap, replication=3, partitions=3, **FAST)
    load = Load(settings, sessions=6)
    with Fleet(settings) as fleet, load.running():
        authority = fleet.start("authority")
        grown(load, authority, 60, why="before any kill")
        for node_id in cluster3.node_ids:
            cluster3.kill_node(node_id)
            grown(load, authority, 60, why=f"with node {node_id} dead")
            cluster3.start_nodes(node_id)
            eventually(lambda: all_in_sync(settings), why=f"node {node_id} did not come into sync")
            grown(load, authority, 30, why=f"with node {node_id} back")
    history = load.finish()
    assert check(history) == {}
    assert sum(append.end is End.OK for append in history.appends) >= 330


@pytest.mark.timeout(400)
@pytest.mark.parametrize("ending", ["killed", pytest.param("stopped in order", marks=pytest.mark.soak)])
def test_promise_7_what_was_acknowledged_survives_the_restart_of_a_lone_broker(
    own_broker: LocalKafka, settings_on: Callable[..., Settings], ending: str
) -> None:
    settings = settings_on(own_broker.bootstrap, partitions=2, **FAST)
    load = Load(settings, sessions=4)
    with Fleet(settings) as fleet, load.running():
        authority = fleet.start("authority")
        grown(load, authority, 60, why="before the restart")
        if ending == "killed":
            own_broker.kill_node()
            own_broker.start_nodes(1)
        else:
            own_broker.restart()
        grown(load, authority, 60, why="after the restart")
    history = load.finish()
    assert check(history) == {}
    assert sum(append.end is End.OK for append in history.appends) >= 120
