"""Writes one row of a compacted topic and waits until it is stored: for rare changes by hand, not for a hot path."""

from confluent_kafka import KafkaError, KafkaException, Message

from streams.errors import BrokerUnavailable
from streams.log.client import producer, translate
from streams.settings import Settings


def put_row(settings: Settings, topic: str, key: bytes, value: bytes | None, *, timeout_s: float = 10) -> None:
    """A value of None deletes the row. Raises `BrokerUnavailable` or `Misconfigured`; the row may still come to be then."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    client = producer(settings, "rows", {"message.timeout.ms": int(timeout_s * 1000)})
    try:
        client.produce(topic, value, key, 0, on_delivery=delivered)
        left = client.flush(timeout_s + 1)
    except (KafkaException, BufferError) as error:
        if isinstance(error, KafkaException):
            raise translate(error, f"writing a row of {topic}") from error
        raise BrokerUnavailable(f"writing a row of {topic}: queue full") from error
    finally:
        client.close()
    if failures:
        raise translate(failures[0], f"writing a row of {topic}")
    if left:
        raise BrokerUnavailable(f"writing a row of {topic}: timed out")
