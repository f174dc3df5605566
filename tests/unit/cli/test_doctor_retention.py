"""What `doctor` says of erasures, holders and clocks."""

from collections.abc import Sequence

import pytest

from connectors.cli import doctor_retention as doctor
from connectors.cli.doctor_retention import Heard
from streams.clock import now_us
from streams.log.retention import CACHE, PARTITION, SINK, Confirmation, RetentionRow, WorkspaceCommand
from streams.retention import core
from streams.settings import Settings
from tests.support.commands import new_id

SECOND = 1_000_000
SETTINGS = Settings(partitions=2)
STORES = ("custodian/0", "custodian/1", "agents/0", "agents/1")


def pending(age_s: float, *, enforced: bool = False) -> RetentionRow:
    then = now_us() - int(age_s * SECOND)
    command = WorkspaceCommand(
        command_id=new_id("cmd"), workspace_id=new_id("ws"), action="erase_subject", target_id=new_id("subj"), principal_id=new_id("key"),
        issued_at=then, not_after=then + SECOND,
    )  # fmt: skip
    row = core.accepted(command, "subject", then, "workspaces.commands:0:1")
    return core.enforced(core.destroyed(row, 1, then), then) if enforced else row


def heard(holder: str, kind: str = PARTITION, *, ago_s: float = 0.0, ahead_s: float = 0.0, leaving: bool = False) -> Heard:
    at = now_us() - int(ago_s * SECOND)
    told = Confirmation(
        holder_id=holder, kind=kind, process=f"{holder}/1", enforced_through=1, purged_through=1, leaving=leaving,
        told_at=at + int(ahead_s * SECOND),
    )  # fmt: skip
    return Heard(told, at)


def told(
    monkeypatch: pytest.MonkeyPatch, *, rows: Sequence[RetentionRow] = (), awaited: Sequence[str] = (), said: Sequence[Heard] = ()
) -> list[tuple[str, str, str]]:
    monkeypatch.setattr(doctor, "_pending", lambda settings: list(rows))
    monkeypatch.setattr(doctor, "_awaited", lambda settings, rows: list(awaited))
    monkeypatch.setattr(doctor, "heard_of", lambda settings: {each.told.holder_id: each for each in said})
    found = [*doctor.erasures(SETTINGS), *doctor.holders(SETTINGS)]
    return [(each.check, each.status, each.found) for each in found]


def everybody() -> list[Heard]:
    return [*map(heard, STORES), heard("gateway.0/1", CACHE)]


def test_a_quiet_installation_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(check, status) for check, status, _ in told(monkeypatch, said=everybody())] == [
        ("erasures", "ok"), ("holders", "ok"), ("clocks", "ok"),
    ]  # fmt: skip


def test_an_erasure_under_way_names_who_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [pending(5, enforced=True), pending(90, enforced=True)]
    check, status, found = told(monkeypatch, rows=rows, awaited=["agents/1", "sink/lake"], said=everybody())[0]
    assert (check, status) == ("erasures", "warning")
    assert found.startswith("2 erasures under way, the oldest for 90 s; awaits agents/1, sink/lake")


def test_one_that_is_not_enforced_after_a_lease_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, rows=[pending(600)], said=everybody())[0][:2] == ("erasures", "failed")
    assert told(monkeypatch, rows=[pending(600, enforced=True)], said=everybody())[0][:2] == ("erasures", "ok")


def test_stores_and_sinks_that_say_nothing_are_named_and_processes_that_went_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [
        *map(heard, STORES[:2]), heard("agents/0", ago_s=600), heard("sink/lake", SINK, ago_s=600),
        heard("sink/old", SINK, ago_s=600, leaving=True), heard("gateway.0/1", CACHE, ago_s=600),
    ]  # fmt: skip
    check, status, found = told(monkeypatch, said=said)[1]
    assert (check, status) == ("holders", "warning")
    assert found == "nothing heard lately of agents/1, agents/0, sink/lake"


def test_a_clock_that_disagrees_with_the_brokers_is_named_with_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    check, status, found = told(monkeypatch, said=[*everybody(), heard("gateway.1/2", CACHE, ahead_s=-90)])[-1]
    assert (check, status) == ("clocks", "failed")
    assert "gateway.1/2/1 -90 s" in found


def test_of_many_names_the_first_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [pending(1, enforced=True)]
    assert told(monkeypatch, rows=rows, awaited=[f"custodian/{each}" for each in range(8)], said=everybody())[0][2].endswith(" and 3 more")
