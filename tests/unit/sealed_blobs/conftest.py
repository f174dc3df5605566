"""A room on a directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.blobs.local import LocalBlobs
from tests.support.sealed_blobs import Room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(LocalBlobs(tmp_path / "blobs"), tmp_path / "keyring")
    yield made
    made.keyring.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the room's blobs lie."""
    return tmp_path / "blobs"
