"""Throws a derived topic away so that its one writer makes it anew from its input: topic and offsets go, and the topic comes back empty."""

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from streams.errors import BrokerUnavailable, Misconfigured
from streams.log import topics
from streams.log.client import admin, translate
from streams.log.owners import GroupOwners
from streams.settings import Settings

_GONE_S: Final = 30.0
_NOT_THERE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND})


def remake(settings: Settings, topic: str, *, group: str, reads: str) -> None:
    """`group` writes `topic` from what it `reads`. Raises `Misconfigured` while it has members, `BrokerUnavailable`."""
    if GroupOwners(settings, group, reads).assigned():
        raise Misconfigured(f"group {settings.topic_prefix}{group} has members: stop every process of the role first")
    client = admin(settings)
    # Offsets first: a group without them begins at the start of its input, with an empty topic or with the old one.
    _result(client.delete_consumer_groups([f"{settings.topic_prefix}{group}"]), "deleting the group's offsets")
    _result(client.delete_topics([topic]), f"deleting {topic}")
    deadline = time.monotonic() + _GONE_S
    while topic in client.list_topics(timeout=10).topics:
        if time.monotonic() > deadline:
            raise BrokerUnavailable(f"{topic} is not gone within {_GONE_S:g} s")
        time.sleep(0.1)
    topics.apply(settings)


def _result(futures: object, doing: str) -> None:
    for future in futures.values():  # type: ignore[attr-defined]
        try:
            future.result(_GONE_S)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE:
                raise translate(error, doing) from error
