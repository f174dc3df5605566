"""Outcomes: as they are told to who asked, and as they are remembered. The two have most of their bytes in common."""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.primitives import long_bytes, long_text, text_bytes
from streams.session.outcomes import Grant, Inputs, OpenEffect, Outcome, Recovery, Unavailable


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
    """`grant`, `actual_run_sequence` and `missing`."""
    position = outcome.actual_run_sequence
    if outcome.grant is None and position is None and not outcome.missing:
        return b"\x00\x00\x00"
    at = b"\x00" if position is None else b"\x02" + long_bytes(position)
    return b"".join((_grant(outcome.grant), at, _array([text_bytes(each) for each in outcome.missing])))


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
            _recovery(grant.recovery),
        )
    )


def _recovery(recovery: Recovery | None) -> bytes:
    if recovery is None:
        return b"\x00"
    return b"".join(
        (
            b"\x02",
            text_bytes(recovery.mode),
            _nullable(recovery.reason),
            _nullable(recovery.checkpoint_id),
            _nullable(recovery.checkpoint_session_id),
            long_bytes(recovery.through_sequence),
            _nullable(recovery.through_event_id),
            _flag(recovery.complete),
            _array([_unavailable(each) for each in recovery.unavailable]),
            _flag(recovery.history),
            _flag(recovery.files),
            _flag(recovery.native_continuation),
            long_bytes(recovery.frontier_sequence),
            _array([text_bytes(pin) for pin in recovery.pins]),
            _array([text_bytes(wait_id) for wait_id in recovery.open_waits]),
            _array([_effect(each) for each in recovery.open_effects]),
            _inputs(recovery.inputs),
        )
    )


def _unavailable(each: Unavailable) -> bytes:
    return b"".join((long_bytes(each.first), long_bytes(each.last), text_bytes(each.reason), _nullable(each.session_id)))


def _effect(each: OpenEffect) -> bytes:
    return b"".join([text_bytes(value) for value in (each.effect_id, each.status, each.action_digest, each.request_digest)])


def _inputs(inputs: Inputs) -> bytes:
    names = (inputs.turn_id, inputs.thread_id, inputs.lane, inputs.harness, inputs.harness_revision, inputs.environment_revision)
    return long_bytes(inputs.accepted_sequence) + b"".join([_nullable(value) for value in names])


def _flag(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _array(items: Sequence[bytes]) -> bytes:
    return b"".join((long_bytes(len(items)), *items, b"\x00")) if items else b"\x00"


def _nullable(value: str | None) -> bytes:
    return b"\x00" if value is None else b"\x02" + text_bytes(value)
