"""The programs of pages run against a gateway, and print what the pages show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateway import world
from tests.support.pages import REPOSITORY, quoted


@pytest.mark.parametrize(("page", "name"), [("recovery.md", "recovery"), ("agent-checkpoints.md", "agents")])
def test_a_program_prints_what_its_page_shows(page: str, name: str, tmp_path: Path) -> None:
    path = REPOSITORY / "docs" / page
    program = quoted(path, "run")[name]
    shown = re.search(r"^```python\n.*?^```\n```\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    assert shown is not None
    with world(tmp_path) as made:
        command = [sys.executable, "-c", program, made.url, made.secret()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.stdout) == ("", shown[1])
