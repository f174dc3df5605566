"""Who owns which partition: the consumer group says so. A member's client id is `role@host:port`."""

import struct
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException

from streams.log.client import admin, translate
from streams.settings import Settings

_HEAD: Final = struct.Struct(">hi")
"""Version, number of topics."""
_LENGTH: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")


def client_id(role: str, host: str, port: int) -> str:
    return f"{role}@{host}:{port}"


class _Member(NamedTuple):
    member_id: str
    client_id: str
    partitions: frozenset[int]


class GroupOwners:
    """Describes one group. A dead member stays listed until its session time-out; its address then refuses."""

    def __init__(self, settings: Settings, group: str, topic: str) -> None:
        self._group = f"{settings.topic_prefix}{group}"
        self._topic = topic
        self._admin = admin(settings, f"{group}.owners")

    def owners(self, timeout_s: float = 5) -> dict[int, str]:
        """`host:port` of each partition's owner; partitions without one are absent. Blocking, 2-4 ms."""
        found: dict[int, str] = {}
        for member in self._members(timeout_s):
            _, _, address = member.client_id.partition("@")
            found.update({partition: address for partition in member.partitions if address})
        return found

    def assigned(self, timeout_s: float = 5) -> dict[str, frozenset[int]]:
        """The partitions of each member, by the id that the broker gave it: another one each time that it joins."""
        return {member.member_id: member.partitions for member in self._members(timeout_s)}

    def _members(self, timeout_s: float) -> list[_Member]:
        try:
            # The newer `describe_consumer_groups` can abort the process: ADR 0036.
            groups: list[Any] = self._admin.list_groups(self._group, timeout=timeout_s)
        except KafkaException as error:
            raise translate(error, f"describing group {self._group}") from error
        found: list[_Member] = []
        for group in groups:
            if group.error is not None:
                raise translate(KafkaException(group.error), f"describing group {self._group}")
            for member in group.members:
                partitions = assigned_partitions(member.assignment or b"").get(self._topic, frozenset())
                found.append(_Member(member.id, member.client_id, partitions))
        return found


def assigned_partitions(assignment: bytes) -> dict[str, frozenset[int]]:
    """By topic, of what a member was handed: a `ConsumerProtocolAssignment` of the Kafka protocol, of any version, or
    nothing while the group settles. Raises `struct.error` for other bytes."""
    found: dict[str, frozenset[int]] = {}
    if not assignment:
        return found
    _, topics = _HEAD.unpack_from(assignment)
    place = _HEAD.size
    for _ in range(topics):
        (length,) = _LENGTH.unpack_from(assignment, place)
        place += _LENGTH.size
        topic = assignment[place : place + length].decode()
        place += length
        (count,) = _COUNT.unpack_from(assignment, place)
        place += _COUNT.size
        found[topic] = frozenset(struct.unpack_from(f">{count}i", assignment, place))
        place += 4 * count
    return found
