"""Writes confirmations of holders, and measures by them how far this clock is from the broker's."""

import threading
from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message
from msgspec import Struct

from streams.clock import boottime_s, now_us
from streams.errors import BrokerUnavailable
from streams.log.client import producer, translate
from streams.log.retention import Confirmation, encode_confirmation
from streams.log.topics import Topics
from streams.settings import Settings

_FLUSH_S: Final = 10.0
_log = structlog.get_logger(__name__)


class ClockOffset(Struct, frozen=True):
    """By how many microseconds the broker's clock is ahead of this one, as little as the measurement allows; `at_us` is what this one
    showed then, `measured_at_s` when that was by `boottime_s`."""

    ahead_us: int
    measured_at_s: float
    at_us: int


class ConfirmationLog:
    """Thread-safe."""

    def __init__(self, settings: Settings, client: str) -> None:
        self._topic = Topics(settings.topic_prefix).confirmations
        self._producer = producer(settings, f"{client}.confirmations")
        self._lock = threading.Lock()
        self._offset: ClockOffset | None = None

    @property
    def clock_offset(self) -> ClockOffset | None:
        """As last measured; None before the first delivery."""
        return self._offset

    def tell(self, told: Confirmation, on_stored: Callable[[], None] | None = None) -> None:
        """Sends it, and looks at what was delivered before. `on_stored` is called, from whoever looks, once it is stored: one that is
        lost is its teller's to tell again."""

        def lost(error: KafkaError) -> None:
            _log.warning("confirmation_lost", holder=told.holder_id, reason=error.name())

        try:
            self._send(told, lost, on_stored)
        except (KafkaException, BufferError) as error:
            _log.warning("confirmation_lost", holder=told.holder_id, reason=str(error))
        self._producer.poll(0)

    def tell_now(self, told: Confirmation, *, timeout_s: float = _FLUSH_S) -> None:
        """As `tell`, and returns once it is stored. Raises `BrokerUnavailable` or another StreamsError."""
        failed: list[KafkaError] = []
        try:
            self._send(told, failed.append)
            left = self._producer.flush(timeout_s)
        except KafkaException as error:
            raise translate(error, "confirming") from error
        if failed:
            raise translate(failed[0], "confirming")
        if left:
            raise BrokerUnavailable("confirming: timed out")

    def serve(self) -> None:
        """Looks at what was delivered."""
        self._producer.poll(0)

    def close(self) -> None:
        """Whoever waits for what is not stored by then takes the holder for one that is not heard of."""
        self._producer.flush(2)
        self._producer.purge()
        self._producer.close()

    def _send(self, told: Confirmation, on_lost: Callable[[KafkaError], None], on_stored: Callable[[], None] | None = None) -> None:
        """Raises what the client raises."""
        sent_at = now_us()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                on_lost(error)
                return
            self._measure(sent_at, message.timestamp()[1] * 1000)
            if on_stored is not None:
                on_stored()

        self._producer.produce(self._topic, encode_confirmation(told), told.holder_id.encode(), 0, on_delivery=delivered)

    def _measure(self, sent_at: int, broker_us: int) -> None:
        # The broker wrote it between the two moments; of the offsets that this allows, the smallest.
        most, least = broker_us + 999 - sent_at, broker_us - now_us()
        ahead = max(least, 0) or min(most, 0)
        with self._lock:
            self._offset = ClockOffset(ahead, boottime_s(), now_us())
