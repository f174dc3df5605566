"""The runner's command line: what it refuses, and how it tells what happens."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from connectors.cli.main import app
from connectors.cli.running import in_words, plans_of
from connectors.runner.plan import STEPS_MAX
from streams.errors import Misconfigured

SAMPLE = Path(__file__).parents[3] / "connectors" / "runner" / "sample.jsonl"
GIVEN = ["runner", str(SAMPLE), "--workspace", "w", "--provider", "http://127.0.0.1:9", "--url", "http://127.0.0.1:9", "--api-key", "k"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--session", "sess_1"], "--session and --run come together"),
        (["--run", "run_1"], "--session and --run come together"),
        (["--session", "s", "--run", "r", "--start"], "not with --start"),
        (["--approve"], "needs --run or --start"),
        (["--lease-ms", "10"], "--lease-ms"),
    ],
)
def test_a_command_line_that_contradicts_itself_is_refused(more: list[str], named: str) -> None:
    result = CliRunner().invoke(app, [*GIVEN, *more])
    assert result.exit_code == 2
    assert named in " ".join(result.output.split())


def test_a_file_that_is_no_transcript_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}\n")
    for path in (tmp_path / "x", tmp_path / "missing"):
        with pytest.raises(Misconfigured):
            plans_of(path, STEPS_MAX)
    assert plans_of(SAMPLE, 3)("run_" + "0" * 32).steps


def test_what_happens_is_told_in_a_line() -> None:
    told = {
        "claimed": {"generation": 2, "mode": "event_log_rebuild", "reason": "no_checkpoint"},
        "begun": {"steps": 3, "files": "checkpoint", "native": True, "history": 5, "unusable": ""},
        "checkpoint": {"step": 5, "through_sequence": 17},
        "acted": {"step": 4, "provider": "shell", "settled": "receipt"},
        "refused": {"code": "runtime.replacement_unavailable", "missing": ["compatibility", "verification"]},
        "left": {"end": "completed", "detail": "", "settled": {"receipt": 2, "provider_lookup": 1}},
    }
    assert [in_words(what, given) for what, given in told.items()] == [
        "generation 2: event_log_rebuild (no_checkpoint)",
        "  begins at step 3; files: checkpoint, native state, 5 events of the conversation read",
        "  checkpoint after step 5, through 17",
        "  step 4: the shell acted, settled by receipt",
        "  refused: runtime.replacement_unavailable (compatibility, verification)",
        "completed; actions settled: 1 by provider_lookup, 2 by receipt",
    ]
