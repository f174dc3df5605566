"""A custodian and an authority on the simulator, one for each test; modules that want it otherwise have a `world` of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.custodian.custodian import ROLE
from tests.support.erasing_world import ErasingWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ErasingWorld]:
    world = ErasingWorld(tmp_path, partitions=1)
    world.start("authority")
    world.start(ROLE)
    world.settle()
    yield world
    world.close()
