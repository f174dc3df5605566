"""Each anomaly of agents' checkpoints is found where there is one, and a history without any has none."""

from collections.abc import Callable

import pytest
from msgspec import structs

from tests.consistency.agents import Logged, Reading, Saving, check

FIRST, SECOND, THIRD = ("1" * 64, "2" * 64, "3" * 64)
SAVINGS = [
    Saving(row="a", state_hash=FIRST, expected=None, version=1, began=0, ended=1),
    Saving(row="a", state_hash=SECOND, expected=FIRST, version=2, began=2, ended=3),
    Saving(row="a", state_hash=THIRD, expected=FIRST, conflict=True, actual=SECOND, began=4, ended=5),
]
READINGS = [
    Reading(row="a", version=1, state_hash=FIRST, began=1.5, ended=1.6),
    Reading(row="a", version=2, state_hash=SECOND, began=4, ended=5),
]
LOG = [
    Logged(row="a", version=1, state_hash=FIRST),
    Logged(row="a", version=2, state_hash=SECOND),
    Logged(row="a", version=1, state_hash=FIRST),
]


def test_a_history_without_an_anomaly_has_none() -> None:
    assert check(SAVINGS, READINGS, LOG) == {}


def test_a_read_that_runs_beside_a_save_may_see_either() -> None:
    for version, state_hash in ((1, FIRST), (2, SECOND)):
        beside = [Reading(row="a", version=version, state_hash=state_hash, began=2.5, ended=3.5)]
        assert check(SAVINGS, beside, LOG) == {}


Histories = tuple[list[Saving], list[Reading], list[Logged]]
SPOILED: dict[str, Callable[[], Histories]] = {
    "lost": lambda: (SAVINGS, [], LOG[:1]),
    "duplicated": lambda: (SAVINGS, READINGS, [*LOG, Logged(row="a", version=3, state_hash=SECOND)]),
    "rewritten": lambda: (SAVINGS, READINGS, [*LOG, structs.replace(LOG[1], state_hash=THIRD)]),
    "gap": lambda: (SAVINGS[:1], READINGS[:1], [LOG[0], structs.replace(LOG[1], version=3)]),
    "lost_update": lambda: (
        [structs.replace(SAVINGS[1], expected=THIRD), SAVINGS[0]], READINGS, LOG,
    ),
    "false_conflict": lambda: ([*SAVINGS[:2], structs.replace(SAVINGS[2], actual="4" * 64)], READINGS, LOG),
    "unknown_read": lambda: (SAVINGS, [structs.replace(READINGS[1], state_hash=THIRD)], LOG),
    "stale_read": lambda: (SAVINGS, [structs.replace(READINGS[0], began=3.5, ended=3.6)], LOG),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_an_anomaly_is_found_under_its_name(name: str) -> None:
    assert name in check(*SPOILED[name]())


def test_a_read_is_stale_behind_another_read_too() -> None:
    behind = [READINGS[1], structs.replace(READINGS[0], began=6, ended=7)]
    assert set(check(SAVINGS[:1], behind, LOG)) == {"stale_read"}
