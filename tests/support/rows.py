"""Rows of `workspaces.config` written at once: keys and policies that a test needs before it begins.

The service writes each by an idempotent producer of its own, which takes half a second to be given its id. The rows are the same.
"""

from collections.abc import Callable
from contextlib import closing

from confluent_kafka import KafkaError, Message, Producer

from connectors.edge.keys import KeyAdministration
from connectors.edge.policies import PolicyAdministration
from streams.log.topics import Topics
from streams.settings import Settings


def key_administration(settings: Settings) -> KeyAdministration:
    return KeyAdministration(settings, write=_writer(settings))


def policy_administration(settings: Settings) -> PolicyAdministration:
    return PolicyAdministration(settings, write=_writer(settings))


def _writer(settings: Settings) -> Callable[[bytes, bytes], None]:
    """Returns once the row is stored."""

    def write(key: bytes, value: bytes) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        with closing(Producer({"bootstrap.servers": settings.bootstrap, "acks": "all", "linger.ms": 0})) as client:
            client.produce(Topics(settings.topic_prefix).config, value, key, 0, on_delivery=delivered)
            assert client.flush(20) == 0
        assert not failures, failures

    return write
