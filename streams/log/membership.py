"""A member of a consumer group of one topic, as the loop and the projector need it.

Classic protocol, range assignor, static membership (a quick restart is no rebalance). Callbacks run inside `read`, and
only there: between two reads the assignment stands still. `read` never hands out a record of a partition that was
revoked meanwhile.
"""

from collections.abc import Callable, Collection, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.log.client import consumer, translate
from streams.log.reader import Place, Record, taken
from streams.settings import Settings

Starts = Mapping[Place, int | None]
"""First offset of each place; None: where the group committed, else the start of the log."""


class GroupConsumer:
    """`on_assigned` answers where each place begins. Every place comes paused: nothing of it is read before `resume`.

    `on_given_up` is told of places that were revoked, and of those that were lost: another may own them already.
    """

    def __init__(
        self,
        settings: Settings,
        group: str,
        topic: str,
        *,
        client_id: str,
        on_assigned: Callable[[list[Place]], Starts],
        on_given_up: Callable[[list[Place]], None],
    ) -> None:
        self._on_assigned = on_assigned
        self._on_given_up = on_given_up
        self._rebalances = 0
        self.owned: set[Place] = set()
        self._positions: dict[Place, int] = {}
        # A static member that returns keeps, in the group's own list, the client id it first came with: one that serves
        # at another address (see `owners`) has to be another member.
        address = client_id.partition("@")[2].replace(":", "-")
        instance = f"{settings.topic_prefix}{group}.{settings.instance}{f'.{address}' if address else ''}"
        self._consumer: Consumer = consumer(
            settings,
            group,
            {
                "client.id": client_id,
                "group.instance.id": instance,
                "partition.assignment.strategy": "range",
                # An end tells where the client stands once it has passed what is never handed out (`position`).
                "enable.partition.eof": True,
                "session.timeout.ms": int(settings.member_session_timeout_s * 1000),
                "heartbeat.interval.ms": int(settings.member_session_timeout_s * 1000 / 5),
            },
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._given_up, on_lost=self._given_up)

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """At least one record unless the time-out passes or an end is reached; raises StreamsError of a kind that ends the process."""
        first = self._consumer.poll(timeout_s)
        rebalances = self._rebalances
        if first is None:
            return []
        messages = [first, *self._consumer.consume(max_records - 1, 0)] if max_records > 1 else [first]
        if self._rebalances != rebalances:
            # The group handed everything out anew while these were taken: their owner reads them again.
            return []
        return taken(messages, self._positions, "consuming", ignored=(KafkaError._MAX_POLL_EXCEEDED,))

    def position(self, topic: str, partition: int) -> int | None:
        """The next offset: everything below was handed out by `read` or will never be. None before the first."""
        return self._positions.get((topic, partition))

    def seek(self, starts: Mapping[Place, int]) -> None:
        for (topic, partition), offset in starts.items():
            try:
                self._consumer.seek(TopicPartition(topic, partition, offset))
            except KafkaException as error:
                raise translate(error, f"seeking {topic}:{partition}") from error
            self._positions[(topic, partition)] = offset

    def pause(self, places: Collection[Place]) -> None:
        """Nothing of these is read until `resume`; a position set by `seek` before that is lost, so seek after it."""
        self._consumer.pause([TopicPartition(*place) for place in places])

    def resume(self, places: Collection[Place]) -> None:
        self._consumer.resume([TopicPartition(*place) for place in places])

    def committed(self, places: Collection[Place], timeout_s: float = 10) -> dict[Place, int | None]:
        """What the group committed. Waits out a transaction that is about to change it."""
        try:
            found = self._consumer.committed([TopicPartition(*place) for place in places], timeout_s)
        except KafkaException as error:
            raise translate(error, "reading committed offsets") from error
        return {(item.topic, item.partition): item.offset if item.offset >= 0 else None for item in found}

    def metadata(self) -> object:
        """The group's fencing metadata as of now: to be fetched for each commit, never kept."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()

    def _assigned(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        places = [(item.topic, item.partition) for item in partitions]
        self.owned = set(places)
        self._positions.clear()
        starts = self._on_assigned(places)
        assignment = []
        for topic, partition in places:
            offset = starts.get((topic, partition))
            assignment.append(TopicPartition(topic, partition) if offset is None else TopicPartition(topic, partition, offset))
        client.assign(assignment)
        if assignment:
            client.pause(assignment)

    def _given_up(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        places = [(item.topic, item.partition) for item in partitions]
        self.owned.difference_update(places)
        self._on_given_up(places)
        client.unassign()
