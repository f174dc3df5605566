"""A gateway behind a real port over a log in memory, one for each module."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.capsule_world import Idle, idle_session
from tests.support.capsules import Document
from tests.support.gateway import World, world


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One gateway for a module; its tests set back the faults that they inject."""
    with world(tmp_path_factory.mktemp("gateway")) as made:
        yield made


@pytest.fixture(scope="module")
def client(shared: World) -> httpx.Client:
    """A key that may do everything in its workspace."""
    return shared.client()


@pytest.fixture(scope="module")
def idle(client: httpx.Client) -> Idle:
    """A session that a capsule can be made of."""
    return idle_session(client, subject="mia")


@pytest.fixture(scope="module")
def transfer(idle: Idle) -> Document:
    """What a capsule of it is handed on as."""
    return dict(idle.created()["transfer"])
