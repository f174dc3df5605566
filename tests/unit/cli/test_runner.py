"""The runner's command line: what it refuses, and how it tells what happens."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from typer.testing import CliRunner

from connectors.cli.main import app
from connectors.cli.running import plans_of
from connectors.cli.worker_words import in_words
from connectors.runner.plan import STEPS_MAX
from connectors.runner.worker import End, Left
from streams.errors import Misconfigured, Retriable

REPOSITORY = Path(__file__).parents[3]
SAMPLE = REPOSITORY / "connectors" / "runner" / "sample.jsonl"
AWAY = "http://127.0.0.1:9"
GATEWAY = "http://127.0.0.1:7"
"""Nobody listens at either."""
GIVEN = ["runner", str(SAMPLE), "--workspace", "w", "--provider", AWAY, "--url", GATEWAY, "--api-key", "k"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--session", "sess_1"], "--session and --run come together"),
        (["--run", "run_1"], "--session and --run come together"),
        (["--session", "s", "--run", "r", "--start"], "not with --start"),
        (["--approve"], "needs --run or --start"),
        (["--lease-ms", "10"], "--lease-ms"),
        (["--provider", "127.0.0.1:8720"], "expected http://HOST:PORT"),
        (["--provider", "ftp://127.0.0.1"], "expected http://HOST:PORT"),
        (["--provider", GATEWAY], "is the gateway"),
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


def test_a_provider_that_does_not_answer_is_told_before_a_run_is_opened(tmp_path: Path) -> None:
    """The gateway is away too: had it been asked first, that would be told."""
    given = ["runner", str(SAMPLE), "--workspace", str(tmp_path / "w"), "--provider", AWAY, "--url", GATEWAY, "--api-key", "k", "--start"]
    result = CliRunner().invoke(app, given)
    assert isinstance(result.exception, Retriable)
    assert result.exception.code == "runner.provider_away"
    assert f"--provider {AWAY}" in str(result.exception)
    assert not (tmp_path / "w").exists()


def test_a_workspace_with_somebodys_files_is_refused_before_a_run_is_opened(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of it")
    given = ["runner", str(SAMPLE), "--workspace", str(tmp_path), "--provider", AWAY, "--url", GATEWAY, "--api-key", "k", "--start"]
    result = CliRunner().invoke(app, given)
    assert isinstance(result.exception, Misconfigured)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_happens_is_told_in_a_line() -> None:
    told: dict[str, dict[str, Any]] = {
        "started": {"session_id": "sess_1", "run_id": "run_1"},
        "claimed": {"generation": 2, "mode": "event_log_rebuild", "reason": "no_checkpoint"},
        "begun": {"steps": 3, "files": "checkpoint", "native": True, "history": 5, "unusable": ""},
        "checkpoint": {"step": 5, "through_sequence": 17},
        "acted": {"step": 4, "provider": "shell", "settled": "receipt"},
        "waits": {"step": 5, "kind": "human", "answer": "/v1/sessions/s/waits/w/answer"},
        "asks": {"step": 6, "answer": "/v1/sessions/s/approvals/a/decide", "action_digest": "sha256:1"},
        "refused": {"asked": "replace", "code": "runtime.replacement_unavailable", "missing": ["compatibility", "verification"]},
        "left": {"end": "completed", "detail": "", "settled": {"receipt": 2, "provider_lookup": 1}},
    }
    assert [in_words(what, given) for what, given in told.items()] == [
        "session sess_1 run run_1",
        "generation 2: event_log_rebuild (no_checkpoint)",
        "  begins at step 3; files: checkpoint, native state, 5 events of the conversation read",
        "  checkpoint after step 5, through 17",
        "  step 4: the shell action is settled by the provider's receipt",
        "  step 5 waits for a person's answer: POST /v1/sessions/s/waits/w/answer with "
        '{"content": ...}, or start the runner with --approve',
        "  step 6 wants an approval: POST /v1/sessions/s/approvals/a/decide with "
        '{"decision": "granted", "action_digest": "sha256:1"}, or start the runner with --approve',
        "  refused: runtime.replacement_unavailable (compatibility, verification)",
        "the Run is completed; actions settled: 1 by provider_lookup, 2 by receipt",
    ]


def test_nobody_is_asked_to_answer_what_is_answered_already() -> None:
    assert "POST" not in in_words("waits", {"step": 5, "kind": "human", "answer": "/v1/x"}, approve=True)
    assert "POST" not in in_words("waits", {"step": 5, "kind": "timer", "answer": "/v1/x"})


def left(end: End, detail: str = "it", **more: Any) -> str:
    return in_words("left", to_builtins(Left(end=end, detail=detail, **more)))


@pytest.mark.parametrize("end", list(End))
def test_each_end_is_a_sentence(end: End) -> None:
    assert len(left(end).split()) > 3, "no word of the code alone"


def test_what_cannot_be_replaced_says_what_is_missing_and_where_it_is_to_be_had() -> None:
    told = left(End.UNREPLACEABLE, missing=("verification", "of_tomorrow"))
    assert "lane was seen to replace attempts (verification); of_tomorrow (of_tomorrow)" in told
    page, heading = re.findall(r'(docs/recovery\.md), "([^"]+)"', told)[0]
    assert f"\n### {heading}\n" in (REPOSITORY / page).read_text()


def test_what_is_indeterminate_says_why_and_how_it_is_settled() -> None:
    told = left(End.INDETERMINATE, "eff_1", session_id="sess_1", cause="connection refused")
    assert "connection refused" in told
    assert "POST /v1/sessions/sess_1/effects/eff_1/reconcile" in told
