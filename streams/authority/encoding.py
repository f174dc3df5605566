"""The authority's state <-> bytes: `schemas/state/`. What cannot be read here makes the store unusable."""

from typing import Any, Final

import msgspec

from schemas import codec
from streams.errors import StoreUnusable
from streams.session.items import KINDS, Item, from_record, to_record
from streams.session.outcomes import Grant, Outcome

_SUBJECTS: Final = {kind: f"state/{kind}" for kind in KINDS}
_GRANT: Final = "grant"

Entry = tuple[bytes, bytes, bytes]
"""Command id (16 bytes), request digest, encoded outcome."""


def encode_state(kind: str, item: Item) -> bytes:
    return codec.encode(_SUBJECTS[kind], to_record(item))


def decode_state(kind: str, value: bytes) -> Item:
    """Raises `StoreUnusable`."""
    return from_record(kind, _decoded(_SUBJECTS[kind], value))


def encode_chunk(decided_at: int, entries: list[Entry]) -> bytes:
    rows = [{"command_id": command_id, "request_digest": digest, "outcome": body} for command_id, digest, body in entries]
    return codec.encode("state/outcome-chunk", {"decided_at": decided_at, "entries": rows})


def decode_chunk(value: bytes) -> tuple[int, list[Entry]]:
    """When it was decided, and its entries. Raises `StoreUnusable`."""
    record = _decoded("state/outcome-chunk", value)
    return record["decided_at"], [(row["command_id"], row["request_digest"], row["outcome"]) for row in record["entries"]]


def encode_recorded(outcome: Outcome) -> bytes:
    return codec.encode(
        "state/recorded-outcome",
        {
            "session_id": outcome.session_id,
            "status": outcome.status,
            "code": outcome.code,
            "detail": outcome.detail,
            "first_sequence": outcome.first_sequence,
            "last_sequence": outcome.last_sequence,
            "position_offset": outcome.position_offset,
            "decided_at": outcome.decided_at,
            "grant": None if outcome.grant is None else msgspec.structs.asdict(outcome.grant),
            "actual_run_sequence": outcome.actual_run_sequence,
        },
    )


def decode_recorded(command_id: str, value: bytes) -> Outcome:
    """The outcome as recorded, not yet addressed to anyone. Raises `StoreUnusable`."""
    record = _decoded("state/recorded-outcome", value)
    if record[_GRANT] is not None:
        record[_GRANT] = Grant(**record[_GRANT])
    return Outcome(command_id=command_id, correlation=0, **record)


def _decoded(subject: str, value: bytes) -> dict[str, Any]:
    try:
        return codec.decode_as(subject, value)
    except codec.Undecodable as error:
        raise StoreUnusable(f"{subject}: {error}") from error
