"""Files written again out of the log, behind a snapshot or without one."""

from pathlib import Path

import pytest

from connectors.runner.plan import Plan, Say, make_plan, read_records
from connectors.runner.recovery import _files
from connectors.runner.workspace import Workspace
from tests.support.examples import made_up_id

SAMPLE = Path(__file__).parents[3] / "connectors" / "runner" / "sample.jsonl"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(read_records(SAMPLE), made_up_id("run"))


def test_what_the_log_tells_behind_the_snapshot_is_written_again(plan: Plan, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w")
    told = {step.index: step.writes for step in plan.steps if isinstance(step, Say) and step.writes}
    assert _files(workspace, plan, told, range(0, 7), restored=False) == "log"
    assert b"16:35" in workspace.files()["notices/spring-tide.md"]
    assert _files(workspace, plan, told, range(7, len(plan.steps)), restored=True) == "checkpoint"
    assert set(workspace.files()) == {"notices/spring-tide.md", "notices/INDEX.md"}


def test_where_content_is_gone_that_a_file_was_written_with_the_workspace_is_fresh_and_says_so(plan: Plan, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w")
    told = {step.index: step.writes for step in plan.steps if isinstance(step, Say) and step.writes}
    del told[1]
    assert _files(workspace, plan, told, range(0, 7), restored=False) == "fresh"
    assert workspace.files() == {}
