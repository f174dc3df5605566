"""One installation for the whole folder: each test has sessions of its own in it."""

from collections.abc import Iterator

import pytest

from tests.conftest import Broker
from tests.support.recovery_rows import Installation, recovery_installation


@pytest.fixture(scope="package")
def installed(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with recovery_installation(broker.bootstrap, tmp_path_factory.mktemp("recovery")) as made:
        made.verify_replacement()
        yield made
