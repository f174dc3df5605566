"""Who owns which partition: the consumer group says so. A member's client id is `role@host:port`."""

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import MemberDescription

from streams.errors import BrokerUnavailable
from streams.log.client import admin, translate
from streams.settings import Settings


def client_id(role: str, host: str, port: int) -> str:
    return f"{role}@{host}:{port}"


class GroupOwners:
    """Describes one group. A dead member stays listed until its session time-out; its address then refuses."""

    def __init__(self, settings: Settings, group: str, topic: str) -> None:
        self._group = f"{settings.topic_prefix}{group}"
        self._topic = topic
        self._admin = admin(settings, f"{group}.owners")

    def owners(self, timeout_s: float = 5) -> dict[int, str]:
        """`host:port` of each partition's owner; partitions without one are absent. Blocking, 1-3 ms."""
        found: dict[int, str] = {}
        for member in self._members(timeout_s):
            _, _, address = member.client_id.partition("@")
            found.update({partition: address for partition in self._partitions(member) if address})
        return found

    def assigned(self, timeout_s: float = 5) -> dict[str, frozenset[int]]:
        """The partitions of each member, by the id that the broker gave it: another one each time that it joins."""
        return {member.member_id: self._partitions(member) for member in self._members(timeout_s)}

    def _members(self, timeout_s: float) -> list[MemberDescription]:
        try:
            group = self._admin.describe_consumer_groups([self._group], request_timeout=timeout_s)[self._group].result(timeout_s + 1)
        except KafkaException as error:
            raise translate(error, f"describing group {self._group}") from error
        except TimeoutError as error:
            raise BrokerUnavailable(f"describing group {self._group}: timed out") from error
        members: list[MemberDescription] = group.members
        return members

    def _partitions(self, member: MemberDescription) -> frozenset[int]:
        places: list[TopicPartition] = member.assignment.topic_partitions if member.assignment else []
        return frozenset(place.partition for place in places if place.topic == self._topic)
