"""Logs are JSON lines, whoever writes them, in a file that stays bounded."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from connectors.cli import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """The process's own logging, as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_events_of_ours_and_of_libraries_are_json_lines_with_a_name(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "role.log"
    logs.configure(file)
    structlog.get_logger("x").info("restored", partition=3, position=17)
    logging.getLogger("some.library").warning("it says %s", "this")
    logging.getLogger("uvicorn.access").info("GET /v1/sessions/secret")
    ours, theirs = [json.loads(line) for line in file.read_text().splitlines()]
    assert (ours["event"], ours["partition"], ours["position"], ours["level"]) == ("restored", 3, 17, "info")
    assert (theirs["event"], theirs["level"]) == ("it says this", "warning")
    assert ours["timestamp"].endswith("Z")


def test_a_failure_carries_its_trace_on_the_same_line(tmp_path: Path) -> None:
    logs.configure(tmp_path / "role.log")
    try:
        raise ValueError("why")
    except ValueError:
        structlog.get_logger("x").exception("role_failed", role="authority")
    (line,) = (tmp_path / "role.log").read_text().splitlines()
    assert "ValueError: why" in json.loads(line)["exception"]
