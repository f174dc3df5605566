"""A gateway behind a real port over a log in memory, one for each module that asks for it."""

from collections.abc import Iterator

import pytest

from tests.support.gateway import World, world


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gateway")) as each:
        yield each
