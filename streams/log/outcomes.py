"""Outcomes: as they are told to who asked, and as they are remembered. The two have most of their bytes in common."""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.primitives import long_bytes, long_text, text_bytes
from streams.session.outcomes import Grant, Outcome


class Told(NamedTuple):
    """The bytes of an outcome that do not depend on whom it is told: from `session_id` to `decided_at`, and from `grant` on."""

    before: bytes
    after: bytes

    def recorded(self) -> bytes:
        """The body of a RecordedOutcome."""
        return self.before + self.after

    def addressed(self, outcome: Outcome) -> bytes:
        """An Outcome as an item of an OutcomeBatch."""
        repeated = b"\x01" if outcome.repeated else b"\x00"
        return b"".join((text_bytes(outcome.command_id), long_bytes(outcome.correlation), self.before, repeated, self.after))


def told(outcome: Outcome) -> Told:
    """What both have in common, written once."""
    return Told(_before(outcome), _after(outcome))


def written_batch(reply_to: str, addressed: Sequence[bytes]) -> bytes:
    """The body of an OutcomeBatch of these items."""
    count = [long_bytes(len(addressed))] if addressed else []
    return b"".join((text_bytes(reply_to), *count, *addressed, b"\x00"))


def _before(outcome: Outcome) -> bytes:
    """From `session_id` to `decided_at`."""
    numbers = (
        f"{long_text(outcome.first_sequence)}{long_text(outcome.last_sequence)}"
        f"{long_text(outcome.position_offset)}{long_text(outcome.decided_at)}"
    )
    code, detail = outcome.code, outcome.detail
    if code is None and detail is None:
        return b"".join((text_bytes(outcome.session_id), text_bytes(outcome.status), b"\x00\x00", numbers.encode("latin-1")))
    why = _nullable(code) + _nullable(detail)
    return b"".join((text_bytes(outcome.session_id), text_bytes(outcome.status), why, numbers.encode("latin-1")))


def _after(outcome: Outcome) -> bytes:
    """`grant` and `actual_run_sequence`."""
    position = outcome.actual_run_sequence
    if outcome.grant is None and position is None:
        return b"\x00\x00"
    return _grant(outcome.grant) + (b"\x00" if position is None else b"\x02" + long_bytes(position))


def _grant(grant: Grant | None) -> bytes:
    if grant is None:
        return b"\x00"
    return b"".join(
        (
            b"\x02",
            text_bytes(grant.run_id),
            long_bytes(grant.generation),
            text_bytes(grant.native_task_id),
            long_bytes(grant.lease_expires_at),
            long_bytes(grant.run_sequence),
        )
    )


def _nullable(value: str | None) -> bytes:
    return b"\x00" if value is None else b"\x02" + text_bytes(value)
