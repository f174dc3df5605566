"""One object server for the module that asks for it."""

from collections.abc import Iterator

import pytest

from tests.support.object_server import ObjectServer, object_server


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running
