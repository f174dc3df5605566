"""Processes of a test's own, which may import what the test may."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run_python(code: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs `code` to its end, with `variables` added to the environment."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "connectors" / "client" / "src")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
