"""Apache Kafka passes the contract of a log."""

from dataclasses import replace

import pytest

from streams.log.log import KafkaLog
from streams.log.topics import Topics
from streams.settings import Settings
from tests.contract.log_contract import LogContract


class TestKafkaLog(LogContract):
    @pytest.fixture(autouse=True)
    def _settings(self, settings: Settings) -> None:
        self.settings = settings
        topics = Topics(settings.topic_prefix)
        self.input, self.output = topics.commands, topics.state

    def make_log(self, instance: str) -> KafkaLog:
        return KafkaLog(replace(self.settings, instance=instance))
