"""The recorded customers, where they are: where they are not, made-up ones take their place, so that nothing here is skipped."""

import os
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="session")
def recordings_if_any() -> Path:
    return Path(os.environ.get("SESSION_STREAMS_RECORDINGS") or REPOSITORY.parent / "shared" / "data")
