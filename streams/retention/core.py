"""How an erasure goes on, as pure rules: what is awaited, when it is enforced, when it is complete (design 04, "Erasure").

    accepted    it is in the log; nothing can take it back
    destroyed   the secrets are gone, and an order tells every holder
    enforced    nothing of it is readable anywhere: every process that keeps secrets has said so, or a lease is over
    complete    nothing of it is held: every store and every sink has said so, and compaction has had its time

An entry of a cache lives for a lease from the moment its secret was asked for, and one that is destroyed cannot be asked for again; so
what nobody confirms holds after a lease all the same.
"""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct, structs

from streams.log.retention import (
    ACCEPTED,
    COMPLETE,
    DESTROYED,
    ENFORCED,
    ERASE_SESSION,
    ERASE_SUBJECT,
    ERASURE,
    SESSION,
    SUBJECT,
    Erasure,
    Purged,
    RetentionRow,
    WorkspaceCommand,
    erasure_id_of,
)
from streams.session.ids import is_id

KEYRING: Final = "keyring"
"""Named as a holder while it cannot destroy."""
LEASE: Final = "lease"
"""Named as a holder where all that are known have confirmed, and whether there are others is not known yet."""
COMPACTION: Final = "compaction"
"""Named as a holder: what stands in compacted topics until a cleaner has passed."""
_SCOPES: Final = {ERASE_SUBJECT: SUBJECT, ERASE_SESSION: SESSION}


class Confirmed(Struct, frozen=True, kw_only=True):
    """What holders have said. `partitions` and `sinks`: holder -> the order up to which nothing is held; `reports`: order -> holder ->
    what it removed."""

    partitions: Mapping[str, int] = {}
    sinks: Mapping[str, int] = {}
    reports: Mapping[int, Mapping[str, Purged]] = {}


class Awaiting(Struct, frozen=True):
    """`holders`: who has not confirmed; `lapsed`: those of them whose caches are empty by now, whatever they say; `confirmed`: who has,
    where that is asked."""

    holders: tuple[str, ...] = ()
    lapsed: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()


def scope_of(command: WorkspaceCommand) -> str | None:
    """None for an action that is not known here."""
    return _SCOPES.get(command.action)


def accepted(command: WorkspaceCommand, scope: str, now: int, position: str) -> RetentionRow:
    """`now` in microseconds since the epoch; `position` is the command's."""
    erasure_id = erasure_id_of(command.workspace_id, scope, command.target_id)
    return RetentionRow(
        kind=ERASURE,
        workspace_id=command.workspace_id,
        id=erasure_id,
        state=ACCEPTED,
        erasure_id=erasure_id,
        ended_at=now,
        position=position,
        erasure=Erasure(scope=scope, scope_id=command.target_id, principal_id=command.principal_id),
    )


def destroyed(row: RetentionRow, order: int, now: int) -> RetentionRow:
    return structs.replace(row, state=DESTROYED, destroyed_at=now, erasure=structs.replace(_of(row), order=order))


def enforced(row: RetentionRow, now: int) -> RetentionRow:
    return structs.replace(row, state=ENFORCED, erasure=structs.replace(_of(row), enforced_at=now))


def complete(row: RetentionRow, confirmed: Confirmed, now: int) -> RetentionRow:
    told = reported(row, confirmed)
    return structs.replace(row, state=COMPLETE, erasure=structs.replace(told, completed_at=now))


def with_receipt(row: RetentionRow, envelope: bytes) -> RetentionRow:
    erasure = _of(row)
    return structs.replace(row, erasure=structs.replace(erasure, receipts=(*erasure.receipts, envelope)))


def with_reports(row: RetentionRow, confirmed: Confirmed) -> RetentionRow:
    """With what was removed so far."""
    return structs.replace(row, erasure=reported(row, confirmed))


def is_target(command: WorkspaceCommand, scope: str) -> bool:
    """Whether its ids fit what it asks for."""
    return is_id(command.workspace_id, "ws") and is_id(command.target_id, "subj" if scope == SUBJECT else "sess")


def number_of(row: RetentionRow) -> int:
    """Of the order that tells holders of it; 0 while nothing is destroyed."""
    return _of(row).order


def reported(row: RetentionRow, confirmed: Confirmed) -> Erasure:
    """The erasure with what its holders say that they removed."""
    erasure = _of(row)
    counts: dict[str, int] = {}
    for report in confirmed.reports.get(erasure.order, {}).values():
        for what, count in report.counts.items():
            counts[what] = counts.get(what, 0) + count
    return structs.replace(erasure, counts=dict(sorted(counts.items())), tombstones_at=tombstones_at(erasure.order, confirmed))


def tombstones_at(order: int, confirmed: Confirmed) -> int | None:
    """When the last of those was written that compaction has to follow (microseconds); None where there were none."""
    reports = confirmed.reports.get(order, {}).values()
    return max((report.tombstones_at for report in reports if report.tombstones_at is not None), default=None)


def awaited_to_enforce(order: int, caches: Mapping[str, int], *, a_lease_is_over: bool) -> Awaiting:
    """`caches`: holder -> the order up to which nothing destroyed is readable there; `a_lease_is_over`: since `order` was committed."""
    behind = tuple(sorted(holder for holder, through in caches.items() if through < order))
    confirmed = tuple(sorted(holder for holder, through in caches.items() if through >= order))
    return Awaiting((), behind, confirmed) if a_lease_is_over else Awaiting(behind, (), confirmed)


def awaited_to_complete(order: int, confirmed: Confirmed, expected: Collection[str], now: int | None, bound_us: int) -> Awaiting:
    """`expected`: the holders that every installation has; `now`: None where no clock is believed; `bound_us`: how long compaction takes
    at most, in microseconds."""
    behind = [holder for holder in expected if confirmed.partitions.get(holder, 0) < order]
    behind += [holder for holder, through in confirmed.sinks.items() if through < order]
    if not behind:
        written_at = tombstones_at(order, confirmed)
        if written_at is not None and (now is None or now < written_at + bound_us):
            behind.append(COMPACTION)
    return Awaiting(tuple(sorted(behind)))


def _of(row: RetentionRow) -> Erasure:
    if row.erasure is None:
        raise ValueError(f"{row.id} is no erasure")
    return row.erasure
