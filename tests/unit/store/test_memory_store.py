import pytest

from streams.store.memory import MemoryStore
from tests.contract.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()
