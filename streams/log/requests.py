"""The asking side: commands out, outcomes in. Used by the gateway and by the direct importer.

An asking process names itself `instance/epoch`, the epoch random at each start, so that a restarted one never takes an
outcome that was meant for its predecessor.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from streams.errors import BrokerUnavailable, Overloaded, RecordUnreadable, StreamsError
from streams.log.client import producer, translate
from streams.log.partitioner import partition_of
from streams.log.reader import PartitionReader, end_offsets
from streams.log.record import decode_outcomes, encode_dead_letter
from streams.log.topics import Topics
from streams.session.dead_letters import DeadLetter
from streams.session.outcomes import Outcome
from streams.settings import Settings

_log = structlog.get_logger(__name__)

Answer = TypeVar("Answer")

OnDone = Callable[[StreamsError | None], None]
"""Called with None once the record is stored, or with what went wrong; `CommandLog.send` may leave it uncalled."""
_LOOK_S: Final = 0.02
"""How often deliveries are looked at."""


def new_reply_to(instance: str) -> str:
    """`instance/epoch`, the epoch random at each start."""
    return f"{instance}/{secrets.token_hex(8)}"


class CommandLog:
    """Sends commands (and the edge's own dead letters). A thread serves deliveries; every method is thread-safe."""

    def __init__(self, settings: Settings, role: str, topic: str | None = None, *, partitions: int | None = None) -> None:
        """`topic`: where the commands go, if not to the sessions; `partitions`: of it, where it has not as many as the installation."""
        topics = Topics(settings.topic_prefix)
        self._commands, self._deadletter = topic or topics.commands, topics.deadletter
        self._partitions, self._letter_partitions = partitions or settings.partitions, settings.partitions
        # A command that was not delivered in time has been given up on; it must not arrive later as if fresh.
        timeout_ms = int(settings.request_timeout_s * 1000)
        client = f"{role}.commands" if topic is None else f"{role}.{topic}"
        self._producer = producer(settings, client, {"message.timeout.ms": timeout_ms, "queue.buffering.max.messages": 100_000})
        self._sampling = self._troubled = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="command-deliveries", daemon=True)
        self._thread.start()

    def partition_of(self, session_id: str) -> int:
        return partition_of(session_id.encode(), self._partitions)

    def send(self, value: bytes, session_id: str, on_done: OnDone | None = None) -> None:
        """`on_done`, if called, is called from the delivery thread: with None, or with what went wrong. Raises `Overloaded`.

        It is called for one command at a time while all is well, since each report takes the interpreter from whoever answers
        requests; once one has failed, for every command, until one is stored. Whoever sends waits for an outcome with a
        time-out of its own.
        """
        if on_done is None or (self._sampling and not self._troubled):
            self._produce("sending a command", self._commands, session_id.encode(), value, None)
            return
        self._sampling = True

        def sampled(error: StreamsError | None) -> None:
            self._sampling, self._troubled = False, error is not None
            on_done(error)

        try:
            self._produce("sending a command", self._commands, session_id.encode(), value, sampled)
        except StreamsError:
            self._sampling = False
            raise

    def send_dead_letter(self, letter: DeadLetter, key: str, on_done: OnDone) -> None:
        """`on_done` is called from the delivery thread: with None once the letter is stored. Raises `Overloaded`."""
        partition = partition_of(key.encode(), self._letter_partitions)
        self._produce("sending a dead letter", self._deadletter, key.encode(), encode_dead_letter(letter), on_done, partition)

    def close(self) -> None:
        self._producer.flush(5)
        self._closing.set()
        self._thread.join()
        self._producer.close()

    def _produce(self, doing: str, topic: str, key: bytes, value: bytes, on_done: OnDone | None, partition: int | None = None) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if on_done is not None:
                on_done(None if error is None else translate(error, doing))

        partition = partition_of(key, self._partitions) if partition is None else partition
        try:
            if on_done is None:
                self._producer.produce(topic, value, key, partition)
            else:
                self._producer.produce(topic, value, key, partition, on_delivery=delivered)
        except BufferError as error:
            raise Overloaded(f"{doing}: too many records wait for the broker") from error
        except KafkaException as error:
            raise translate(error, doing) from error

    def _serve(self) -> None:
        # Not woken by each delivery: nobody waits for one.
        while not self._closing.wait(_LOOK_S):
            self._producer.poll(0)


class AnswerFollower(Generic[Answer]):
    """Follows all partitions of a topic of outcomes from where they end now, and hands on what `reply_to` asked for."""

    def __init__(
        self,
        settings: Settings,
        client: str,
        topic: str,
        decode: Callable[[bytes], Sequence[Answer]],
        reply_to: str,
        on_batch: Callable[[Sequence[Answer]], None],
        *,
        partitions: int | None = None,
    ) -> None:
        """`decode` raises `RecordUnreadable`. `on_batch` is called from the follower's thread, once for each batch drained.
        `partitions`: of the topic, where it has not as many as the installation.

        Raises `BrokerUnavailable`.
        """
        places = [(topic, partition) for partition in range(partitions or settings.partitions)]
        # Everything asked from now on is decided after these ends.
        starts = end_offsets(settings, places, committed=False)
        self._reader = PartitionReader(settings, client, starts)
        self._decoded = decode
        self._reply_to = reply_to
        self._key = reply_to.encode()
        self._on_batch = on_batch
        self._closing = threading.Event()
        self.failed: StreamsError | None = None
        self._thread = threading.Thread(target=self._follow, name="outcomes", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        with self._reader as reader:
            while not self._closing.is_set():
                try:
                    records = reader.read(1000, 0.1)
                except BrokerUnavailable as error:
                    _log.warning("outcomes_interrupted", reason=error.detail)
                    continue
                except StreamsError as error:
                    self.failed = error
                    _log.error("outcomes_failed", reason=error.detail)
                    return
                mine: list[Answer] = []
                for record in records:
                    if record.key == self._key and record.value is not None:
                        mine.extend(self._decode(record.value, record.partition, record.offset))
                if mine:
                    self._on_batch(mine)

    def _decode(self, value: bytes, partition: int, offset: int) -> Sequence[Answer]:
        try:
            return self._decoded(value)
        except RecordUnreadable as error:
            # Whoever waits for it asks again under the same key and gets the recorded outcome.
            _log.error("outcome_unreadable", partition=partition, offset=offset, reason=error.detail)
            return ()


class OutcomeFollower(AnswerFollower[Outcome]):
    """Of what sessions are asked."""

    def __init__(self, settings: Settings, role: str, reply_to: str, on_batch: Callable[[Sequence[Outcome]], None]) -> None:
        """As `AnswerFollower`."""
        topic = Topics(settings.topic_prefix).outcomes
        super().__init__(settings, f"{role}.outcomes", topic, lambda value: decode_outcomes(value)[1], reply_to, on_batch)
