"""To the dead letters with what a handler cannot read, sealed; the partition moves on."""

from typing import Final

import structlog

from streams.custody.dead_letters import Address, Letter, dead_letter
from streams.custody.sealing import Sealer, content_expiry_day
from streams.errors import RecordUnreadable
from streams.log.reader import Record
from streams.log.record import encode_dead_letter
from streams.log.topics import DEAD_LETTER_DAYS
from streams.loop.step import Step

NO_SESSION: Final = b"none"
"""The key of a dead letter that names no session."""

_log = structlog.get_logger(__name__)


def set_aside(step: Step, record: Record, error: RecordUnreadable, sealer: Sealer, topic: str, key: bytes = NO_SESSION) -> None:
    """Produces the letter to `topic`, the dead letters, under `key`. Raises `KeyringUnavailable`: the batch waits."""
    reason, _, detail = error.detail.partition(": ")
    _log.error("dead_letter", topic=record.topic, partition=record.partition, offset=record.offset, reason=reason)
    letter = dead_letter(
        sealer,
        Address(content_expiry_day(step.now, DEAD_LETTER_DAYS), record.topic, record.partition, record.offset),
        Letter(key=record.key, value=record.value),
        reason=reason,
        detail=detail,
        recorded_at=step.now,
    )
    step.produce(topic, step.partition, key, encode_dead_letter(letter))
