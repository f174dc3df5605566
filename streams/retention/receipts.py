"""Signed receipts of an erasure, one a step: what was asked, by whom, when, who has confirmed, what was removed.

A receipt names no person but by pseudonym. Its payload is JSON as RFC 8785 has it (names in order, no number but whole ones), in an
envelope of the DSSE form; `session-streams receipts verify` checks it with the installation's public keys alone.
"""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from streams.custody.signing import SigningKey
from streams.log.retention import Erasure, RetentionRow
from streams.session.days import moment

PAYLOAD_TYPE: Final = "application/vnd.session-streams.receipt+json"
FORMAT: Final = "session-streams.erasure-receipt"

CurrentKey = Callable[[], SigningKey]


def receipt(
    row: RetentionRow, step: str, key: SigningKey, now: int, *, holders: Collection[str] = (), lapsed: Collection[str] = ()
) -> bytes:
    """An envelope as JSON. `row` is the erasure's after the step; `holders` those that confirmed it, `lapsed` those that were not waited
    for any longer. `now` in microseconds since the epoch."""
    erasure = row.erasure
    if erasure is None:
        raise ValueError(f"{row.id} is no erasure")
    payload = {
        "format": FORMAT,
        "schema_version": 1,
        "erasure_id": row.id,
        "workspace_id": row.workspace_id,
        "scope": {"kind": erasure.scope, "id": erasure.scope_id},
        "step": step,
        "requested_by": erasure.principal_id,
        "counts": erasure.counts,
        "holders": sorted(holders),
        "lapsed": sorted(lapsed),
        "issued_at": moment(now),
        **_times(row, erasure),
    }
    return msgspec.json.encode(key.sign(PAYLOAD_TYPE, msgspec.json.encode(payload, order="sorted")))


def _times(row: RetentionRow, erasure: Erasure) -> dict[str, str]:
    times = {
        "accepted_at": row.ended_at,
        "destroyed_at": row.destroyed_at,
        "enforced_at": erasure.enforced_at,
        "complete_at": erasure.completed_at,
    }
    return {name: moment(at) for name, at in times.items() if at is not None}
