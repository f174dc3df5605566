"""When an erasure goes a step further, over every combination of what a few holders can have said."""

from itertools import product

import pytest

from streams.log.retention import ACCEPTED, COMPLETE, DESTROYED, ENFORCED, ERASE_SESSION, ERASE_SUBJECT, Purged, WorkspaceCommand
from streams.retention import core, entries
from tests.support.examples import made_up_id

ORDER = 5
SAID = (4, 5, 6)
EXPECTED = ("agents/0", "custodian/0")
BOUND_US = 100


def asked(action: str = ERASE_SUBJECT, target_id: str = made_up_id("subj"), workspace_id: str = made_up_id("ws")) -> WorkspaceCommand:
    return WorkspaceCommand(
        command_id=made_up_id("cmd"), workspace_id=workspace_id, action=action, target_id=target_id, principal_id=made_up_id("key"),
        issued_at=1, not_after=2,
    )  # fmt: skip


@pytest.mark.parametrize("first", SAID)
@pytest.mark.parametrize("second", [None, *SAID])
@pytest.mark.parametrize("a_lease_is_over", [False, True])
def test_enforced_once_each_cache_has_said_so_or_a_lease_is_over(first: int, second: int | None, a_lease_is_over: bool) -> None:
    caches = {"first": first} if second is None else {"first": first, "second": second}
    behind = tuple(holder for holder, through in caches.items() if through < ORDER)
    awaiting = core.awaited_to_enforce(ORDER, caches, a_lease_is_over=a_lease_is_over)
    assert (awaiting.holders, awaiting.lapsed) == (((), behind) if a_lease_is_over else (behind, ()))
    assert awaiting.confirmed == tuple(holder for holder in caches if holder not in behind)


@pytest.mark.parametrize(("agents", "custodian", "sink"), list(product((None, *SAID), repeat=3)))
def test_complete_once_each_store_and_sink_has_said_so(agents: int | None, custodian: int | None, sink: int | None) -> None:
    said = {"agents/0": agents, "custodian/0": custodian}
    confirmed = core.Confirmed(
        partitions={holder: through for holder, through in said.items() if through is not None},
        sinks={} if sink is None else {"sink/lake": sink},
    )
    behind = {holder for holder, through in said.items() if through is None or through < ORDER}
    behind |= {"sink/lake"} if sink is not None and sink < ORDER else set()
    assert set(core.awaited_to_complete(ORDER, confirmed, EXPECTED, 0, BOUND_US).holders) == behind


@pytest.mark.parametrize(
    ("written_at", "now", "waits"),
    [
        ((), None, False), ((), 0, False), ((1000,), 1099, True), ((1000,), 1100, False), ((1000, 1050), 1149, True),
        ((1000, 1050), 1150, False), ((1000,), None, True),
    ],
)  # fmt: skip
def test_complete_only_once_compaction_had_its_time_by_a_clock_that_is_believed(
    written_at: tuple[int, ...], now: int | None, waits: bool
) -> None:
    reports = {str(at): Purged(order=ORDER, counts={"rows": 1}, tombstones_at=at) for at in written_at}
    reports["none"] = Purged(order=ORDER, counts={"rows": 2})
    confirmed = core.Confirmed(partitions=dict.fromkeys(EXPECTED, ORDER), reports={ORDER: reports, 4: {"x": Purged(order=4)}})
    holders = core.awaited_to_complete(ORDER, confirmed, EXPECTED, now, BOUND_US).holders
    assert holders == ((core.COMPACTION,) if waits else ())


def test_each_state_keeps_what_was_before() -> None:
    row = core.accepted(asked(), "subject", 10, "topic:0:1")
    later = core.enforced(core.destroyed(row, ORDER, 20), 30)
    reports = {ORDER: {"a": Purged(order=ORDER, counts={"x": 1, "y": 2}, tombstones_at=35), "b": Purged(order=ORDER, counts={"x": 3})}}
    last = core.complete(later, core.Confirmed(reports=reports), 40)
    assert [each.state for each in (row, later, last)] == [ACCEPTED, ENFORCED, COMPLETE]
    assert last.erasure is not None
    assert (last.ended_at, last.destroyed_at, last.erasure.enforced_at, last.erasure.completed_at) == (10, 20, 30, 40)
    assert (last.erasure.counts, last.erasure.tombstones_at, last.erasure.order) == ({"x": 4, "y": 2}, 35, ORDER)


@pytest.mark.parametrize(
    ("command", "scope", "fits"),
    [
        (asked(), "subject", True),
        (asked(ERASE_SESSION, made_up_id("sess")), "session", True),
        (asked(ERASE_SESSION), "session", False),
        (asked(target_id=made_up_id("sess")), "subject", False),
        (asked(workspace_id="ws_mia"), "subject", False),
        (asked("erase_all"), None, False),
    ],
)
def test_a_request_names_a_scope_and_a_target_of_it(command: WorkspaceCommand, scope: str | None, fits: bool) -> None:
    assert core.scope_of(command) == scope
    assert (scope is not None and core.is_target(command, scope)) == fits


def test_what_is_under_way_is_restored_from_the_changelog_and_what_is_complete_is_not() -> None:
    row = core.destroyed(core.accepted(asked(), "subject", 10, "topic:0:1"), ORDER, 20)
    key, value = entries.erasure_key(row.id), entries.erasure_entry(row)
    restored = dict(entries.restored(key, value))
    assert [entries.pending_in(each) for each in restored.values() if each is not None and each != value] == [
        entries.UnderWay(row.id, DESTROYED, ORDER, 10)
    ]
    done = core.complete(core.enforced(row, 30), core.Confirmed(), 40)
    assert [put for put in entries.restored(key, entries.erasure_entry(done)) if put[1] is not None] == [(key, entries.erasure_entry(done))]
