"""The simulator passes the contract of a log."""

import pytest

from tests.contract.log_contract import LogContract
from tests.simulator.cluster import Cluster
from tests.simulator.log import SimulatedLog


class TestSimulatedLog(LogContract):
    input, output = "input", "output"

    @pytest.fixture(autouse=True)
    def _cluster(self) -> None:
        self.cluster = Cluster(partitions=4)

    def make_log(self, instance: str) -> SimulatedLog:
        return SimulatedLog(self.cluster, instance)
