"""Owns a Kafka transaction: begin, produce, attach the input's offsets, commit or abort; nothing else does.

What the client raises becomes one of two reactions: `TransactionAborted` (nothing was written: rewind and go on) or
`Fatal` (leave the process; the log tells at the next start what took effect). An unknown outcome of a commit is asked
again until it is known or the client gives up; it is never guessed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from streams.errors import Fatal, TransactionAborted
from streams.log.client import producer
from streams.log.reader import Place
from streams.log.watch import CallWatch
from streams.settings import Settings

_log = structlog.get_logger(__name__)

KeyedValue = tuple[bytes, bytes | None]
"""A record's key and value; a value of None is a tombstone."""

_AT_ONCE_BYTES: Final = 32 << 20
_ATTEMPT_S: Final = 5.0
"""One call's own time-out; the whole is bounded by the transaction's."""
_NO_RETURN_S: Final = 2 * _ATTEMPT_S
"""After that a call is one that never comes back, and the process ends."""


class TransactionalProducer:
    """One transactional id, stable for (role, instance), so that a restart frees what its predecessor left open."""

    def __init__(self, settings: Settings, role: str) -> None:
        self.transactional_id = f"{settings.topic_prefix}{role}.{settings.instance}"
        self._deadline_s = settings.transaction_timeout_s
        self._watch = CallWatch(role, _NO_RETURN_S)
        self._producer: Producer = producer(
            settings,
            role,
            {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": int(settings.transaction_timeout_s * 1000),
                "message.timeout.ms": int(settings.transaction_timeout_s * 1000),
                # CONCURRENT_TRANSACTIONS (the last markers are still being written) is retried after this, not 100 ms.
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 100,
                # Records are on their way while the next are made and the offsets are sent; under load they gather by themselves.
                "linger.ms": 0,
                "queue.buffering.max.messages": 1_000_000,
            },
        )

    def initialise(self, timeout_s: float = 60) -> None:
        """Fences every older producer of this id and waits for its open transaction to end."""
        self._retry("initialising transactions", lambda: self._producer.init_transactions(_ATTEMPT_S), timeout_s)

    def begin(self) -> None:
        self._call("beginning a transaction", self._producer.begin_transaction)

    def produce(
        self, topic: str, partition: int, key: bytes, value: bytes | None, on_delivery: Callable[[int], None] | None = None
    ) -> None:
        """`on_delivery` gets the record's offset before `commit` returns; a record that fails aborts the whole."""
        callback = None if on_delivery is None else _offset_callback(on_delivery)
        while True:
            try:
                if callback is None:
                    self._producer.produce(topic, value, key, partition)
                else:
                    self._producer.produce(topic, value, key, partition, on_delivery=callback)
                return
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                self._abort_or_leave(error.args[0], "producing")

    def produce_many(self, topic: str, partition: int, records: Sequence[KeyedValue]) -> None:
        """`produce` of each, in order; a record that fails aborts the whole."""
        if not records:
            return
        # Where the client's queue is full it takes a later, shorter record in place of one that it refuses, and order is lost.
        # Its queue is empty when a transaction begins, and holds several times as much as one call takes.
        if sum([len(value) for _, value in records if value is not None]) > _AT_ONCE_BYTES:
            for key, value in records:
                self.produce(topic, partition, key, value)
            return
        messages: list[dict[str, Any]] = [{"key": key, "value": value} if value is not None else {"key": key} for key, value in records]
        try:
            taken = self._producer.produce_batch(topic, messages, partition=partition)
        except KafkaException as error:
            self._abort_or_leave(error.args[0], "producing")
        except BufferError as error:
            self._abort(f"producing: {error}")
        else:
            if taken != len(messages):
                refused = next(message["_error"] for message in messages if "_error" in message)
                if refused.code() == KafkaError._QUEUE_FULL:
                    self._abort("producing: the client's queue is full")
                self._abort_or_leave(refused, "producing")

    def send_offsets(self, offsets: Mapping[Place, int], metadata: object) -> None:
        """`offsets`: the next to read of each input. `metadata` is the group's as of this moment (KIP-447)."""
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._retry(
            "sending offsets",
            lambda: self._producer.send_offsets_to_transaction(places, metadata, _ATTEMPT_S),
            self._deadline_s,
        )

    def commit(self) -> None:
        """Raises `TransactionAborted`, and `Fatal` where what became of it is not known."""
        self._retry("committing", lambda: self._producer.commit_transaction(_ATTEMPT_S), self._deadline_s * 2)

    def abort(self) -> None:
        """Raises `Fatal` where the client cannot even do that (its transaction timed out, or it was fenced)."""
        self._retry("aborting", lambda: self._producer.abort_transaction(_ATTEMPT_S), self._deadline_s * 2, aborting=True)

    def close(self) -> None:
        """Drops what was not sent. An open transaction stays open: the next of this id, or its time-out, ends it."""
        self._watch.close()
        try:
            self._producer.purge()
            self._producer.flush(1)
        except (KafkaException, SystemError) as error:
            _log.warning("producer_closed_dirty", transactional_id=self.transactional_id, reason=str(error))

    def _call(self, doing: str, call: Callable[[], object], *, aborting: bool = False) -> bool:
        """Whether it was done; False: to be called again."""
        try:
            with self._watch.over(doing):
                call()
        except KafkaException as error:
            if error.args[0].retriable() and not error.args[0].fatal():
                return False
            if aborting:
                raise Fatal(f"{doing}: {error.args[0].name()}: {error.args[0].str()}") from error
            self._abort_or_leave(error.args[0], doing)
        except SystemError as error:
            # A fatal error that surfaced while a delivery callback ran.
            raise Fatal(f"{doing}: {error}") from error
        return True

    def _retry(self, doing: str, call: Callable[[], object], timeout_s: float, *, aborting: bool = False) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._call(doing, call, aborting=aborting):
            if time.monotonic() >= deadline:
                raise Fatal(f"{doing}: no answer within {timeout_s:g} s")

    def _abort_or_leave(self, error: KafkaError, doing: str) -> NoReturn:
        detail = f"{doing}: {error.name()}: {error.str()}"
        if error.fatal() or not error.txn_requires_abort():
            raise Fatal(detail)
        self._abort(detail)

    def _abort(self, detail: str) -> NoReturn:
        _log.warning("transaction_aborted", transactional_id=self.transactional_id, reason=detail)
        self.abort()
        raise TransactionAborted(detail)


def _offset_callback(on_delivery: Callable[[int], None]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        # A failed delivery makes the commit fail by itself; its offset means nothing.
        if error is None:
            on_delivery(message.offset())  # type: ignore[arg-type]

    return delivered
