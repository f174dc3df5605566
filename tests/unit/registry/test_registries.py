"""The file registry and the one over HTTP keep the same contract."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.registry import HttpRegistry, RegistryClient, SubjectNames, publish
from schemas.catalog import FileRegistry, Registry
from tests.contract.registry_contract import RegistryContract
from tests.support.registry_server import RegistryServer


class TestFileRegistry(RegistryContract):
    def registry_of(self, folder: Path) -> Registry:
        return FileRegistry(folder)


@pytest.fixture(scope="module")
def client() -> Iterator[RegistryClient]:
    with RegistryServer(first_id=700_001).serving() as server:
        client = RegistryClient(server.url)
        yield client
        client.close()


class TestHttpRegistry(RegistryContract):
    """Its numbers are its own. Tests share a server, each under names of its own."""

    _names = (SubjectNames(f"test-{number}.{{subject}}") for number in itertools.count())

    @pytest.fixture(autouse=True)
    def _on_a_server(self, client: RegistryClient) -> None:
        self.client = client

    def registry_of(self, folder: Path) -> Registry:
        names, known = next(self._names), FileRegistry(folder)
        publish(self.client, names, known)
        return HttpRegistry(self.client, names, known)
