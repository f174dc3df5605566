"""Uploads and downloads in processes that the system gives so much memory and no more."""

import subprocess
import sys
from pathlib import Path

import pytest

from streams.settings import Settings
from tests.support.object_server import CREDENTIALS, object_server
from tests.support.processes import environment


def run(
    settings: Settings, mode: str, mib: int, mib_max: int, *, timeout_s: float | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    arguments = [sys.executable, "-m", "tests.support.upload_process", mode, str(mib), str(mib_max)]
    # Stacks of threads count too, and there would be as many as the machine has cores.
    few = {"TOKIO_WORKER_THREADS": "2", "MALLOC_ARENA_MAX": "2"}
    path = {"PATH": "/usr/bin:/bin", **few, **environment(settings), **variables}
    return subprocess.run(arguments, capture_output=True, text=True, env=path, check=False, timeout=timeout_s)


def check(result: "subprocess.CompletedProcess[str]", mib_max: int) -> None:
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < mib_max


def test_64_mib_go_up_and_down_in_a_process_of_100(tmp_path: Path) -> None:
    check(run(Settings(data_dir=tmp_path), "memory", 64, 100), 100)


def test_64_mib_do_not_where_somebody_holds_all_of_them(tmp_path: Path) -> None:
    """So that the test above is seen to be able to fail. A process without memory mostly says so; now and then it stands still, where a
    thread of its event loop got none."""
    try:
        result = run(Settings(data_dir=tmp_path), "hoard", 64, 100, timeout_s=30)
    except subprocess.TimeoutExpired:
        return
    assert result.returncode != 0
    assert "MemoryError" in result.stderr


def test_64_mib_go_into_a_bucket_and_back_in_a_process_of_150(tmp_path: Path) -> None:
    with object_server() as server:
        settings = Settings(data_dir=tmp_path, blob_store=f"s3://{server.new_bucket()}", blob_store_endpoint=server.url)
        check(run(settings, "memory", 64, 150, **CREDENTIALS), 150)


@pytest.mark.soak
def test_a_gibibyte_goes_up_and_down_in_a_process_of_300(tmp_path: Path) -> None:
    check(run(Settings(data_dir=tmp_path), "memory", 1024, 300), 300)
